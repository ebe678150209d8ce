package shim

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

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

// TestCablePulled pulls the cable of one of two planes between two hosts during calls. The calls continue over the
// other plane, and over both once the cable is back. Without both cables, each rank reports the other one as lost, and
// on which plane.
func TestCablePulled(t *testing.T) {
	hosts, ethernet := addressedHosts(t, 2, 2)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ranks := make([]*talker, len(hosts))
	for r, host := range hosts {
		cmd := exec.Command("ip", "netns", "exec", host, exe)
		cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=rank", fmt.Sprintf("LP_TEST_RANK=%d %d", r, len(hosts)),
			"NCCL_COMM_ID=10.77.0.1:4711", "NCCL_SOCKET_IFNAME=e0,e1", "LIGHTPATH_TRANSPORT=tcp", "LIGHTPATH_PLANES=2",
			"LIGHTPATH_TIMEOUT=60s", "LIGHTPATH_HEARTBEAT=2s")
		ranks[r] = talk(t, cmd)
	}
	going(t, ranks)
	more := func() bool {
		before := ranks[0].calls.Load()
		return settled(func() bool { return ranks[0].calls.Load() > before+20 })
	}
	ethernet.Plug(t, 1, false)
	if !more() { // every call needs plane 1, or what replaces it
		t.Fatal("no calls without plane 1")
	}
	ethernet.Plug(t, 1, true)
	before := ethernet.Sent(t, 1, 1)
	if !settled(func() bool { return ethernet.Sent(t, 1, 1) > before+1<<20 }) || !more() {
		t.Error("the calls do not use plane 1 again")
	}
	for plane := range 2 {
		ethernet.Plug(t, plane, false)
	}
	for r, p := range ranks {
		if s := <-p.last; !strings.Contains(s, fmt.Sprintf("lost rank %d", 1-r)) || !strings.Contains(s, ", plane ") {
			t.Errorf("rank %d says %q", r, s)
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}
