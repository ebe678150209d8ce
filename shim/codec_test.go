package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
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

// FuzzHello: a table decodes to what was encoded, or not at all.
func FuzzHello(f *testing.F) {
	good, _ := json.Marshal([]hello{{Rank: 1, Ranks: 2, Name: "a", Version: Version}})
	f.Add(good)
	f.Add([]byte(`[{"rank":1e9}]`))
	f.Add([]byte(`{"unknown":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var table []hello
		if control.DecodeStrict(in, &table) != nil {
			return
		}
		text, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		var again []hello
		if err := control.DecodeStrict(text, &again); err != nil || !reflect.DeepEqual(again, table) && len(table) > 0 {
			t.Fatalf("%s became %+v, %v", in, again, err)
		}
	})
}

// FuzzID: an id is refused or gives back what it was made from.
func FuzzID(f *testing.F) {
	id := makeID(netip.MustParseAddrPort("[2001:db8::1]:4000"), control.Secret{1, 2})
	f.Add(id[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		var id UniqueID
		copy(id[:], in)
		addr, s, err := parseID(&id)
		if err == nil && makeID(addr, s) != id {
			t.Fatalf("% x is not what %v makes", id, addr)
		}
	})
}

func TestIDRoundTrip(t *testing.T) {
	for _, text := range []string{"127.0.0.1:80", "10.1.2.3:65535", "[2001:db8::1]:1"} {
		want := netip.MustParseAddrPort(text)
		id := makeID(want, control.Secret{5})
		got, s, err := parseID(&id)
		if err != nil || got != want || s != (control.Secret{5}) {
			t.Errorf("%s: %v %v %v", text, got, s, err)
		}
		for i := range id {
			id[i] ^= 0x40
			if _, _, err := parseID(&id); !errors.Is(err, ErrInvalidArgument) {
				t.Fatalf("byte %d changed: %v", i, err)
			}
			id[i] ^= 0x40
		}
	}
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
