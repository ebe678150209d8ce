package shim

import (
	"bytes"
	"errors"
	"fmt"
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

// TestErrorsTravel: every kind of error keeps its kind on the way to other ranks.
func TestErrorsTravel(t *testing.T) {
	for _, row := range resultTable {
		class, text := encodeError(fmt.Errorf("here: %w", row.is))
		err := decodeError(&control.Message{Arg: class, Body: []byte(text)})
		if !errors.Is(err, row.is) || ResultOf(err) != row.to {
			t.Errorf("%v became %v", row.is, err)
		}
	}
	class, text := encodeError(errors.New("strange"))
	if err := decodeError(&control.Message{Arg: class, Body: []byte(text)}); ResultOf(err) != ResultInternalError {
		t.Error(err)
	}
}
