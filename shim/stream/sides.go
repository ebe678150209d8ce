package stream

import (
	"errors"

	"lightpath/shim/comm"
	"lightpath/shim/device"
)

// Sides are the side streams of a communicator's launches, which run one after another. Device.Mu guards it.
type Sides struct {
	Streams []device.Stream // of the launch, until its stream has joined them
	joints  [MaxSides]device.Event
	most    int // of a launch
}

// Prepare creates the events that launches need, if they do not exist yet.
func (s *Sides) Prepare(c *comm.Core) (err error) {
	s.most = sidesOfLaunch(c)
	for i := range s.joints {
		err = errors.Join(err, NewEvents(&s.joints[i]))
	}
	return err
}

// Fork takes at most n side streams for a launch on stream from, which they follow. The launch has ended when the word
// has reached value. Hot path.
func (s *Sides) Fork(d *Device, n int, word *uint32, value uint32, from device.Stream) error {
	s.Streams = d.Pool.Sides(s.Streams[:0], min(s.most, n), s, word, value)
	for i, side := range s.Streams {
		if i == 0 {
			if err := device.Active().Record(d.Joint, from); err != nil {
				return err
			}
		}
		if err := device.Active().Follow(side, d.Joint); err != nil {
			return err
		}
	}
	return nil
}

// Join makes a stream wait for the side streams. After an error it can go on with the streams that are left.
func (s *Sides) Join(to device.Stream) error {
	for n := len(s.Streams) - 1; n >= 0; n-- {
		e := s.joints[n]
		if err := errors.Join(device.Active().Record(e, s.Streams[n]), device.Active().Follow(to, e)); err != nil {
			return err
		}
		s.Streams = s.Streams[:n]
	}
	return nil
}

// Free frees the events and leaves the streams to other communicators. No launch uses them any more.
func (s *Sides) Free(p *Pool) {
	p.Leave(s)
	for i := range s.joints {
		FreeEvents(&s.joints[i])
	}
}
