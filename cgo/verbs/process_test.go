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

	"lightpath/collectives/datatype"
	"lightpath/shim"
)

// rankEnv makes this program a rank: "rank ranks id".
const rankEnv = "LIGHTPATH_TEST_RDMA_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(rankEnv) != "" {
		os.Exit(rankProcess())
	}
	os.Exit(m.Run())
}

// rankProcess calls AllReduce until that fails, and says why. It says when it has got going.
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
	shim.UseVerbs(Library{})
	comms, err := shim.Init([]shim.InitArgs{a})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	buf := make([]int32, 20000)
	at := unsafe.Pointer(&buf[0])
	for i := 0; ; i++ {
		call := shim.Call{Comm: comms[0], Kind: shim.CallAllReduce, Type: datatype.Int32, Count: uint64(len(buf)), Send: at, Recv: at}
		if err := shim.Run([]shim.Call{call}); err != nil {
			fmt.Println("error:", err)
			return 0
		}
		if i == 3 {
			fmt.Println("going")
		}
	}
}

// TestKilledRank: when a rank's process is killed in the middle of a collective, all others get an
// error that names it.
func TestKilledRank(t *testing.T) {
	planes := len(ends(t))
	rdmaEnvironment(t, planes)
	id, err := shim.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	const ranks, victim = 3, 2
	cmds, outs := make([]*exec.Cmd, ranks), make([]*bufio.Scanner, ranks)
	for r := range cmds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", rankEnv, r, ranks, hex.EncodeToString(id[:])))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		cmds[r], outs[r] = cmd, bufio.NewScanner(out)
	}
	for r, out := range outs {
		if !out.Scan() || out.Text() != "going" {
			t.Fatalf("rank %d says %q", r, out.Text())
		}
	}
	begin := time.Now()
	if err := cmds[victim].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for r, out := range outs[:victim] {
		out.Scan()
		t.Logf("rank %d after %v: %s", r, time.Since(begin).Round(time.Millisecond), out.Text())
		if s := out.Text(); !strings.HasPrefix(s, "error:") || !strings.Contains(s, fmt.Sprintf("rank %d", victim)) {
			t.Errorf("rank %d says %q", r, s)
		}
	}
}
