package shim

import (
	"bytes"
	"errors"
	"testing"

	"lightpath/plans/circuit"
	"lightpath/shim/control"
)

func FuzzTicket(f *testing.F) {
	f.Add(appendTicket(nil, &ticket{flags: ticketInterim, version: 3, use: 3, start: 1 << 60, planes: []planeTicket{{epoch: 1, hash: 2}, {epoch: 3, hash: 4}}}))
	ring := circuit.Shift(3, 1)
	f.Add(appendTicket(nil, &ticket{flags: ticketMaps, version: 3, use: 2, planes: []planeTicket{{}, {epoch: 1, hash: ring.Digest(), maps: ring}}}))
	f.Add(appendTicket(nil, &ticket{flags: ticketPacket, planes: make([]planeTicket, 2)}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, in []byte) {
		var got ticket
		if err := decodeTicket(in, &got); err != nil {
			if !errors.Is(err, control.ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		if out := appendTicket(nil, &got); !bytes.Equal(out, in) {
			t.Fatalf("% x became % x", in, out)
		}
	})
}
