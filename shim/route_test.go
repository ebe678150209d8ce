package shim

import (
	"testing"

	"lightpath/shim/calls"
)

// TestRoute checks the table of paths in docs/design/communicator.md.
func TestRoute(t *testing.T) {
	sum, send, put := calls.Call{Kind: calls.AllReduce}, calls.Call{Kind: calls.Send}, calls.Call{Kind: calls.PutSignal}
	named := calls.Call{Kind: calls.AllReduce, Options: calls.Options{Planes: 1}}
	peers, ports := calls.Facts{Launches: calls.ByPeers}, calls.Facts{Launches: calls.ByPorts}
	circuits, foreign := calls.Facts{Launches: calls.ByPortsOverCircuits}, calls.Facts{Foreign: true}
	for i, c := range []struct {
		call               calls.Call
		facts              calls.Facts
		onDevice, scripted bool
		want               Path
	}{
		{sum, peers, false, false, Peer}, {send, peers, true, false, Peer}, {put, peers, false, false, Host},
		{named, peers, true, false, Staged}, {sum, ports, false, false, NIC}, {named, ports, false, false, Host},
		{sum, circuits, true, true, NIC}, {sum, circuits, true, false, Staged}, {send, circuits, false, false, Host},
		{sum, foreign, true, false, Foreign}, {sum, foreign, false, false, Host},
		{sum, calls.Facts{}, true, false, Staged}, {sum, calls.Facts{}, false, false, Host},
	} {
		if got := Route(&c.call, &c.facts, c.onDevice, c.scripted); got != c.want {
			t.Errorf("case %d: path %d, want %d", i, got, c.want)
		}
	}
}
