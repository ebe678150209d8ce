package recorder

import (
	"slices"
	"sync/atomic"
)

// Graph is one capture's part of a communicator's launches on the direct path. No CPU takes part in a replay. So the
// first launch of a graph makes the device count replays in page-locked memory, with one small kernel. A reader of the
// flight recorder first enters the replays that were added. The word that says which launch the stream is in also says
// which launch is in progress.
type Graph struct {
	Capture uint64
	replays *uint32 // counted by the device
	current *uint32 // the launch that the rank's stream is in; nil for one rank
	failed  func() bool

	// Guarded by the recorder's lock:
	ops     []captured // in the order of their launches
	entered uint32     // replays
	first   uint64     // the first operation of the last one
	open    bool       // it was in progress at the last look
}

// captured is an operation of a launch in a graph.
type captured struct {
	launch uint32
	Called
}

// NewGraph returns what a capture has. A device counts its replays in a word; current, nil for one rank, is the launch
// that the rank's stream is in.
func NewGraph(capture uint64, replays, current *uint32, failed func() bool) *Graph {
	return &Graph{Capture: capture, replays: replays, current: current, failed: failed}
}

// AddGraph has the recorder look after a graph, until forgetGraph.
func (f *Recorder) AddGraph(g *Graph) {
	f.mu.Lock()
	f.device.graphs = append(f.device.graphs, g)
	f.mu.Unlock()
}

// ForgetGraph ends the counting of replays of a graph.
func (f *Recorder) ForgetGraph(g *Graph) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	f.device.graphs = slices.DeleteFunc(f.device.graphs, func(other *Graph) bool { return other == g })
}

// Captured says that what is being put on streams is a launch in a graph: collectives, which have been recorded since
// other ranks may ask what was called, and messages. Replays are counted, and that something was captured is not.
func (f *Recorder) Captured(g *Graph, collectives []uint64, launch uint32, messages MessageCount) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range collectives {
		if op := f.at(n); op.Number == n {
			what := Called{Shape: op.Shape, Entry: op.Entry}
			g.ops = append(g.ops, captured{launch, what})
			f.tally(&what, -1)
		}
	}
	if what := (Called{MessageCount: messages}); what.isGroup() {
		g.ops = append(g.ops, captured{launch, what})
	}
}

// catchUp enters the replays since the last time, with the times of the looks. f.mu is held. Hot path: no allocation
// after the first, little without a replay.
func (g *Graph) catchUp(f *Recorder) {
	if len(g.ops) == 0 {
		return
	}
	fresh := atomic.LoadUint32(g.replays) - g.entered
	at := g.inProgress() // after: the launch in progress may not have been counted
	if fresh == 0 && !g.open && (at < 0 || g.ops[at].launch == g.ops[0].launch) {
		return // in the first launch it is, or will be in a moment, a new replay
	}
	now := f.clock()
	if fresh > 0 {
		g.settle(f, -1, now)
		g.entered += fresh
		for i := range g.ops {
			f.tally(&g.ops[i].Called, int64(fresh))
		}
		for range min(uint64(fresh), f.Size/uint64(len(g.ops))+1) { // more it does not remember
			g.first = f.last + 1
			for i := range g.ops {
				op := f.next(now)
				g.ops[i].describe(op)
				op.Replay, op.Ended, op.Outcome = true, now, Completed
			}
		}
	}
	g.settle(f, at, now)
}

// inProgress is the first operation of the launch that the stream is in, -1 where it is in none of the graph.
func (g *Graph) inProgress() int {
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
func (g *Graph) settle(f *Recorder, at int, now int64) {
	if g.open = at >= 0 && g.first > 0; g.first == 0 {
		return
	}
	how := Completed
	if g.failed() {
		how = Failed
	}
	for i := range g.ops {
		op := f.at(g.first + uint64(i))
		switch {
		case op.Number != g.first+uint64(i):
		case at >= 0 && i >= at:
			op.Outcome, op.Ended = UnderWay, 0
		case op.Outcome == UnderWay:
			op.Outcome, op.Ended = how, now
		}
	}
}
