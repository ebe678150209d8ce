package stall_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/shim/shimtest"
)

// TestCablePulled pulls the cable of one of two planes between two hosts during calls. The calls continue over the
// other plane, and over both once the cable is back. Without both cables, each rank reports the other one as lost: the
// control network and the planes notice it at the same time.
func TestCablePulled(t *testing.T) {
	t.Parallel()
	hosts, ethernet := shimtest.NewHosts(t, 2, 2)
	ranks := startOnHosts(t, hosts, "LIGHTPATH_TIMEOUT=60s", "LIGHTPATH_HEARTBEAT=2s")
	more := func() bool {
		before := ranks[0].Calls.Load()
		return shimtest.Eventually(func() bool { return ranks[0].Calls.Load() > before+20 })
	}
	ethernet.Plug(t, 1, false)
	if !more() { // every call needs plane 1, or what replaces it
		t.Fatal("no calls without plane 1")
	}
	ethernet.Plug(t, 1, true)
	before := ethernet.Sent(t, 1, 1)
	if !shimtest.Eventually(func() bool { return ethernet.Sent(t, 1, 1) > before+1<<20 }) || !more() {
		t.Error("the calls do not use plane 1 again")
	}
	for plane := range 2 {
		ethernet.Plug(t, plane, false)
	}
	for r, p := range ranks {
		if s := <-p.LastLine; !strings.Contains(s, fmt.Sprintf("lost rank %d", 1-r)) {
			t.Errorf("rank %d says %q", r, s)
		}
		assert.NoError(t, p.Wait())
	}
}

// TestStartWithoutOnePlane makes a communicator while plane 1 of three carries nothing, or one host has turned its
// interface of that plane off. The other planes carry its data until it is back.
func TestStartWithoutOnePlane(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprint("off=", off), func(t *testing.T) {
			t.Parallel()
			hosts, ethernet := shimtest.NewHosts(t, 3, 3)
			if off {
				if out, err := exec.Command("ip", "-n", hosts[1], "link", "set", "e1", "down").CombinedOutput(); err != nil {
					t.Fatal(string(out))
				}
			} else {
				ethernet.Plug(t, 1, false)
			}
			startOnHosts(t, hosts, "LIGHTPATH_TIMEOUT=60s", "LIGHTPATH_HEARTBEAT=2s", "LIGHTPATH_PLANES=3",
				"NCCL_SOCKET_IFNAME=e0,e1,e2")
			before := ethernet.Sent(t, 1, 2)
			if !shimtest.Eventually(func() bool { return ethernet.Sent(t, 1, 2) > before+1<<20 }) {
				t.Error("the calls do not use plane 2")
			}
			if !off {
				ethernet.Plug(t, 1, true)
				before = ethernet.Sent(t, 1, 1)
				if !shimtest.Eventually(func() bool { return ethernet.Sent(t, 1, 1) > before+1<<20 }) {
					t.Error("the calls do not use plane 1 again")
				}
			}
		})
	}
}

// TestCableOfOneHost cuts one plane of one of three hosts, without failover. Each rank's error begins with that plane
// and host, whichever rank gives up first.
func TestCableOfOneHost(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]string{"carrier": "interface e1 has no carrier; ",
		"silent": "no answer from its host, between it and ranks 0-1; "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts, ethernet := shimtest.NewHosts(t, 3, 2)
			ranks := startOnHosts(t, hosts, "LIGHTPATH_TIMEOUT=6s", "LIGHTPATH_HEARTBEAT=0")
			ethernet.Cut(t, 2, 1, name == "silent")
			for r, p := range ranks {
				if s := <-p.LastLine; !strings.Contains(s, " shim: plane 1 of rank 2 (") || !strings.Contains(s, seen) {
					t.Errorf("rank %d says %q", r, s)
				}
				assert.NoError(t, p.Wait())
			}
		})
	}
}

// startOnHosts starts a rank on each host and returns when all have made calls.
func startOnHosts(t *testing.T, hosts []string, env ...string) []*shimtest.RankProcess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ranks := make([]*shimtest.RankProcess, len(hosts))
	for r, host := range hosts {
		cmd := exec.Command("ip", "netns", "exec", host, exe)
		cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=rank", fmt.Sprintf("LP_TEST_RANK=%d %d", r, len(hosts)),
			"NCCL_COMM_ID=10.77.0.1:4711", "NCCL_SOCKET_IFNAME=e0,e1", "LIGHTPATH_TRANSPORT=tcp", "LIGHTPATH_PLANES=2")
		cmd.Env = append(cmd.Env, env...)
		ranks[r] = shimtest.StartProcess(t, cmd)
	}
	shimtest.AwaitCalls(t, ranks)
	return ranks
}
