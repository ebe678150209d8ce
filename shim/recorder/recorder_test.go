package recorder

import (
	"testing"

	"lightpath/shim/calls"
)

// TestRecorder holds the ring against a list of everything.
func TestRecorder(t *testing.T) {
	var f Recorder
	f.setUp(1)
	if f.Size != Least {
		t.Fatalf("size %d", f.Size)
	}
	for seq := uint64(1); seq <= 5*Least; seq++ {
		s := calls.Shape{Kind: calls.Kind(seq % uint64(calls.Send)), Count: seq}
		n := f.Add(seq, &s, nil)
		if got, ok := f.Find(seq); !ok || got != s || !f.Snapshot().Running {
			t.Fatalf("%d: %+v %v", seq, got, ok)
		}
		f.End(n, Completed)
		if f.Snapshot().Running {
			t.Fatalf("%d is still running", seq)
		}
		if _, ok := f.Find(seq + 1); ok {
			t.Fatal("found what is to come")
		}
		for back := range seq {
			if _, ok := f.Find(seq - back); ok != (back < Least) {
				t.Fatalf("%d of %d: found %v", seq-back, seq, ok)
			}
		}
	}
	if _, ok := f.Find(0); ok {
		t.Error("found operation 0")
	}
}

// TestRecorderAllocatesNothing: once it has begun.
func TestRecorderAllocatesNothing(t *testing.T) {
	var f Recorder
	f.setUp(256)
	s := calls.Shape{Kind: calls.AllReduce}
	seq := uint64(0)
	if n := testing.AllocsPerRun(1000, func() { seq++; f.End(f.Add(seq, &s, nil), Completed) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRecorder is what an operation pays.
func BenchmarkRecorder(b *testing.B) {
	for name, n := range map[string]int{"on": 256, "off": 0} {
		b.Run(name, func(b *testing.B) {
			var f Recorder
			f.setUp(n)
			s := calls.Shape{Kind: calls.AllReduce}
			for i := range b.N {
				f.End(f.Add(uint64(i+1), &s, nil), Completed)
			}
		})
	}
}
