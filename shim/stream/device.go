package stream

import (
	"sync"
	"sync/atomic"
	"time"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// Device is a communicator's state on its device. Its launches run one after another there, whatever streams they are
// on. Every rank keeps the same order.
type Device struct {
	Mu    sync.Mutex   // held while a launch is put on streams; guards the fields below
	Joint device.Event // joins the streams of one launch

	recorded bool
	event    device.Event  // after the last launch
	lastOn   atomic.Uint64 // the number of the stream that the last launch ended on, 0: unknown
	capture  uint64        // the last capture with a launch
	captured device.Event  // after that launch

	accepted accepted

	Locked      atomic.Int64 // bytes of page-locked memory
	Outstanding atomic.Int64 // launches with work for a CPU that are signalled or about to be, and have not run
	Exchange    uint64       // bytes of device memory reserved for exchange
	Launcher    Launcher     // for calls whose data no CPU touches; nil: launches are staged
	Context     device.Context
	Pool        *Pool
	Identity    string // of the device
	NoPeers     error  // why no other device can access it
}

// Launcher puts calls on streams whose data no CPU touches.
type Launcher interface {
	// Put puts the calls of its communicator in a group on streams. here says that the calls have no stream: Put may
	// give them one. The caller holds Device.Mu.
	Put(group []calls.Call, here bool) error
	// Parts returns about how many parts a call has on its stream.
	Parts(call *calls.Call) int64
}

var deviceSlot = comm.NewSlot[Device]()

// Of returns a communicator's state on its device, nil if it has none.
func Of(c *comm.Core) *Device { return deviceSlot.Of(c) }

// Prepare creates the events that launches need, if they do not exist yet.
func (d *Device) Prepare() error { return NewEvents(&d.event, &d.Joint, &d.captured) }

// NewEvents creates the events that are zero.
func NewEvents(events ...*device.Event) (err error) {
	for _, e := range events {
		if *e == 0 {
			if *e, err = device.Active().NewEvent(); err != nil {
				return err
			}
		}
	}
	return nil
}

// FreeEvents frees events and sets them to zero.
func FreeEvents(events ...*device.Event) {
	for _, e := range events {
		if *e != 0 {
			_ = device.Active().FreeEvent(*e)
		}
		*e = 0
	}
}

// Lock allocates page-locked memory.
func (d *Device) Lock(size int) (memory.Pinned, error) {
	r, err := memory.Pin(size)
	if err == nil {
		d.Locked.Add(int64(r.Size))
	}
	return r, err
}

// Unlock frees page-locked memory.
func (d *Device) Unlock(r memory.Pinned) {
	d.Locked.Add(-int64(r.Size))
	memory.Unpin(r)
}

// Follow makes a stream that Enter has entered wait for the communicator's previous launch, unless that has ended on
// the same stream. A captured launch waits only for launches of its capture. The program orders replays and other
// launches, as with NCCL.
func (d *Device) Follow(s device.Stream, capture device.Capture) error {
	switch {
	case capture.ID == 0 && d.recorded:
		if id := d.accepted.number(s); id != 0 && id == d.lastOn.Load() {
			return nil
		}
		return device.Active().Follow(s, d.event)
	case capture.ID != 0 && d.capture == capture.ID:
		return device.Active().Follow(s, d.captured)
	}
	return nil
}

// Last returns the event to record after a launch.
func (d *Device) Last(capture device.Capture) device.Event {
	if capture.ID == 0 {
		d.recorded = true
		d.lastOn.Store(0)
		return d.event
	}
	d.capture = capture.ID
	return d.captured
}

// Join makes a stream wait for other streams.
func (d *Device) Join(s device.Stream, others []device.Stream) error {
	for _, other := range others {
		if err := device.Active().Record(d.Joint, other); err != nil {
			return err
		}
		if err := device.Active().Follow(s, d.Joint); err != nil {
			return err
		}
	}
	return nil
}

// End records the end of a launch on a stream, and makes other streams wait for it.
func (d *Device) End(s device.Stream, others []device.Stream, capture device.Capture) error {
	last := d.Last(capture)
	if err := device.Active().Record(last, s); err != nil {
		return err
	}
	if capture.ID == 0 {
		d.lastOn.Store(d.accepted.number(s))
	}
	for _, other := range others {
		if err := device.Active().Follow(other, last); err != nil {
			return err
		}
	}
	return nil
}

// Over reports whether all launches have run and completed on their streams.
func (d *Device) Over() bool {
	if d.Outstanding.Load() > 0 {
		return false
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	reached, err := d.Reached()
	return reached || err != nil
}

// Reached reports whether the last launch has completed on its streams. The caller holds Mu.
func (d *Device) Reached() (bool, error) {
	if !d.recorded {
		return true, nil
	}
	return device.Active().Reached(d.event)
}

// Close frees the events, if all launches have completed.
func (d *Device) Close() {
	if !d.Over() {
		return
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	FreeEvents(&d.event, &d.Joint, &d.captured)
	d.recorded = false
}

// Drain waits until all launches of a communicator have completed, or until it fails.
func Drain(c *comm.Core) {
	if d := Of(c); d != nil {
		sleepUntil(c, d.Over)
	}
}

// AwaitLaunches waits until earlier launches have run, before calls on host memory run. Other ranks keep this order of
// calls, and may have the same calls on streams.
func AwaitLaunches(group []calls.Call) {
	for i := range group {
		if c := group[i].Comm; c != nil && Of(c) != nil && Of(c).Outstanding.Load() > 0 {
			sleepUntil(c, func() bool { return Of(c).Outstanding.Load() == 0 })
		}
	}
}

// sleepUntil polls a condition until it is true or the communicator has failed.
func sleepUntil(c *comm.Core, done func() bool) {
	for pause := 20 * time.Microsecond; !c.Failed() && !done(); pause = min(2*pause, time.Millisecond) {
		time.Sleep(pause)
	}
}
