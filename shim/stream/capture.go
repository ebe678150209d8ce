package stream

import (
	"errors"
	"fmt"
	"sync"

	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
)

// accepted are the streams of the communicator's context that it has used last, with the numbers that the driver has
// given them. Safe for concurrent use.
type accepted struct {
	mu   sync.Mutex
	last [4]struct {
		stream device.Stream
		id     uint64
	}
	next int // the entry to replace
}

// number returns the number of a stream, 0 if it is not among them.
func (a *accepted) number(s device.Stream) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.last {
		if a.last[i].stream == s {
			return a.last[i].id
		}
	}
	return 0
}

// add adds a stream. An earlier stream with the same handle has ended.
func (a *accepted) add(s device.Stream, id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.last {
		if a.last[i].stream == s {
			a.last[i].id = id
			return
		}
	}
	a.last[a.next].stream, a.last[a.next].id = s, id
	a.next = (a.next + 1) % len(a.last)
}

// Enter sets the context of a stream on the goroutine until [device.Driver] Leave. It refuses streams of another device
// or context than those of the communicator. For default streams it sets the communicator's own context, whatever
// context the calling thread has.
//
// The communicator remembers the numbers of streams that it has accepted: a stream keeps its context.
func Enter(c *comm.Core, s device.Stream) error {
	d, id := Of(c), uint64(0)
	if p, able := device.Active().(device.Peers); able && d.Context != 0 {
		if s <= device.LastDefault {
			return p.EnterContext(d.Context)
		}
		var err error
		if id, err = p.StreamID(s); err != nil {
			return err
		}
		if id != 0 && d.accepted.number(s) == id {
			return p.EnterContext(d.Context)
		}
	}
	on, err := device.Active().Enter(s)
	if err != nil {
		return err
	}
	if err := accept(c, on); err != nil {
		device.Active().Leave()
		return err
	}
	if id != 0 {
		d.accepted.add(s, id)
	}
	return nil
}

// accept checks that the goroutine has entered the communicator's context. on is the device of the entered context.
func accept(c *comm.Core, on int) error {
	if on != c.Device {
		return fmt.Errorf("shim: the stream is of device %d, the communicator of device %d: %w", on, c.Device,
			errdefs.ErrInvalidArgument)
	}
	p, able := device.Active().(device.Peers)
	if !able || Of(c).Context == 0 {
		return nil
	}
	// Another context cannot use these streams and events, and may not access this context's memory.
	if ctx, err := p.Context(); err != nil || ctx != Of(c).Context {
		return errors.Join(err, fmt.Errorf(
			"shim: the stream is of another context of device %d than that in which the communicator was made: %w",
			on, errdefs.ErrInvalidArgument))
	}
	return nil
}

// ErrCaptures reports a group that could run only in part.
var ErrCaptures = fmt.Errorf("shim: a group cannot have streams that are captured and streams that are not, nor one "+
	"communicator's streams of two captures: %w", errdefs.ErrInvalidUsage)

// SameCapture checks that two streams of a communicator in a group have the same capture, or none.
func SameCapture(a, b device.Capture) error {
	if a.ID != b.ID {
		return ErrCaptures
	}
	return nil
}

// Capturing checks streams for the communicator's calls, and returns the capture they share: all of them have it or
// none.
func Capturing(c *comm.Core, streams []device.Stream) (first device.Capture, err error) {
	for i, s := range streams {
		got, err := capturing(c, s)
		if err == nil && i > 0 {
			err = SameCapture(first, got)
		}
		if err != nil {
			return first, err
		}
		first = got
	}
	return first, nil
}

func capturing(c *comm.Core, s device.Stream) (device.Capture, error) {
	if err := Enter(c, s); err != nil {
		return device.Capture{}, err
	}
	defer device.Active().Leave()
	return device.Active().Capturing(s)
}
