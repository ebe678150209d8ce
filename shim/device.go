package shim

import (
	"errors"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/shim/device"
)

// devices is the driver of the program's devices, nil where the program holds no binding.
var devices device.Driver

// UseDevices sets it, before the first communicator is made. The driver is to tell [Launches] of streams.
func UseDevices(d device.Driver) { devices = d }

// onDevice is what a communicator has on a device. Launches stage what they move in host memory: one room
// serves all of them, since a launch waits on the device until the one before it has copied its results.
type onDevice struct {
	mu       sync.Mutex // held while a launch is put on streams; guards what follows
	control  room       // its first bytes are the word that streams wait for
	seq      uint32     // of the last launch, what the word becomes
	staging  room
	outgrown []room // which launches that have not ended may still use

	recorded bool
	event    device.Event // after the last launch
	joint    device.Event // joins the streams of one launch
	capture  uint64       // the last one that a launch was part of
	captured device.Event // after that launch

	outstanding atomic.Int64 // launches that have not run
	worker      worker
}

// errNoContext is why most communicators have no device.
var errNoContext = errors.New("no CUDA context was current on the thread that made it")

// findDevice gives the communicator its device: the one that it was asked for, or that of the calling thread's
// context. Programs that use none, or one whose driver is of no use, may communicate all the same.
func (c *Comm) findDevice() {
	if o := c.args.From; o != nil && o.Parent.dev == nil {
		c.noDevice = o.Parent.noDevice
		return
	}
	if c.noDevice = errNoContext; devices != nil {
		current, uses, err := devices.Current()
		switch {
		case err != nil:
			c.noDevice = err
		case uses:
			if c.args.Device < 0 {
				c.args.Device = current
			}
			if c.args.Device >= 0 {
				c.dev, c.noDevice = &onDevice{}, nil
			}
		}
	}
	c.args.Device = max(c.args.Device, 0)
}

// prepare makes what the first launch needs.
func (d *onDevice) prepare() (err error) {
	if d.control.at != nil {
		return nil
	}
	for _, e := range []*device.Event{&d.event, &d.joint, &d.captured} {
		if *e == 0 {
			if *e, err = devices.NewEvent(); err != nil {
				return err
			}
		}
	}
	d.control, err = pinned.take(wordRoom)
	if err == nil {
		atomic.StoreUint32(d.control.word(), 0)
	}
	return err
}

// follow holds the stream up until the communicator's launch before this one is over. Captures know of their own
// launches only: that a replay comes in its order with other launches is the program's part, as in NCCL.
func (d *onDevice) follow(s device.Stream, capture device.Capture) error {
	switch {
	case capture.ID == 0 && d.recorded:
		return devices.Follow(s, d.event)
	case capture.ID != 0 && d.capture == capture.ID:
		return devices.Follow(s, d.captured)
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

// drain waits until all launches are over, or the communicator has failed.
func (c *Comm) drain() {
	d := c.dev
	if d == nil {
		return
	}
	for pause := 20 * time.Microsecond; c.poison.Load() == nil && !d.over(); pause = min(2*pause, time.Millisecond) {
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
	reached, err := devices.Reached(d.event)
	return reached || err != nil
}

// close gives back what no stream uses any more. Of a communicator that has failed with launches on streams
// the rest stays: nobody knows when they come to it.
func (d *onDevice) close() {
	if d == nil || !d.over() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range append(d.outgrown, d.staging, d.control) {
		pinned.give(r)
	}
	for _, e := range []*device.Event{&d.event, &d.joint, &d.captured} {
		if *e != 0 {
			_ = devices.FreeEvent(*e)
		}
		*e = 0
	}
	d.outgrown, d.staging, d.control, d.recorded = nil, room{}, room{}, false
}

// worker runs a communicator's launches, in the order in which streams come to them.
type worker struct {
	mu      sync.Mutex
	queue   []*launch
	running bool
}

func (w *worker) submit(l *launch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, l)
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *worker) run() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.running, w.queue = false, nil
			w.mu.Unlock()
			return
		}
		l := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		l.run()
	}
}

// launchTable gives launches numbers that a driver can carry.
type launchTable struct {
	mu   sync.Mutex
	all  map[uintptr]*launch
	next uintptr
}

var launches = launchTable{all: make(map[uintptr]*launch)}

// Launches is what a [device.Driver] tells how far streams have come.
func Launches() device.Handler { return &launches }

func (t *launchTable) add(l *launch) uintptr {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	t.all[t.next] = l
	return t.next
}

func (t *launchTable) remove(token uintptr) *launch {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.all[token]
	delete(t.all, token)
	return l
}

// Ready implements device.Handler.
func (t *launchTable) Ready(token uintptr) {
	t.mu.Lock()
	l := t.all[token]
	t.mu.Unlock()
	if l != nil && l.missing.Add(-1) == 0 {
		l.comms[0].dev.worker.submit(l)
	}
}

// Forget implements device.Handler: a captured launch will not run again.
func (t *launchTable) Forget(token uintptr) {
	if l := t.remove(token); l != nil {
		l.giveBack()
	}
}

// room is page-locked host memory.
type room struct {
	at   unsafe.Pointer
	size int
}

// wordRoom is what a word takes, so that it has a cache line of its own.
const wordRoom = 64

func (r room) word() *uint32 { return (*uint32)(r.at) }

// rooms keeps page-locked memory for the next who needs some: drivers take milliseconds for it, and none may be
// freed where a driver calls back. The sizes are powers of two.
type rooms struct {
	mu   sync.Mutex
	free [64][]room // by the logarithm of the size
}

var pinned rooms

func (p *rooms) take(size int) (room, error) {
	class := bits.Len(uint(max(size, os.Getpagesize()) - 1))
	p.mu.Lock()
	if n := len(p.free[class]); n > 0 {
		r := p.free[class][n-1]
		p.free[class] = p.free[class][:n-1]
		p.mu.Unlock()
		return r, nil
	}
	p.mu.Unlock()
	at, err := devices.Alloc(1 << class)
	return room{at, 1 << class}, err
}

func (p *rooms) give(r room) {
	if r.at == nil {
		return
	}
	class := bits.Len(uint(r.size - 1))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free[class] = append(p.free[class], r)
}

// mapped reports whether the first and the last byte of a buffer can be read: device memory that has been freed
// looks like host memory to a driver.
func mapped(p unsafe.Pointer, size int64) bool {
	var b [1]byte
	for _, at := range []unsafe.Pointer{p, unsafe.Add(p, size-1)} {
		local := []unix.Iovec{{Base: &b[0], Len: 1}}
		if n, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(at), Len: 1}}, 0); n != 1 || err != nil {
			return err == unix.EPERM || err == unix.ENOSYS // nothing can be said
		}
	}
	return true
}
