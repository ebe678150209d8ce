package onesided

import (
	"testing"

	"lightpath/collectives/sharedmem/memfile"
)

func FuzzSideMessage(f *testing.F) {
	var b [sideMessageBytes]byte
	for _, m := range []message{{kind: sideJoin, window: 3}, {kind: sideOpen}, {kind: sidePut, flags: sideFlags, window: 1,
		offset: 2, bytes: 3}, {kind: sideSignal}} {
		m.encode(&b)
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < sideMessageBytes {
			return
		}
		var m message
		in := [sideMessageBytes]byte(data)
		var out [sideMessageBytes]byte
		if m.decode(&in) == nil {
			if m.encode(&out); out != in {
				t.Errorf("% x comes back as % x", in, out)
			}
		}
	})
}

func FuzzSideAnswer(f *testing.F) {
	var b [sideAnswerBytes]byte
	for _, a := range []answer{{gone: true}, {size: 1, at: memfile.Place{PID: 2, FD: -1, Dev: 4, Ino: 5, Offset: 6}}} {
		a.encode(&b)
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < sideAnswerBytes {
			return
		}
		var a answer
		in := [sideAnswerBytes]byte(data)
		var out [sideAnswerBytes]byte
		if a.decode(&in) == nil {
			if a.encode(&out); out != in {
				t.Errorf("% x comes back as % x", in, out)
			}
		}
	})
}
