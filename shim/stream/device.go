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

// Device is what a communicator has on its device. Its launches follow each other there, whatever streams they are on: that
// is the order in which they run here and on every other rank.
type Device struct {
	Mu    sync.Mutex   // held while a launch is put on streams; guards what follows
	Joint device.Event // joins the streams of one launch

	recorded bool
	event    device.Event // after the last launch
	capture  uint64       // the last one that a launch was part of
	captured device.Event // after that launch

	Locked      atomic.Int64 // bytes of page-locked memory
	Outstanding atomic.Int64 // launches that have not run
	Exchange    uint64       // bytes of the device that are kept for exchange
	Launcher    Launcher     // of calls that no CPU carries; nil: launches are staged
	Context     device.Context
	Identity    string // of the device
	NoPeers     error  // why no other device can reach it
}

// Launcher puts calls on streams that need no CPU once they are there.
type Launcher interface {
	// Put puts the calls of its communicator among those of a group on streams. here: they have no stream. Device.Mu is held.
	Put(group []calls.Call, here bool) error
	// Parts returns about how many parts a call is put on its stream in.
	Parts(call *calls.Call) int64
}

var deviceSlot = comm.NewSlot[Device]()

// Of returns what a communicator has on its device, nil if it has none.
func Of(c *comm.Core) *Device { return deviceSlot.Of(c) }

// Set gives a communicator a device.
func Set(c *comm.Core, d *Device) { deviceSlot.Set(c, d) }

// Prepare makes what the first launch needs.
func (d *Device) Prepare() error { return NewEvents(&d.event, &d.Joint, &d.captured) }

// NewEvents makes those events that are not there.
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

// FreeEvents gives events back.
func FreeEvents(events ...*device.Event) {
	for _, e := range events {
		if *e != 0 {
			_ = device.Active().FreeEvent(*e)
		}
		*e = 0
	}
}

// Lock takes page-locked memory.
func (d *Device) Lock(size int) (memory.Pinned, error) {
	r, err := memory.Pin(size)
	if err == nil {
		d.Locked.Add(int64(r.Size))
	}
	return r, err
}

// Unlock gives page-locked memory back.
func (d *Device) Unlock(r memory.Pinned) {
	d.Locked.Add(-int64(r.Size))
	memory.Unpin(r)
}

// Follow holds a stream up until the communicator's launch before this one is over. A capture knows of its own launches
// only: the program sees to the order of replays and other launches, as with NCCL.
func (d *Device) Follow(s device.Stream, capture device.Capture) error {
	switch {
	case capture.ID == 0 && d.recorded:
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
		return d.event
	}
	d.capture = capture.ID
	return d.captured
}

// Join has a stream wait for other streams.
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

// End records the end of a launch on a stream, and has other streams wait for it.
func (d *Device) End(s device.Stream, others []device.Stream, capture device.Capture) error {
	last := d.Last(capture)
	if err := device.Active().Record(last, s); err != nil {
		return err
	}
	for _, other := range others {
		if err := device.Active().Follow(other, last); err != nil {
			return err
		}
	}
	return nil
}

// Over reports whether all launches have run and their streams have left them.
func (d *Device) Over() bool {
	if d.Outstanding.Load() > 0 {
		return false
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	reached, err := d.Reached()
	return reached || err != nil
}

// Reached reports whether streams have left the last launch. Mu is held.
func (d *Device) Reached() (bool, error) {
	if !d.recorded {
		return true, nil
	}
	return device.Active().Reached(d.event)
}

// Close gives the events back, if nothing is on streams any more.
func (d *Device) Close() {
	if !d.Over() {
		return
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	FreeEvents(&d.event, &d.Joint, &d.captured)
	d.recorded = false
}

// Drain waits until all launches of a communicator are over, or it has failed.
func Drain(c *comm.Core) {
	if d := Of(c); d != nil {
		sleepUntil(c, func() bool { return d.Over() && IssuerOf(c).Over() })
	}
}

// AwaitLaunches waits until launches that were issued before calls on host memory have run. That is the order of the
// communicator's calls on other ranks, which may have the same calls on streams.
func AwaitLaunches(group []calls.Call) {
	for i := range group {
		if c := group[i].Comm; c != nil && Of(c) != nil && !haveRun(c) {
			sleepUntil(c, func() bool { return haveRun(c) })
		}
	}
}

// haveRun reports whether nothing is on streams that has not run.
func haveRun(c *comm.Core) bool {
	if in := IssuerOf(c); in != nil && in.Ordered && in.cross.outstanding.Load() > 0 {
		return false
	}
	return Of(c).Outstanding.Load() == 0
}

// sleepUntil waits for a condition, or until the communicator has failed.
func sleepUntil(c *comm.Core, done func() bool) {
	for pause := 20 * time.Microsecond; !c.Failed() && !done(); pause = min(2*pause, time.Millisecond) {
		time.Sleep(pause)
	}
}
