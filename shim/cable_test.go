package shim

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"lightpath/ocsctl/kernel/kerneltest"
)

// addressedHosts are hosts that speak IP on every plane: host i is 10.77.J.(i+1) on plane J. Their frames are
// single segments.
func addressedHosts(t *testing.T, n, planes int) ([]string, *kerneltest.Ethernet) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip (Debian package iproute2)")
	}
	hosts, ethernet := kerneltest.Wired(t, n, planes, 1500)
	for i, host := range hosts {
		commands := []string{"link set up dev lo"}
		for j := range planes {
			name := kerneltest.Interface(j)
			commands = append(commands, fmt.Sprintf("addr add 10.77.%d.%d/24 dev %s", j, i+1, name), "link set up gso_max_segs 1 dev "+name)
		}
		for _, words := range commands {
			if out, err := exec.Command("ip", append([]string{"-n", host}, strings.Fields(words)...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", words, err, out)
			}
		}
	}
	return hosts, ethernet
}

// TestCablePulled: ranks on two hosts with two planes of TCP. While the cable of plane 1 is out, they
// wait, and when it is in again they go on; where it stays out, both ends of the connections stay open
// and hear nothing (half open), and every rank says within the time allowed whom it waits for, and on
// plane 1.
func TestCablePulled(t *testing.T) {
	hosts, ethernet := addressedHosts(t, 2, 2)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(timeout string, port int) []*talker {
		all := make([]*talker, len(hosts))
		for r, host := range hosts {
			cmd := exec.Command("ip", "netns", "exec", host, exe)
			cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=rank", fmt.Sprintf("LP_TEST_RANK=%d %d", r, len(hosts)),
				fmt.Sprintf("NCCL_COMM_ID=10.77.0.1:%d", port), "NCCL_SOCKET_IFNAME=e0,e1", "LIGHTPATH_TRANSPORT=tcp", "LIGHTPATH_PLANES=2", "LIGHTPATH_TIMEOUT="+timeout)
			all[r] = talk(t, cmd)
		}
		going(t, all)
		return all
	}
	ranks := start("60s", 4711) // nobody else is in these namespaces
	ethernet.Plug(t, 1, false)
	var calls int64
	if !settled(func() bool {
		before := ranks[0].calls.Load()
		time.Sleep(200 * time.Millisecond)
		calls = ranks[0].calls.Load()
		return calls == before
	}) {
		t.Fatal("nobody waits for plane 1")
	}
	ethernet.Plug(t, 1, true)
	if !settled(func() bool { return ranks[0].calls.Load() > calls+20 && ranks[1].calls.Load() > calls+20 }) {
		t.Error("ranks do not go on when the cable is in again")
	}
	for _, p := range ranks {
		_ = p.Process.Kill()
		<-p.last
		_ = p.Wait() // its status is the signal
	}
	ranks = start("6s", 4712) // they meet and get going in less
	ethernet.Plug(t, 1, false)
	for r, p := range ranks {
		if s := <-p.last; !strings.Contains(s, "timed out") || !strings.Contains(s, fmt.Sprintf("rank %d (plane 1", 1-r)) && !strings.Contains(s, fmt.Sprintf("rank %d (plane 1", r)) {
			t.Errorf("rank %d says %q", r, s)
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}
