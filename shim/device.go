package shim

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/steps"
)

// onDevice is what a communicator has on a device. Its launches follow each other there, so that all of them have one staging
// memory in turn.
type onDevice struct {
	mu       sync.Mutex    // held while a launch is put on streams; guards what follows
	control  memory.Pinned // its first bytes are the word that streams wait for
	seq      uint32        // what the word becomes with the last launch
	staging  memory.Pinned
	outgrown []memory.Pinned // which launches that have not ended may still use
	graph    *graphRoom

	recorded bool
	event    device.Event              // after the last launch
	joint    device.Event              // joins the streams of one launch
	capture  uint64                    // the last one that a launch was part of
	captured device.Event              // after that launch
	back     device.Stream             // which results of launches of several steps are copied on
	turns    [steps.Rooms]device.Event // after those of a step

	lanes       []*relayLane
	locked      atomic.Int64  // bytes of page-locked memory
	outstanding atomic.Int64  // launches that have not run
	direct      *direct       // ranks reach each other's devices; nil: they do not
	gdr         *gpuDirect    // RDMA ports reach the device; nil: they do not. With neither all launches are staged
	regions     chan struct{} // ranks have registered memory, or withdrawn some
	ctx         device.Context
	identity    string // of the device; noPeers: why nobody can reach it
	noPeers     error
	worker      worker
}

// graphRoom is the word and the staging memory of launches of one capture, which follow each other. It lives as long as
// they do.
type graphRoom struct {
	capture uint64
	memory  memory.Pinned
	locked  *atomic.Int64
	users   atomic.Int32
}

// leave gives the memory back when its last launch is gone.
func (g *graphRoom) leave() {
	if g.users.Add(-1) == 0 {
		g.locked.Add(-int64(g.memory.Size))
		memory.Unpin(g.memory)
	}
}

// errNoContext is why most communicators have no device.
var errNoContext = errors.New("no CUDA context was current on the thread that made it")

// findDevice gives the communicator its device: the one that it was asked for, or that of the calling thread's
// context. Programs that use none, or one whose driver is of no use, may communicate all the same.
func findDevice(c *comm.Core) {
	if o := birthOf(c).args.From; o != nil && onDeviceOf(o.Parent) == nil {
		calls.FactsOf(c).NoDevice = calls.FactsOf(o.Parent).NoDevice
		return
	}
	if calls.FactsOf(c).NoDevice = errNoContext; device.Active() != nil {
		current, uses, err := device.Active().Current()
		switch {
		case err != nil:
			calls.FactsOf(c).NoDevice = err
		case uses:
			if c.Device < 0 {
				c.Device = current
			}
			if c.Device >= 0 {
				calls.FactsOf(c).NoDevice = nil
				onDeviceSlot.Set(c, &onDevice{regions: make(chan struct{}, 1)})
				findPeers(c, current)
			}
		}
	}
	c.Device = max(c.Device, 0)
}

// enterStream makes the context of a stream the goroutine's until Leave, and returns its device. Default streams are those of the communicator's
// own context, whatever context the calling thread has, if any.
func enterStream(c *comm.Core, s device.Stream) (on int, err error) {
	if p, able := device.Active().(device.Peers); able && s <= device.LastDefault && onDeviceOf(c).ctx != 0 {
		return c.Device, p.EnterContext(onDeviceOf(c).ctx)
	}
	return device.Active().Enter(s)
}

// prepare makes what the first launch needs, and with apart the first that copies results on a stream of its own.
func (d *onDevice) prepare(apart bool) (err error) {
	if d.control.At == nil {
		if err := newEvents(&d.event, &d.joint, &d.captured); err != nil {
			return err
		}
		if d.control, err = d.lock(memory.WordSize); err != nil {
			return err
		}
		atomic.StoreUint32(d.control.Word(), d.seq)
	}
	if apart && d.back == 0 {
		if err := newEvents(&d.turns[0], &d.turns[1]); err != nil {
			return err
		}
		d.back, err = device.Active().NewStream()
	}
	return err
}

// newEvents makes those events that are not there.
func newEvents(events ...*device.Event) (err error) {
	for _, e := range events {
		if *e == 0 {
			if *e, err = device.Active().NewEvent(); err != nil {
				return err
			}
		}
	}
	return nil
}

// lock takes page-locked memory.
func (d *onDevice) lock(size int) (memory.Pinned, error) {
	r, err := memory.Pin(size)
	if err == nil {
		d.locked.Add(int64(r.Size))
	}
	return r, err
}

// roomFor returns the staging memory of a launch that is not captured.
func (d *onDevice) roomFor(size int) (unsafe.Pointer, error) {
	if size > d.staging.Size {
		r, err := d.lock(size)
		if err != nil {
			return nil, err
		}
		d.outgrown, d.staging = append(d.outgrown, d.staging), r
	}
	return d.staging.At, nil
}

// roomOfGraph returns the word and the staging memory of a captured launch, of which it is now a user. A graph may be replayed while
// other launches are on their way, so it has its own for as long as it lives.
func (d *onDevice) roomOfGraph(capture device.Capture, size int) (*graphRoom, error) {
	g := d.graph
	if g == nil || g.capture != capture.ID || g.users.Load() == 0 || g.memory.Size < memory.WordSize+size {
		r, err := d.lock(memory.WordSize + size)
		if err != nil {
			return nil, err
		}
		g = &graphRoom{capture: capture.ID, memory: r, locked: &d.locked}
		atomic.StoreUint32(r.Word(), 0)
		d.graph = g
	}
	g.users.Add(1)
	return g, nil
}

// follow holds the stream up until the communicator's launch before this one is over. Captures know of their own
// launches only: that a replay comes in its order with other launches is the program's part, as in NCCL.
func (d *onDevice) follow(s device.Stream, capture device.Capture) error {
	switch {
	case capture.ID == 0 && d.recorded:
		return device.Active().Follow(s, d.event)
	case capture.ID != 0 && d.capture == capture.ID:
		return device.Active().Follow(s, d.captured)
	}
	return nil
}

// last returns the event to record after a launch.
func (d *onDevice) last(capture device.Capture) device.Event {
	if capture.ID == 0 {
		d.recorded = true
		return d.event
	}
	d.capture = capture.ID
	return d.captured
}

// drainStreams waits until all launches are over, or the communicator has failed.
func drainStreams(c *comm.Core) {
	if d := onDeviceOf(c); d != nil {
		sleepUntil(c, func() bool { return d.over() && interposerOf(c).over() })
	}
}

// awaitLaunches waits until launches that were issued before calls on host memory have run: that is the order of the
// communicator's calls on other ranks, which may have the same calls on streams.
func awaitLaunches(calls []calls.Call) {
	for i := range calls {
		if c := calls[i].Comm; c != nil && onDeviceOf(c) != nil && !launchesHaveRun(c) {
			sleepUntil(c, func() bool { return launchesHaveRun(c) })
		}
	}
}

// launchesHaveRun reports whether nothing is on streams that has not run.
func launchesHaveRun(c *comm.Core) bool {
	if x := onDeviceOf(c).gdr; x != nil && x.circuits && x.in.cross.outstanding.Load() > 0 {
		return false
	}
	return onDeviceOf(c).outstanding.Load() == 0
}

// sleepUntil waits for a condition, or until the communicator has failed.
func sleepUntil(c *comm.Core, done func() bool) {
	for pause := 20 * time.Microsecond; !c.Failed() && !done(); pause = min(2*pause, time.Millisecond) {
		time.Sleep(pause)
	}
}

// over reports whether all launches have run and their streams have left them.
func (d *onDevice) over() bool {
	if d.outstanding.Load() > 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.recorded {
		return true
	}
	reached, err := device.Active().Reached(d.event)
	return reached || err != nil
}

// close gives back what no stream uses any more. Of a communicator that has failed with launches on streams
// the rest stays: nobody knows when they come to it.
func (d *onDevice) close() {
	if d == nil {
		return
	}
	if d.direct != nil {
		d.direct.watcher.end()
		select {
		case <-d.direct.watcher.over:
		case <-time.After(comm.Linger): // a stream that others hold up; it goes on in the background
		}
	}
	if !d.over() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range append(d.outgrown, d.staging, d.control) {
		d.locked.Add(-int64(r.Size))
		memory.Unpin(r)
	}
	for _, e := range []*device.Event{&d.event, &d.joint, &d.captured, &d.turns[0], &d.turns[1]} {
		if *e != 0 {
			_ = device.Active().FreeEvent(*e)
		}
		*e = 0
	}
	if d.back != 0 {
		_ = device.Active().FreeStream(d.back)
	}
	for _, l := range d.lanes {
		l.close(d)
	}
	d.worker.close()
	d.outgrown, d.staging, d.control, d.graph, d.back, d.recorded, d.lanes = nil, memory.Pinned{}, memory.Pinned{}, nil, 0, false, nil
}
