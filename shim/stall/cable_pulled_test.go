package stall_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"lightpath/shim/shimtest"
)

// TestCablePulled: ranks on two hosts with two planes of TCP. While the cable of plane 1 is out, they
// wait, and when it is in again they go on; where it stays out, both ends of the connections stay open
// and hear nothing (half open), and every rank says within the time allowed whom it waits for, and on
// plane 1.
func TestCablePulled(t *testing.T) {
	t.Parallel()
	hosts, ethernet := shimtest.NewHosts(t, 2, 2)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(limit string, port int) []*shimtest.RankProcess {
		all := make([]*shimtest.RankProcess, len(hosts))
		for r, host := range hosts {
			cmd := exec.Command("ip", "netns", "exec", host, exe)
			cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=rank", fmt.Sprintf("LP_TEST_RANK=%d %d", r, len(hosts)),
				fmt.Sprintf("NCCL_COMM_ID=10.77.0.1:%d", port), "NCCL_SOCKET_IFNAME=e0,e1", "LIGHTPATH_TRANSPORT=tcp", "LIGHTPATH_PLANES=2", "LIGHTPATH_TIMEOUT=60s", "LP_TEST_LIMIT="+limit)
			all[r] = shimtest.StartProcess(t, cmd)
		}
		shimtest.AwaitCalls(t, all)
		return all
	}
	ranks := start("60s", 4711) // nobody else is in these namespaces
	ethernet.Plug(t, 1, false)
	var calls int64
	if !shimtest.Eventually(func() bool {
		before := ranks[0].Calls.Load()
		time.Sleep(200 * time.Millisecond)
		calls = ranks[0].Calls.Load()
		return calls == before
	}) {
		t.Fatal("nobody waits for plane 1")
	}
	ethernet.Plug(t, 1, true)
	if !shimtest.Eventually(func() bool { return ranks[0].Calls.Load() > calls+20 && ranks[1].Calls.Load() > calls+20 }) {
		t.Error("ranks do not go on when the cable is in again")
	}
	for _, p := range ranks {
		_ = p.Process.Kill()
		<-p.LastLine
		_ = p.Wait() // its status is the signal
	}
	ranks = start("2s", 4712)
	ethernet.Plug(t, 1, false)
	for r, p := range ranks {
		if s := <-p.LastLine; !strings.Contains(s, "timed out") || !strings.Contains(s, fmt.Sprintf("rank %d (plane 1", 1-r)) && !strings.Contains(s, fmt.Sprintf("rank %d (plane 1", r)) {
			t.Errorf("rank %d says %q", r, s)
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}
