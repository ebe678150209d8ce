package shim

import (
	"slices"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// directGraph is what one capture has of a communicator's launches on the direct path. No CPU hears of a replay, so the first of them has the
// device count it, in page-locked memory, and whoever looks into the flight recorder enters what has been added: one
// small kernel for all launches of a graph. The word that says which launch the stream is in says which of them is in progress.
type directGraph struct {
	capture uint64
	room    memory.Pinned
	replays *uint32 // counted by the device
	current *uint32 // the launch that the rank's stream is in; nil for one rank
	failed  func() bool

	// Guarded by the recorder's lock:
	ops     []directCaptured // in the order of their launches
	entered uint32           // replays
	first   uint64           // the first operation of the last one
	open    bool             // it was in progress when somebody looked
}

// directCaptured is an operation of a launch in a graph.
type directCaptured struct {
	launch uint32
	called
}

// count puts the kernel that counts a graph's replays ahead of what its first launch does.
func (x *direct) count() error {
	if x.capture.ID == 0 || x.graph != nil && x.graph.capture == x.capture.ID {
		return nil
	}
	d, f := onDeviceOf(x.c), flightOf(x.c)
	r, err := d.lock(2 * memory.WordSize)
	if err != nil {
		return err
	}
	g := &directGraph{capture: x.capture.ID, room: r, replays: r.Word(), failed: func() bool { return x.c.Failed() }}
	if x.page != nil {
		g.current = &x.page.rank(x.me).current
	}
	one := unsafe.Add(r.At, memory.WordSize)
	atomic.StoreUint32(g.replays, 0)
	*(*uint32)(one) = 1
	if err := keepsakes.keep(x.capture, func() {
		f.forgetGraph(g)
		d.locked.Add(-int64(r.Size))
		memory.Unpin(r)
	}); err != nil {
		return err
	}
	x.graph = g
	f.addGraph(g)
	x.kernel = device.Reduction{Dst: r.At, N: 2, Count: 1, Type: datatype.Uint32, Op: datatype.Sum}
	x.kernel.Sources[0], x.kernel.Sources[1] = r.At, one
	return x.combine()
}

// addGraph has the recorder look after a graph, until forgetGraph.
func (f *recorder) addGraph(g *directGraph) {
	f.mu.Lock()
	f.device.graphs = append(f.device.graphs, g)
	f.mu.Unlock()
}

func (f *recorder) forgetGraph(g *directGraph) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	f.device.graphs = slices.DeleteFunc(f.device.graphs, func(other *directGraph) bool { return other == g })
}

// captured says that what is being put on streams is a launch in a graph: collectives, which have been recorded since other ranks may ask what was
// called, and messages. Replays are counted, and that something was captured is not.
func (f *recorder) captured(g *directGraph, collectives []uint64, launch uint32, messages messageCount) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range collectives {
		if op := f.at(n); op.number == n {
			what := called{shape: op.shape, entry: op.entry}
			g.ops = append(g.ops, directCaptured{launch, what})
			f.tally(&what, -1)
		}
	}
	if what := (called{messageCount: messages}); what.isGroup() {
		g.ops = append(g.ops, directCaptured{launch, what})
	}
}

// catchUp enters the replays since the last time. Times are those at which somebody looks. f.mu is held.
// Hot path: no allocation after the first, little where nothing has been replayed.
func (g *directGraph) catchUp(f *recorder) {
	if len(g.ops) == 0 {
		return
	}
	fresh := atomic.LoadUint32(g.replays) - g.entered
	at := g.inProgress() // after: what is in progress now may not have been counted
	if fresh == 0 && !g.open && (at < 0 || g.ops[at].launch == g.ops[0].launch) {
		return // in the first launch it is, or will be in a moment, a new replay
	}
	now := f.clock()
	if fresh > 0 {
		g.settle(f, -1, now)
		g.entered += fresh
		for i := range g.ops {
			f.tally(&g.ops[i].called, int64(fresh))
		}
		for range min(uint64(fresh), f.size/uint64(len(g.ops))+1) { // more it does not remember
			g.first = f.last + 1
			for i := range g.ops {
				op := f.next(now)
				g.ops[i].describe(op)
				op.replay, op.ended, op.outcome = true, now, completed
			}
		}
	}
	g.settle(f, at, now)
}

// inProgress is the first operation of the launch that the stream is in, -1 where it is in none of the graph.
func (g *directGraph) inProgress() int {
	if g.current == nil {
		return -1
	}
	at := atomic.LoadUint32(g.current)
	first, last := g.ops[0].launch, g.ops[len(g.ops)-1].launch
	if at == 0 || at-first > last-first {
		return -1
	}
	for i := range g.ops {
		if g.ops[i].launch == at {
			return i
		}
	}
	return -1
}

// settle says of the last replay's operations which are over: those before that at, or all of them.
func (g *directGraph) settle(f *recorder, at int, now int64) {
	if g.open = at >= 0 && g.first > 0; g.first == 0 {
		return
	}
	how := completed
	if g.failed() {
		how = failed
	}
	for i := range g.ops {
		op := f.at(g.first + uint64(i))
		switch {
		case op.number != g.first+uint64(i):
		case at >= 0 && i >= at:
			op.outcome, op.ended = underWay, 0
		case op.outcome == underWay:
			op.outcome, op.ended = how, now
		}
	}
}
