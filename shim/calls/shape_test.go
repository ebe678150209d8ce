package calls

import (
	"errors"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// TestShapeCodec checks that a shape survives its encoding, and that damaged encodings are refused.
func TestShapeCodec(t *testing.T) {
	s := Shape{
		Kind: Reduce, Type: datatype.Float16, Op: OpPreMulSum, Root: 3, Count: 1 << 40, Whole: 1 << 41, Scripted: true,
		Request: Request{DigestPrefix{0xabc << 52, 3}, 5},
	}
	got, err := DecodeShape(AppendShape(nil, &s), 4)
	if err != nil || got != s {
		t.Errorf("%+v, %v", got, err)
	}
	for name, b := range map[string][]byte{
		"short":   AppendShape(nil, &s)[1:],
		"root":    AppendShape(nil, &Shape{Kind: Reduce, Root: 4, Count: 1}),
		"kind":    AppendShape(nil, &Shape{Kind: Send, Count: 1}),
		"type":    AppendShape(nil, &Shape{Type: datatype.NumTypes, Count: 1}),
		"nothing": AppendShape(nil, &Shape{}),
		"count":   AppendShape(nil, &Shape{Count: 1 << 63}),
	} {
		if _, err := DecodeShape(b, 4); !errors.Is(err, control.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestResolveOneSided: one-sided calls on streams are resolved like others. Only a put has a buffer, which it sends.
func TestResolveOneSided(t *testing.T) {
	for kind := PutSignal; kind < EndOfKinds; kind++ {
		c := Call{Comm: &comm.Core{Identity: comm.Identity{Ranks: 2}}, Kind: kind, Count: 1, Type: datatype.Float32}
		if err := c.Resolve(); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
		want := map[Kind]int64{PutSignal: 4}[kind]
		if send, recv := c.Extents(); send != want || recv != 0 {
			t.Errorf("%v: buffers of %d and %d bytes", kind, send, recv)
		}
	}
}
