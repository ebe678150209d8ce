package nic

import (
	"sync/atomic"

	"lightpath/shim/device"
	"lightpath/shim/recorder"
	"lightpath/shim/stream"
)

// replay is a captured launch. The flight recorder and the metrics count its replays like calls: the graph signals
// where the launch begins and ends. It lives as long as the graph, whose replays run one after another.
type replay struct {
	x     *Path
	first stream.Token // its places on the stream
	last  stream.Token
	recorder.Called
	flight atomic.Uint64 // flight number of the replay in progress
}

// replayBegins and replayEnds are its two places on the stream.
type (
	replayBegins struct{ r *replay }
	replayEnds   struct{ r *replay }
)

func (p replayBegins) Come(int) { p.r.flight.Store(recorder.Of(p.r.x.c).Replayed(&p.r.Called)) }

func (p replayEnds) Come(int) {
	c, how := p.r.x.c, recorder.Completed
	if c.Failed() {
		how = recorder.Failed
	}
	recorder.Of(c).End(p.r.flight.Load(), how)
}

// record makes the flight recorder count the launch's replays, for as long as its graph lives. Outside graphs it does
// nothing. Launches over circuits are recorded as crossings.
func (x *Path) record(what recorder.Called) error {
	if x.launch.replay = nil; x.launch.capture.ID == 0 || x.circuits {
		return nil
	}
	r := &replay{x: x, Called: what}
	r.first, r.last = stream.AddPlace(replayBegins{r}), stream.AddPlace(replayEnds{r})
	release := func() {
		stream.DropPlace(r.first)
		stream.DropPlace(r.last)
	}
	if err := stream.OnGraphGone(x.launch.capture, release); err != nil {
		release()
		return err
	}
	x.launch.replay = r
	return nil
}

// Begin implements [stream.Wire].
func (x *Path) Begin(s device.Stream) error {
	if x.launch.replay == nil {
		return nil
	}
	return device.Active().Signal(s, x.launch.replay.first.Part(0))
}

// End implements [stream.Wire].
func (x *Path) End(s device.Stream) error {
	if x.launch.replay != nil {
		if err := device.Active().Signal(s, x.launch.replay.last.Part(0)); err != nil {
			return err
		}
	}
	if x.launch.capture.ID != 0 {
		return nil
	}
	return device.Active().Store(s, x.ended.Word(), x.launch.number)
}
