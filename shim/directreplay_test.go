package shim

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/flight"
)

// TestDirectReplays: each replay of a graph is counted, and its operations are in the flight recorder, in progress while the stream is in their
// launch; that they were captured is not. One rank's device counts, too.
func TestDirectReplays(t *testing.T) {
	for _, n := range []int{1, 2} {
		g := usePeers(t, n, 1)
		w := newWorld(t, n)
		const count = 3000
		graphs := make([]*devicetest.Graph, n)
		for r, c := range w.comms {
			at := g.Memory(r, count)
			base := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at, Stream: g.streams[r][0]}
			if err := Run([]calls.Call{base}); err != nil {
				t.Fatal(err)
			}
			send, recv := base, base
			send.Kind, send.Peer, recv.Kind, recv.Peer = calls.Send, int32(n-1-r), calls.Recv, int32(n-1-r)
			g.Capture(g.streams[r][0])
			if err := errors.Join(Run([]calls.Call{base}), Run([]calls.Call{send, recv})); err != nil {
				t.Fatal(err)
			}
			graphs[r] = g.End(g.streams[r][0])
		}
		all := func() error {
			var errs []error
			for r := range n {
				errs = append(errs, g.synchronize(r))
			}
			return errors.Join(errs...)
		}
		if err := all(); err != nil {
			t.Fatal(err)
		}
		f := flightOf(w.comms[0])
		if got := f.glance().counts; got[calls.AllReduce] != 1 || got[calls.Send] != 0 {
			t.Errorf("counted %v where one AllReduce has run", got)
		}
		g.Replay(graphs[0], g.streams[0][0])
		for n > 1 && !f.glance().running { // rank 1 has not come
			if err := w.comms[0].AsyncError(); err != nil {
				t.Fatal(err)
			}
		}
		if n > 1 {
			if op := f.glance().op; !op.replay || op.shape.Kind != calls.AllReduce || op.shape.Count != count || op.seq != 0 {
				t.Errorf("in progress: %+v", op)
			}
			g.Replay(graphs[1], g.streams[1][0])
		}
		for range 2 {
			for r := range n {
				g.Replay(graphs[r], g.streams[r][0])
			}
		}
		if err := all(); err != nil {
			t.Fatal(err)
		}
		for r, c := range w.comms {
			seen := flightOf(c).glance()
			if got := seen.counts; got[calls.AllReduce] != 4 || got[calls.Send] != 3 || got[calls.Recv] != 3 || seen.groups != 3 || seen.running {
				t.Errorf("%d ranks, rank %d: counted %v, %d groups, running %v", n, r, got, seen.groups, seen.running)
			}
			checkReplays(t, c, 3)
		}
		for _, graph := range graphs {
			g.Discard(graph)
		}
		for _, c := range w.comms {
			if left := len(flightOf(c).device.graphs); left != 0 {
				t.Errorf("the recorder looks after %d graphs that are gone", left)
			}
		}
		destroyAll(w)
	}
}

// checkReplays expects replays of an AllReduce and of two messages in the dump, all over.
func checkReplays(t *testing.T, c *Comm, replays int) {
	t.Helper()
	d, err := flightRecord(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	ops := slices.DeleteFunc(d.Operations, func(o flight.Operation) bool { return o.Seq != 0 })
	if len(ops) != 2*replays {
		t.Fatalf("%d operations of replays", len(ops))
	}
	for i, o := range ops {
		want := [2]string{"AllReduce", "Send/Recv"}[i%2]
		if o.Call != want || o.Outcome != flight.Completed || o.Ended < o.Arrived || o.Arrived == 0 {
			t.Errorf("operation %d: %+v", i, o)
		}
	}
}

// TestDirectReplayLooks: whatever moment somebody looks at, each replay is counted once, and in the end none is in progress.
func TestDirectReplayLooks(t *testing.T) {
	var replays, current uint32
	f := &recorder{}
	f.setUp(minFlown)
	g := &directGraph{replays: &replays, current: &current, failed: func() bool { return false }}
	for launch := uint32(7); launch < 9; launch++ {
		g.ops = append(g.ops, directCaptured{launch: launch, called: called{shape: calls.Shape{Kind: calls.AllReduce}}})
	}
	f.addGraph(g)
	// What the device does in a replay, in its order.
	steps := []func(){
		func() { atomic.StoreUint32(&current, 7) }, func() { replays++ }, func() { atomic.StoreUint32(&current, 0) },
		func() { atomic.StoreUint32(&current, 8) }, func() { atomic.StoreUint32(&current, 0) },
	}
	running := []int{-1, 7, 0, 8, 0} // the launch that is in progress after each; -1: who looks cannot tell
	over := []int{0, 0, 0, 1, 0}     // operations of its replay that are over while one is
	const rounds = 200
	var seen glance
	for round := range rounds {
		for k, step := range steps {
			step()
			if round>>k&1 == 0 && round != rounds-1 {
				continue
			}
			before := seen
			seen = f.glance()
			same := seen.counts == before.counts && !before.running // nobody can see the replay that has begun
			if want := running[k]; want >= 0 && seen.running != (want > 0) || want < 0 && seen.running && same {
				t.Fatalf("round %d, step %d: running %v", round, k, seen.running)
			}
			if seen.running && running[k] > 0 && f.at(f.last).outcome != underWay || f.at(f.last-1).outcome == underWay != (seen.running && over[k] == 0) {
				t.Fatalf("round %d, step %d: %v and %v", round, k, f.at(f.last-1).outcome, f.at(f.last).outcome)
			}
			if seen.counts[calls.AllReduce] != 2*uint64(replays) {
				t.Fatalf("round %d, step %d: %d counted of %d replays", round, k, seen.counts[calls.AllReduce], replays)
			}
		}
	}
	for n := f.last; n > 0 && n+f.size > f.last; n-- {
		if op := f.at(n); op.outcome != completed {
			t.Errorf("operation %d of %d is not over", n, f.last)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, step := range steps {
			step()
			f.notice()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
