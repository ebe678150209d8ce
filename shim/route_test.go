package shim_test

import (
	"testing"

	"lightpath/shim"
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
		want               shim.Path
	}{
		{sum, peers, false, false, shim.Peer}, {send, peers, true, false, shim.Peer}, {put, peers, false, false, shim.Host},
		{named, peers, true, false, shim.Staged}, {sum, ports, false, false, shim.NIC},
		{named, ports, false, false, shim.Host},
		{sum, circuits, true, true, shim.NIC}, {sum, circuits, true, false, shim.Staged},
		{send, circuits, false, false, shim.Host},
		{sum, foreign, true, false, shim.Foreign}, {sum, foreign, false, false, shim.Host},
		{sum, calls.Facts{}, true, false, shim.Staged}, {sum, calls.Facts{}, false, false, shim.Host},
	} {
		if got := shim.Route(&c.call, &c.facts, c.onDevice, c.scripted); got != c.want {
			t.Errorf("case %d: path %d, want %d", i, got, c.want)
		}
	}
}
