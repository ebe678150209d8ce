package stream_test

import (
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// TestRefusedOnHost checks that a refused call on host memory keeps no page-locked memory.
func TestRefusedOnHost(t *testing.T) {
	g := shimtest.UsePeers(t, 2, 1)
	c := shimtest.NewWorld(t, 2).Comms[0]
	data := make([]byte, 1<<20)
	refused := func() int64 {
		t.Helper()
		err := shim.Run([]calls.Call{{Comm: c, Kind: calls.Send, Type: datatype.Uint8, Count: uint64(len(data)),
			Send: unsafe.Pointer(&data[0])}})
		shimtest.WantError(t, err, errdefs.ErrInvalidUsage, "must receive in the same group")
		now, _ := g.Locked()
		return now
	}
	first := refused()
	for range 3 {
		if now := refused(); now > first {
			t.Fatalf("%d bytes are locked after another call, %d after the first", now, first)
		}
	}
}
