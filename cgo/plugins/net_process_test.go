package plugins

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/endpoints"
	"lightpath/shim/shimtest"
)

// rankEnv, "rank ranks id", makes this program a rank.
const rankEnv = "LIGHTPATH_TEST_NET_RANK"

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
	endpoints.UseNetPlugins(Net{})
	comms, err := shim.Init([]shim.InitArgs{a})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	for i := 0; ; i++ {
		if err := shim.Run([]calls.Call{shimtest.AllReduce(comms[0], make([]float32, 20000))}); err != nil {
			fmt.Println("error:", err)
			return 0
		}
		if i == 3 {
			fmt.Println("going")
		}
	}
}

// TestKilledRank kills a rank's process in the middle of a collective. All others get an error that names it.
func TestKilledRank(t *testing.T) {
	const ranks, victim = 3, 2
	useNet(t, version(t, newest), "")
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	processes, out := make([]*os.Process, ranks), make([]*bufio.Scanner, ranks)
	for r := range processes {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", rankEnv, r, ranks, hex.EncodeToString(id[:])))
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		processes[r], out[r] = cmd.Process, bufio.NewScanner(pipe)
	}
	for r, o := range out {
		if !o.Scan() || o.Text() != "going" {
			t.Fatalf("rank %d says %q", r, o.Text())
		}
	}
	require.NoError(t, processes[victim].Kill())
	for r := range victim {
		out[r].Scan()
		if s := out[r].Text(); !strings.HasPrefix(s, "error: ") || !strings.Contains(s, fmt.Sprintf("rank %d", victim)) {
			t.Errorf("rank %d says %q", r, s)
		}
	}
}
