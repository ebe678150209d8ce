package recorder

import (
	"slices"
	"sync/atomic"
)

// Graph holds a communicator's launches in one capture on the direct path. No CPU takes part in a replay. So the first
// launch of a graph makes the device count replays in page-locked memory, with one small kernel. A reader of the flight
// recorder first enters the new replays. The word with the stream's present launch shows which launch is in progress.
type Graph struct {
	Capture uint64
	replays *uint32 // counted by the device
	current *uint32 // the launch that the rank's stream is in; nil for one rank
	failed  func() bool

	// Guarded by the recorder's lock:
	ops     []captured // in the order of their launches
	entered uint32     // replays
	first   uint64     // the first operation of the last one
	open    bool       // it was in progress when catchUp ran last
}

// captured is an operation of a launch in a graph.
type captured struct {
	launch uint32
	Called
}

// NewGraph returns the graph of a capture. A device counts its replays in a word. current is the launch that the rank's
// stream is in, nil for one rank.
func NewGraph(capture uint64, replays, current *uint32, failed func() bool) *Graph {
	return &Graph{Capture: capture, replays: replays, current: current, failed: failed}
}

// AddGraph makes the recorder count a graph's replays, until ForgetGraph.
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

// Captured records that the launch being put on streams is part of a graph: collectives, which are already recorded
// because other ranks may ask for them, and messages. The recorder counts replays, not the capture itself.
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

// catchUp enters the replays since its last run. Their times are the times of these runs. The caller holds f.mu. Hot
// path: no allocation after the first run.
func (g *Graph) catchUp(f *Recorder) {
	if len(g.ops) == 0 {
		return
	}
	fresh := atomic.LoadUint32(g.replays) - g.entered
	at := g.inProgress() // read it after the count, which may lack the launch in progress
	if fresh == 0 && !g.open && (at < 0 || g.ops[at].launch == g.ops[0].launch) {
		return // the stream is in the first launch: a new replay, which is counted now or in a moment
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

// inProgress returns the first operation of the launch that the stream is in, -1 if it is in no launch of the graph.
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

// settle ends operations of the last replay: those before index at, or all if at is -1.
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
