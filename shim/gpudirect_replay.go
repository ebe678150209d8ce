package shim

import (
	"sync/atomic"

	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/recorder"
)

// gdrReplay is a launch in a graph, whose replays the flight recorder and the metrics count like calls: the graph tells where it begins and
// ends, as it tells of messages. It lives as long as the graph, whose replays follow each other.
type gdrReplay struct {
	x     *gpuDirect
	first uintptr // numbers of its places
	last  uintptr
	recorder.Called
	flight atomic.Uint64 // of the replay in progress
}

// replayBegins and replayEnds are its places on the stream.
type (
	replayBegins struct{ r *gdrReplay }
	replayEnds   struct{ r *gdrReplay }
)

func (p replayBegins) come() { p.r.flight.Store(recorder.Of(p.r.x.c).Replayed(&p.r.Called)) }

func (p replayEnds) come() {
	c, how := p.r.x.c, recorder.Completed
	if c.Failed() {
		how = recorder.Failed
	}
	recorder.Of(c).End(p.r.flight.Load(), how)
}

// replayOf is replay for a script that is about to go into a graph.
func (x *gpuDirect) replayOf(p *issuing) (*gdrReplay, error) {
	return x.replay(p.capture, recorder.Called{Shape: calls.ShapeOf(p.call), Entry: p.e.entry})
}

// replay has a launch's replays recorded for as long as the graph lives.
func (x *gpuDirect) replay(capture device.Capture, what recorder.Called) (*gdrReplay, error) {
	r := &gdrReplay{x: x, Called: what}
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
