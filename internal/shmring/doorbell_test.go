package shmring

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestRingDuringArmIsNotLost rings while the waiter arms. After both, the flag is still set or the count has moved;
// otherwise the next Wait would miss the ring.
func TestRingDuringArmIsNotLost(t *testing.T) {
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
			t.Fatalf("round %d: flag cleared and count unchanged at %d: the next Wait would miss the ring", i, seq)
		}
		d.Arm()
	}
}
