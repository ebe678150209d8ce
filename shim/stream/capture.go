package stream

import (
	"errors"
	"fmt"

	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
)

// Enter sets the context of a stream on the goroutine until [device.Driver] Leave, and returns the context's device.
// For default streams it sets the communicator's own context, whatever context the calling thread has.
func Enter(c *comm.Core, s device.Stream) (on int, err error) {
	if p, able := device.Active().(device.Peers); able && s <= device.LastDefault && Of(c).Context != 0 {
		return c.Device, p.EnterContext(Of(c).Context)
	}
	return device.Active().Enter(s)
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
	on, err := Enter(c, s)
	if err != nil {
		return device.Capture{}, err
	}
	defer device.Active().Leave()
	return CapturingOn(c, on, s)
}

// CapturingOn is [Capturing] for a stream of device on, whose context has been entered.
func CapturingOn(c *comm.Core, on int, s device.Stream) (device.Capture, error) {
	if on != c.Device {
		return device.Capture{}, fmt.Errorf("shim: the stream is of device %d, the communicator of device %d: %w",
			on, c.Device, errdefs.ErrInvalidArgument)
	}
	if p, able := device.Active().(device.Peers); able && Of(c).Context != 0 {
		// Another context cannot use these streams and events, and may not access this context's memory.
		if ctx, err := p.Context(); err != nil || ctx != Of(c).Context {
			return device.Capture{}, errors.Join(err, fmt.Errorf(
				"shim: the stream is of another context of device %d than that in which the communicator was made: %w",
				on, errdefs.ErrInvalidArgument))
		}
	}
	return device.Active().Capturing(s)
}
