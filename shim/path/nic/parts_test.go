package nic

import (
	"testing"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/stream"
)

// TestPartsCoverMessage checks that the lanes' parts of a message follow each other from its first byte to its last.
func TestPartsCoverMessage(t *testing.T) {
	address := uintptr(1) << 40 // of no object: nothing reads there
	memory := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	for lanes := int64(1); lanes <= 9; lanes++ {
		x := &Path{c: &comm.Core{}, in: &stream.Issuer{Options: stream.Options{Lanes: int(lanes)}}}
		for _, parts := range []int64{leastPart, 1 << 31} {
			for more := range lanes * calls.PieceAlign {
				m := message{Transfer: stream.Transfer{At: memory, Bytes: lanes*parts + more, Peer: 1}}
				next := int64(0)
				for j := range int(lanes) {
					p := x.partOf(&m, j)
					if p.Bytes > 0 && uintptr(p.At)-uintptr(m.At) != uintptr(next) || p.Bytes < 0 {
						t.Fatalf("%d bytes on %d lanes: lane %d has %d bytes, want byte %d at first", m.Bytes, lanes, j, p.Bytes, next)
					}
					next += p.Bytes
				}
				if next != m.Bytes {
					t.Fatalf("%d lanes move %d of %d bytes", lanes, next, m.Bytes)
				}
			}
		}
	}
}
