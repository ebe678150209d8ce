package shim

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/shim/calls"
	"lightpath/shim/result"
)

// mains are what this test's executable is with LP_TEST_PROGRAM set. They write what they have to
// say to standard output.
var mains = map[string]func() int{"rank": rankProcess, "full": fullProcess, "narrow": narrowProcess, "lossy": lossyProcess}

// TestMain runs the tests, or a program.
func TestMain(m *testing.M) {
	if run := mains[os.Getenv("LP_TEST_PROGRAM")]; run != nil {
		os.Exit(run())
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

// rankProcess joins a communicator and calls AllReduce for ever; it says how many calls it has made,
// from the fourth on, and at last the first error.
func rankProcess() int {
	var a InitArgs
	if _, err := fmt.Sscan(os.Getenv("LP_TEST_RANK"), &a.Rank, &a.Ranks); err != nil {
		panic(err)
	}
	if raw, err := hex.DecodeString(os.Getenv("LP_TEST_ID")); err != nil {
		panic(err)
	} else if len(raw) > 0 {
		a.ID = UniqueID(raw)
	} else if a.ID, err = NewUniqueID(); err != nil { // NCCL_COMM_ID says where
		panic(err)
	}
	comms, err := Init([]InitArgs{a})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	buf := make([]float32, 100000)
	if os.Getenv("LP_TEST_MEMORY") == "region" {
		if buf, err = regionOfFloats(len(buf)); err != nil {
			panic(err)
		}
	}
	for i := 0; ; i++ {
		if err := Run([]calls.Call{allReduce(comms[0], buf)}); err != nil {
			fmt.Println("error:", result.Of(err), err)
			_ = comms[0].Destroy()
			<-comms[0].Released()
			return 0
		}
		if i >= 3 {
			fmt.Println("called", i)
		}
	}
}

// talker is a rank process whose words are read.
type talker struct {
	*exec.Cmd
	calls atomic.Int64 // it says to have made
	last  chan string  // what it says at the end; "" where it has been killed
}

// talk starts a command that is a rank process.
func talk(t *testing.T, cmd *exec.Cmd) *talker {
	t.Helper()
	p := &talker{Cmd: cmd, last: make(chan string, 1)}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		said := ""
		for lines := bufio.NewScanner(out); lines.Scan(); said = lines.Text() {
			var n int64
			if _, err := fmt.Sscanf(lines.Text(), "called %d", &n); err == nil {
				p.calls.Store(n)
			}
		}
		if strings.HasPrefix(said, "called ") {
			said = ""
		}
		p.last <- said
	}()
	return p
}

// rankProcesses starts n ranks as processes and returns once all are in their loops.
func rankProcesses(t *testing.T, n int) []*talker {
	t.Helper()
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*talker, n)
	for r := range all {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=rank", fmt.Sprintf("LP_TEST_RANK=%d %d", r, n), "LP_TEST_ID="+hex.EncodeToString(id[:]))
		all[r] = talk(t, cmd)
	}
	going(t, all)
	return all
}

// going waits until all ranks make calls.
func going(t *testing.T, all []*talker) {
	t.Helper()
	for r, p := range all {
		if !settled(func() bool { return p.calls.Load() > 0 || len(p.last) > 0 }) || p.calls.Load() == 0 {
			t.Fatalf("rank %d does not get going", r)
		}
	}
}

// takePath points the environment at a way for the bytes of ranks, which are processes but for rdma.
func takePath(t *testing.T, path string, ranks int) {
	t.Helper()
	switch path {
	case "arena":
		t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	case "regions": // as "arena", in memory as ncclMemAlloc makes it
		t.Setenv("LIGHTPATH_TRANSPORT", "shm")
		t.Setenv("LP_TEST_MEMORY", "region")
	case "frames":
		t.Setenv("LIGHTPATH_TRANSPORT", "shm")
		t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:ring")
	case "tcp":
		t.Setenv("LIGHTPATH_TRANSPORT", "tcp")
	case "rdma":
		rdmaNetwork(t, 2, 2)
	case "circuits":
		lightFabric(t, ranks, 2, nil)
		t.Setenv("LIGHTPATH_PLANNER", "perstep")
	case "elsewhere":
		newSite(t, ranks, 2, siteOptions{})
	case "kernel":
		kernelFabric(t, ranks, 2, 5e8)
	default:
		t.Fatalf("no path %s", path)
	}
}

// TestKilledRank: when a rank process dies in the middle of a collective, every other
// rank's call returns an error that names it; leader or not, on every path.
func TestKilledRank(t *testing.T) {
	for _, path := range []string{"arena", "regions", "frames", "tcp", "circuits", "elsewhere", "kernel"} {
		for _, victim := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/%d", path, victim), func(t *testing.T) {
				takePath(t, path, 3)
				t.Setenv("LIGHTPATH_TIMEOUT", "60s")
				ranks := rankProcesses(t, 3)
				if path == "arena" || path == "regions" || path == "frames" {
					nameless(t, ranks[victim].Process.Pid)
				}
				if err := ranks[victim].Process.Signal(unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				for r, p := range ranks {
					s := <-p.last
					if r == victim {
						continue
					}
					// The switch may be the first to notice, and names the port.
					if !strings.Contains(s, fmt.Sprintf("rank %d", victim)) && !strings.Contains(s, fmt.Sprintf("port %d", victim)) {
						t.Errorf("rank %d says %q", r, s)
					} else if strings.Contains(s, "timed out") {
						t.Errorf("rank %d has waited for its timeout: %q", r, s)
					}
				}
				for _, p := range ranks {
					_ = p.Wait() // the victim's status is its signal
				}
			})
		}
	}
}

// nameless checks that a segment that ranks have attached has no name any more, which a killed rank
// would leave.
func nameless(t *testing.T, pid int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "/dev/shm/lightpath-") {
			if all++; !strings.Contains(line, "(deleted)") {
				t.Errorf("a segment has a name still: %s", line)
			}
		}
	}
	if all == 0 {
		t.Errorf("no segment in\n%s", maps)
	}
}

// TestCreateDestroyLeavesNothing makes and frees many communicators, 10 000 in make test-long.
func TestCreateDestroyLeavesNothing(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TRANSPORT", transport)
			cycle := func() { // nothing of the test's keeps the communicators
				if err := ranksHere(2); err != nil {
					t.Fatal(err)
				}
			}
			cycle() // what is made once per process
			before := census(t)
			cycles := 70 // 210 in all
			switch {
			case testing.Short():
				cycles = 10
			case os.Getenv("LIGHTPATH_TEST_LONG") != "":
				cycles = 3334
			}
			for range cycles {
				cycle()
			}
			var after resources
			if !settled(func() bool { after = census(t); return after.within(before) && after.heap <= before.heap+8 }) {
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
