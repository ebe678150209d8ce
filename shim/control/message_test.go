package control

import (
	"bytes"
	"testing"
)

// FuzzMessage: what decodes is what was encoded, and a length never makes us read or
// allocate beyond the bound of its kind.
func FuzzMessage(f *testing.F) {
	f.Add(Append(nil, &Message{Kind: MsgWant, From: 3, Seq: 7, Arg: 9, Body: []byte("call")}))
	f.Add(Append(nil, &Message{Kind: MsgGoodbye}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, byte(MsgState), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		var m Message
		if err := Read(bytes.NewReader(in), &m); err != nil {
			return
		}
		if uint32(len(m.Body)) > MaxBody(m.Kind) {
			t.Fatalf("body of %d bytes", len(m.Body))
		}
		if out := Append(nil, &m); !bytes.Equal(out, in[:len(out)]) {
			t.Fatalf("% x became % x", in, out)
		}
	})
}
