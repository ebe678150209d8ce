package recorder

import (
	"sync/atomic"
	"testing"

	"lightpath/shim/calls"
)

// TestDirectReplayLooks checks that each replay is counted once, whenever a reader looks, and that none is in progress
// at the end.
func TestDirectReplayLooks(t *testing.T) {
	var replays, current uint32
	f := &Recorder{}
	f.setUp(Least)
	g := &Graph{replays: &replays, current: &current, failed: func() bool { return false }}
	for launch := uint32(7); launch < 9; launch++ {
		g.ops = append(g.ops, captured{launch: launch, Called: Called{Shape: calls.Shape{Kind: calls.AllReduce}}})
	}
	f.AddGraph(g)
	// The device's operations in a replay, in order.
	steps := []func(){
		func() { atomic.StoreUint32(&current, 7) }, func() { replays++ }, func() { atomic.StoreUint32(&current, 0) },
		func() { atomic.StoreUint32(&current, 8) }, func() { atomic.StoreUint32(&current, 0) },
	}
	running := []int{-1, 7, 0, 8, 0} // the launch that is in progress after each; -1: who looks cannot tell
	over := []int{0, 0, 0, 1, 0}     // operations of its replay that are over while one is
	const rounds = 200
	var seen Snapshot
	for round := range rounds {
		for k, step := range steps {
			step()
			if round>>k&1 == 0 && round != rounds-1 {
				continue
			}
			before := seen
			seen = f.Snapshot()
			same := seen.Counts == before.Counts && !before.Running // no reader can see the replay that has begun
			if want := running[k]; want >= 0 && seen.Running != (want > 0) || want < 0 && seen.Running && same {
				t.Fatalf("round %d, step %d: running %v", round, k, seen.Running)
			}
			if seen.Running && running[k] > 0 && f.at(f.last).Outcome != UnderWay ||
				f.at(f.last-1).Outcome == UnderWay != (seen.Running && over[k] == 0) {
				t.Fatalf("round %d, step %d: %v and %v", round, k, f.at(f.last-1).Outcome, f.at(f.last).Outcome)
			}
			if seen.Counts[calls.AllReduce] != 2*uint64(replays) {
				t.Fatalf("round %d, step %d: %d counted of %d replays", round, k, seen.Counts[calls.AllReduce], replays)
			}
		}
	}
	for n := f.last; n > 0 && n+f.Size > f.last; n-- {
		if op := f.at(n); op.Outcome != Completed {
			t.Errorf("operation %d of %d is not over", n, f.last)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, step := range steps {
			step()
			f.Notice()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
