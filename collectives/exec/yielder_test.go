package exec

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestYielder checks that waits yield until a yield takes long, then sleep at once for a while, and then yield again.
func TestYielder(t *testing.T) {
	var y Yielder
	if !y.Begin() || !y.took(LongYield-1) || !y.Begin() {
		t.Error("short yields end the yields")
	}
	for range 2 {
		if y.took(LongYield + time.Microsecond) {
			t.Error("the wait goes on to yield after a long yield")
		}
		for i := range SleepWaits {
			if y.Begin() {
				t.Fatalf("wait %d after a long yield yields", i)
			}
		}
		if !y.Begin() {
			t.Errorf("the ranks do not yield again after %d waits", SleepWaits)
		}
	}
}

// TestSleepsWithoutYields checks that Run sleeps as soon as it has spun, in the waits after a long yield.
func TestSleepsWithoutYields(t *testing.T) { synctest.Test(t, testSleepsWithoutYields) }

func testSleepsWithoutYields(t *testing.T) {
	y := Yielder{sleeps: 2}
	s := &standstills{rounds: []int{100, 15, 100, 100, 0}}
	if err := s.run(t, &Options{Spin: 20, Yield: 30, Yielder: &y}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{20 + 2, -1, 20 + 2, 20 + 30 + 2} { // the round after Arm is one more
		if s.sleeps[i] != want {
			t.Errorf("standstill %d: first sleep after %d polls, want %d", i, s.sleeps[i], want)
		}
	}
}
