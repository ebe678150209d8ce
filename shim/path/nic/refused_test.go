package nic_test

import (
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/path/nic"
	"lightpath/shim/shimtest"
)

// TestGPUDirectRefusedWhole checks that no call of a group has an effect if one is refused.
func TestGPUDirectRefusedWhole(t *testing.T) {
	const count = 1000
	g := shimtest.UseGPUDirect(t, 2, 1, 1)
	w := shimtest.NewWorld(t, 2)
	valid := func(r int) calls.Call {
		at := g.Memory(r, count)
		return calls.Call{Comm: w.Comms[r], Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at,
			Stream: g.Streams[r][0]}
	}
	unmatched, short := valid(0), valid(0)
	unmatched.Kind = calls.Send
	short.Send = unsafe.Add(short.Send, count/2)
	short.Recv = short.Send
	for _, wrong := range []calls.Call{unmatched, short} {
		if err := shim.Run([]calls.Call{valid(0), wrong}); err == nil {
			t.Errorf("%v is not refused", wrong.Kind)
		}
		if n := nic.Calls(nic.Of(w.Comms[0])); n != 0 {
			t.Errorf("%d collectives have begun", n)
		}
	}
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{valid(c.Rank)}) })
	for r := range w.Comms {
		require.NoError(t, g.SynchronizeRank(r))
	}
	shimtest.DestroyAll(w)
}
