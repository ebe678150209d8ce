package shim

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is also the program of rank processes: with LP_TEST_RANK set it is one.
func TestMain(m *testing.M) {
	if os.Getenv("LP_TEST_RANK") != "" {
		os.Exit(rankProcess())
	}
	// Communicators of tests are nobody else's business, and the port of RAS nobody's alone.
	dir, err := os.MkdirTemp("", "lp")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"LIGHTPATH_STATUS_DIR": filepath.Join(dir, "s"), "NCCL_RAS_ENABLE": "0"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// rankProcess joins a communicator and calls AllReduce for ever; the first error goes to
// standard output. It says when it has got going.
func rankProcess() int {
	var a InitArgs
	if _, err := fmt.Sscan(os.Getenv("LP_TEST_RANK"), &a.Rank, &a.Ranks); err != nil {
		panic(err)
	}
	raw, err := hex.DecodeString(os.Getenv("LP_TEST_ID"))
	if err != nil {
		panic(err)
	}
	a.ID = UniqueID(raw)
	comms, err := Init([]InitArgs{a})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	buf := make([]float32, 100000)
	for i := 0; ; i++ {
		if err := Run([]Call{allReduce(comms[0], buf)}); err != nil {
			fmt.Println("error:", ResultOf(err), err)
			_ = comms[0].Destroy()
			<-comms[0].released
			return 0
		}
		if i == 3 {
			fmt.Println("going")
		}
	}
}

// rankProcesses starts n ranks as processes and returns once all are in their loops.
func rankProcesses(t *testing.T, n int) ([]*exec.Cmd, []*bufio.Scanner) {
	t.Helper()
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmds, outs := make([]*exec.Cmd, n), make([]*bufio.Scanner, n)
	for r := range cmds {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("LP_TEST_RANK=%d %d", r, n), "LP_TEST_ID="+hex.EncodeToString(id[:]))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		cmds[r], outs[r] = cmd, bufio.NewScanner(out)
	}
	for r, out := range outs {
		if !out.Scan() || out.Text() != "going" {
			t.Fatalf("rank %d says %q", r, out.Text())
		}
	}
	return cmds, outs
}

// TestKilledRank: when a rank process dies in the middle of a collective, every other
// rank's call returns an error that names it; leader or not, on every path.
func TestKilledRank(t *testing.T) {
	for _, transport := range []string{"shm", "tcp", "light", "elsewhere", "kernel"} {
		for _, victim := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/%d", transport, victim), func(t *testing.T) {
				switch transport {
				case "light":
					lightFabric(t, 3, 2, nil)
				case "elsewhere":
					newSite(t, 3, 2, siteOptions{})
				case "kernel":
					kernelFabric(t, 3, 2, 5e8)
				default:
					t.Setenv("LIGHTPATH_TRANSPORT", transport)
				}
				t.Setenv("LIGHTPATH_TIMEOUT", "60s")
				cmds, outs := rankProcesses(t, 3)
				if err := cmds[victim].Process.Signal(unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				for r, out := range outs {
					if r == victim {
						continue
					}
					out.Scan()
					// The switch may be the first to notice, and names the port.
					if s := out.Text(); !strings.Contains(s, fmt.Sprintf("rank %d", victim)) && !strings.Contains(s, fmt.Sprintf("port %d", victim)) {
						t.Errorf("rank %d says %q", r, s)
					} else if strings.Contains(s, "timed out") {
						t.Errorf("rank %d has waited for its timeout: %q", r, s)
					}
				}
				for _, cmd := range cmds {
					_ = cmd.Wait() // the victim's status is its signal
				}
			})
		}
	}
}

// TestCreateDestroyLeavesNothing makes and frees many communicators.
func TestCreateDestroyLeavesNothing(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TRANSPORT", transport)
			cycle := func() {
				w := newWorld(t, 2)
				w.must(func(c *Comm) error { return Run([]Call{allReduce(c, make([]float32, 10))}) })
				w.destroy()
			}
			cycle() // what is made once per process
			before := census(t)
			cycles := 70 // 210 in all
			if testing.Short() {
				cycles = 10
			}
			for range cycles {
				cycle()
			}
			var after resources
			if !settled(func() bool { after = census(t); return after.within(before) }) {
				t.Errorf("before %+v, after %+v", before, after)
			}
		})
	}
}

// TestFailedInitLeavesNothing: refused and timed out communicators too.
func TestFailedInitLeavesNothing(t *testing.T) {
	t.Setenv("LIGHTPATH_TIMEOUT", "20ms")
	before := census(t)
	for range 5 {
		id, err := NewUniqueID()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Init([]InitArgs{{ID: id, Ranks: 2, Rank: 0}}); err == nil {
			t.Fatal("a communicator without its second rank")
		}
	}
	var after resources
	if !settled(func() bool { after = census(t); return after.within(before) }) {
		t.Errorf("before %+v, after %+v", before, after)
	}
}
