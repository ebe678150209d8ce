package tcp

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestJournal checks a journal against a plain stream, with random lent and copied bytes.
func TestJournal(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var j journal
	var stream, given []byte
	for range 3000 {
		switch rng.IntN(4) {
		case 0:
			j.trim(j.base + uint64(rng.IntN(int(j.end-j.base)+1)))
		case 1:
			j.own()
			clear(given) // lent bytes belong to the caller again
			given = nil
		default:
			b := make([]byte, rng.IntN(20000))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			stream = append(stream, b...)
			lend := rng.IntN(2) == 0
			j.add(b, lend)
			if !lend {
				clear(b)
			} else if given == nil {
				given = b
			}
		}
		at := j.base
		for at < j.end {
			b := j.from(at)
			if len(b) == 0 || !bytes.Equal(b, stream[at:at+uint64(len(b))]) {
				t.Fatalf("wrong bytes from %d", at)
			}
			at += uint64(len(b))
		}
		if j.end != uint64(len(stream)) {
			t.Fatalf("end %d of %d", j.end, len(stream))
		}
	}
}
