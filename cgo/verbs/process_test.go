package verbs

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/endpoints"
)

// rankEnv, "rank ranks id", makes this program a rank.
const rankEnv = "LIGHTPATH_TEST_RDMA_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(rankEnv) != "" {
		os.Exit(rankProcess())
	}
	os.Exit(m.Run())
}

// rankProcess calls AllReduce until that fails, and prints the error. It prints a line after the first calls.
func rankProcess() int {
	var a shim.InitArgs
	var id string
	if _, err := fmt.Sscan(os.Getenv(rankEnv), &a.Rank, &a.Ranks, &id); err != nil {
		panic(err)
	}
	raw, err := hex.DecodeString(id)
	if err != nil {
		panic(err)
	}
	a.ID = shim.UniqueID(raw)
	endpoints.UseVerbs(Library{})
	comms, err := shim.Init([]shim.InitArgs{a})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	buf := make([]int32, 20000)
	at := unsafe.Pointer(&buf[0])
	for i := 0; ; i++ {
		call := calls.Call{Comm: comms[0], Kind: calls.AllReduce, Type: datatype.Int32, Count: uint64(len(buf)), Send: at,
			Recv: at}
		if err := shim.Run([]calls.Call{call}); err != nil {
			fmt.Println("error:", err)
			return 0
		}
		if i == 3 {
			fmt.Println("going")
		}
	}
}

// process is a rank as a process.
type process struct {
	*os.Process
	out *bufio.Scanner
}

// rankProcesses starts a communicator's ranks as processes, and returns when all make calls.
func rankProcesses(t *testing.T, ranks int, timeout string) []process {
	t.Helper()
	rdmaEnvironment(t, len(ends(t)))
	t.Setenv("LIGHTPATH_TIMEOUT", timeout)
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	all := make([]process, ranks)
	for r := range all {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", rankEnv, r, ranks, hex.EncodeToString(id[:])))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		all[r] = process{cmd.Process, bufio.NewScanner(out)}
	}
	for r, p := range all {
		if !p.out.Scan() || p.out.Text() != "going" {
			t.Fatalf("rank %d says %q", r, p.out.Text())
		}
	}
	return all
}

// fails waits for a rank's error, and checks that it contains all of the texts.
func (p process) fails(t *testing.T, rank int, want ...string) string {
	t.Helper()
	begin := time.Now()
	p.out.Scan()
	s := p.out.Text()
	t.Logf("rank %d after %v: %s", rank, time.Since(begin).Round(time.Millisecond), s)
	for _, w := range append(want, "error: ") {
		if !strings.Contains(s, w) {
			t.Errorf("rank %d does not say %q: %q", rank, w, s)
		}
	}
	return s
}

// TestKilledRank kills a rank's process in the middle of a collective. All others get an error that names it.
func TestKilledRank(t *testing.T) {
	const ranks, victim = 3, 2
	all := rankProcesses(t, ranks, "60s")
	require.NoError(t, all[victim].Kill())
	for r := range victim {
		all[r].fails(t, r, fmt.Sprintf("rank %d", victim))
	}
}

// TestStoppedRank stops a rank's process while its devices continue. Within the timeout, all others get an error that
// names the rank, and the plane if a transfer had begun. When the process continues, it gets an error, too.
func TestStoppedRank(t *testing.T) {
	const ranks, victim = 3, 2
	all := rankProcesses(t, ranks, "20s")
	require.NoError(t, all[victim].Signal(unix.SIGSTOP))
	for r := range victim {
		s := all[r].fails(t, r, "timed out", fmt.Sprintf("rank %d", victim), fmt.Sprintf("process %d) is stopped",
			all[victim].Pid))
		if !strings.Contains(s, "plane ") && !strings.Contains(s, fmt.Sprintf("rank %d did not arrive", victim)) {
			t.Errorf("rank %d does not say where: %q", r, s)
		}
	}
	require.NoError(t, all[victim].Signal(unix.SIGCONT))
	all[victim].fails(t, victim)
}
