package ticket

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
)

func TestRowCodec(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	list := func(n int) []Message {
		l := make([]Message, n)
		for i := range l {
			l[i] = Message{Peer: 1 + rng.IntN(6), Number: rng.Uint64(), Bytes: rng.Int64N(maxRowMessage + 1)}
		}
		return l
	}
	for range 50 {
		r := Row{Sends: list(rng.IntN(5)), Recvs: list(rng.IntN(5))}
		got, err := DecodeRow(AppendRow(nil, &r), 0, 7)
		if err != nil || !reflect.DeepEqual(got, &r) {
			t.Fatalf("%+v became %+v, %v", r, got, err)
		}
	}
	large := Row{Sends: list(control.MaxRow / rowEntry)}
	if got, err := DecodeRow(AppendRow(nil, &large), 0, 7); err != nil || !got.Packet {
		t.Errorf("a row of %d messages: %v", len(large.Sends), err)
	}
	bad := AppendRow(nil, &Row{Sends: []Message{{Peer: 3}}})
	for name, b := range map[string][]byte{
		"short": bad[:rowHeader-1], "cut": bad[:len(bad)-1], "long": append(bad[:len(bad):len(bad)], 0),
	} {
		if _, err := DecodeRow(b, 0, 4); !errors.Is(err, control.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, self := range []int{3, 4} { // itself; beyond the communicator
		if _, err := DecodeRow(bad, self, 3+self%2); !errors.Is(err, control.ErrMessage) {
			t.Errorf("rank %d: %v", self, err)
		}
	}
}

func FuzzRow(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendRow(nil, &Row{Sends: []Message{{1, 2, 3}}, Recvs: []Message{{2, 1, 0}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRow(b, 0, 4)
		if err != nil {
			return
		}
		if again := AppendRow(nil, r); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func FuzzHolds(f *testing.F) {
	f.Add(EncodeHolds(3, &plans.Plan{Planner: "x", CCTUS: 3, Planes: [][]plans.Entry{
		{{Kind: plans.Reconfigure}, {Kind: plans.Hold, To: circuit.Permutation{1, 2, 0}, EndUS: 5}}, nil,
	}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodeHolds(b, 3, 2)
		if err != nil {
			return
		}
		for _, entries := range p.Planes {
			for _, e := range entries {
				if e.To.Validate(3) != nil || !(e.EndUS >= e.StartUS) {
					t.Fatalf("%+v", e)
				}
			}
		}
	})
}

// TestMatchRows checks which messages are in a round, for any order in which ranks list them.
func TestMatchRows(t *testing.T) {
	one := func(peer int, number uint64, bytes int64) Message { return Message{peer, number, bytes} }
	list := func(m ...Message) []Message { return m }
	for _, c := range []struct {
		name   string
		rows   []*Row
		pairs  []planning.Pair
		closed bool
		err    string
	}{
		{"nothing", []*Row{{}, {}}, nil, true, ""},
		{"several of a pair", []*Row{
			{Sends: list(one(1, 4, 10), one(2, 0, 1), one(1, 5, 0)), Recvs: list(one(2, 9, 3))},
			{Recvs: list(one(0, 4, 10), one(0, 5, 0))}, {Sends: list(one(0, 9, 3)), Recvs: list(one(0, 0, 1))},
		}, []planning.Pair{{Src: 0, Dst: 1, Bytes: 10}, {Src: 0, Dst: 2, Bytes: 1}, {Src: 2, Dst: 0, Bytes: 3}}, true, ""},
		{"receive elsewhere", []*Row{{Sends: list(one(1, 4, 10))}, {}}, nil, false, ""},
		{"send elsewhere", []*Row{{}, {Recvs: list(one(0, 4, 10))}}, nil, false, ""},
		{"another of the pair", []*Row{{Sends: list(one(1, 4, 10))}, {Recvs: list(one(0, 3, 10))}}, nil, false, ""},
		{"size", []*Row{{Sends: list(one(1, 4, 10))}, {Recvs: list(one(0, 4, 11))}}, nil, false,
			"rank 0 sends 10 bytes, rank 1 receives 11"},
	} {
		pairs, closed, err := Match(c.rows)
		if c.err != "" {
			if !errors.Is(err, errdefs.ErrMismatch) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || closed != c.closed || closed && !reflect.DeepEqual(pairs, c.pairs) {
			t.Errorf("%s: %v, %v, %v", c.name, pairs, closed, err)
		}
	}
}
