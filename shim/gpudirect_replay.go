package shim

import (
	"sync/atomic"

	"lightpath/shim/calls"
	"lightpath/shim/device"
)

// gdrReplay is a launch in a graph, whose replays the flight recorder and the metrics count like calls: the graph tells where it begins and
// ends, as it tells of messages. It lives as long as the graph, whose replays follow each other.
type gdrReplay struct {
	x     *gpuDirect
	first uintptr // numbers of its places
	last  uintptr
	called
	flight atomic.Uint64 // of the replay in progress
}

// replayBegins and replayEnds are its places on the stream.
type (
	replayBegins struct{ r *gdrReplay }
	replayEnds   struct{ r *gdrReplay }
)

func (p replayBegins) come() { p.r.flight.Store(flightOf(p.r.x.c).replayed(p.r)) }

func (p replayEnds) come() {
	c, how := p.r.x.c, completed
	if c.Failed() {
		how = failed
	}
	flightOf(c).end(p.r.flight.Load(), how)
}

// replayOf is replay for a script that is about to go into a graph.
func (x *gpuDirect) replayOf(p *issuing) (*gdrReplay, error) {
	return x.replay(p.capture, called{shape: calls.ShapeOf(p.call), entry: p.e.entry})
}

// replay has a launch's replays recorded for as long as the graph lives.
func (x *gpuDirect) replay(capture device.Capture, what called) (*gdrReplay, error) {
	r := &gdrReplay{x: x, called: what}
	r.first, r.last = gdrPlaces.add(replayBegins{r}), gdrPlaces.add(replayEnds{r})
	if err := keepsakes.keep(capture, func() { gdrPlaces.drop(r.first, r.last) }); err != nil {
		return nil, err
	}
	return r, nil
}

// begin has a stream tell that a replay begins, if anybody is to be told.
func (r *gdrReplay) begin(s device.Stream) error {
	if r == nil {
		return nil
	}
	return device.Active().Signal(s, gdrToken|r.first)
}

// end has it tell that the replay is over.
func (r *gdrReplay) end(s device.Stream) error {
	if r == nil {
		return nil
	}
	return device.Active().Signal(s, gdrToken|r.last)
}

// replayed records a replay that begins. It has no number among the collectives: streams come to replays in an order of their own, so ranks would
// count differently. Hot path: no allocation after the first.
func (f *recorder) replayed(r *gdrReplay) uint64 {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	op := f.next(now)
	op.replay = true
	r.describe(op)
	f.tally(&r.called, 1)
	return op.number
}

// isCollective reports whether the operation has a collective's shape.
func (o *flown) isCollective() bool { return o.seq > 0 || o.replay && o.messages == 0 }
