package stream

import (
	"errors"
	"fmt"

	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
)

// Enter makes the context of a stream the goroutine's until [device.Driver] Leave, and returns its device. Default streams
// are those of the communicator's own context, whatever context the calling thread has, if any.
func Enter(c *comm.Core, s device.Stream) (on int, err error) {
	if p, able := device.Active().(device.Peers); able && s <= device.LastDefault && Of(c).Context != 0 {
		return c.Device, p.EnterContext(Of(c).Context)
	}
	return device.Active().Enter(s)
}

// errCaptures reports a group that could run in part only.
var errCaptures = fmt.Errorf("shim: a group cannot have streams that are captured and streams that are not, or of two captures: %w",
	errdefs.ErrInvalidUsage)

// SameCapture checks that two streams of a group are captured alike.
func SameCapture(a, b device.Capture) error {
	if a.ID != b.ID {
		return errCaptures
	}
	return nil
}

// Capturing checks streams for the communicator's calls, and returns the graph that they are captured into: all of them or
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

// CapturingOn is [Capturing] for a stream that has been entered, and is on a device.
func CapturingOn(c *comm.Core, on int, s device.Stream) (device.Capture, error) {
	if on != c.Device {
		return device.Capture{}, fmt.Errorf("shim: the stream is of device %d, the communicator of device %d: %w",
			on, c.Device, errdefs.ErrInvalidArgument)
	}
	if p, able := device.Active().(device.Peers); able && Of(c).Context != 0 {
		// Streams and events of one context are of no use in another, which may not reach its memory either.
		if ctx, err := p.Context(); err != nil || ctx != Of(c).Context {
			return device.Capture{}, errors.Join(err, fmt.Errorf(
				"shim: the stream is of another context of device %d than that in which the communicator was made: %w",
				on, errdefs.ErrInvalidArgument))
		}
	}
	return device.Active().Capturing(s)
}
