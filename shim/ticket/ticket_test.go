package ticket

import (
	"bytes"
	"errors"
	"testing"

	"lightpath/plans/circuit"
	"lightpath/shim/control"
)

func FuzzTicket(f *testing.F) {
	f.Add(Append(nil, &Ticket{Flags: Interim, Version: 3, Use: 3,
		Planes: []Plane{{Epoch: 1, Hash: 2}, {Epoch: 3, Hash: 4}}}))
	ring := circuit.Shift(3, 1)
	f.Add(Append(nil, &Ticket{Flags: Maps, Version: 3, Use: 2,
		Planes: []Plane{{}, {Epoch: 1, Hash: ring.Digest(), Maps: ring}}}))
	f.Add(Append(nil, &Ticket{Flags: Packet, Planes: make([]Plane, 2)}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, in []byte) {
		var got Ticket
		rest, err := Decode(in, &got)
		if err != nil {
			if !errors.Is(err, control.ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		if out := append(Append(nil, &got), rest...); !bytes.Equal(out, in) {
			t.Fatalf("% x became % x", in, out)
		}
	})
}
