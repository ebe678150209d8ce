package shmring

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// A Ring in the middle of an Arm leaves the flag set, or the returned count out of date: else the next Wait would miss it.
func TestRingDuringArm(t *testing.T) {
	d, err := NewDoorbell(aligned(DoorbellSize))
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 200_000
	var begun, done atomic.Uint32
	go func() {
		for i := uint32(1); i <= rounds; i++ {
			for begun.Load() != i {
				runtime.Gosched()
			}
			d.Ring()
			done.Store(i)
		}
	}()
	d.Arm()
	for i := uint32(1); i <= rounds; i++ {
		begun.Store(i)
		seq := d.Arm()
		for done.Load() != i {
			runtime.Gosched()
		}
		if d.armed.Load() == 0 && d.seq.Load() == seq {
			t.Fatalf("round %d: nobody would ring", i)
		}
		d.Arm()
	}
}
