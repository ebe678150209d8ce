package devicetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/shim/device"
)

// Kind is the kind of an operation.
type Kind uint8

// The kinds.
const (
	CopyOut Kind = iota // to page-locked memory
	CopyIn              // from it
	Copy
	Reduction
	Signal
	Await
	Store
	Record
	Follow
)

// Op is an operation on a stream, for [Driver.Before].
type Op struct {
	Stream device.Stream
	Kind   Kind
	Bytes  int // of copies; of a kernel, of its Copies without Found
}

// op is a queued operation.
type op struct {
	kind               Kind
	dst, src           []byte
	dstPitch, srcPitch int
	width, rows        int
	job                uintptr
	word               *uint32
	value              uint32
	equal              bool
	event              *event
	turn               uint64
	kernel             *kernel
}

// streams holds a driver's streams, events and graphs. Their handles are indices of lists, from 1.
type streams struct {
	d        *Driver
	mu       sync.Mutex
	changed  sync.Cond // signalled at each change; all waits use it
	all      []*stream
	events   []*event
	captures uint64
	graphs   map[uint64]*Graph // being captured
	ended    bool
}

type stream struct {
	device       int
	ops          []op // a ring: n from first
	first, n     int
	queued, done uint64
	capture      *Graph
	gone         bool
}

type event struct {
	recorded, reached uint64
	capture           *Graph // that it was last recorded in
}

// Graph holds captured operations in the order of their capture.
type Graph struct {
	id   uint64
	ops  []op
	jobs []uintptr // to be forgotten with it
}

// NewStreamOn returns a stream of a device.
func (d *Driver) NewStreamOn(dev int) device.Stream {
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &stream{device: dev}
	t.all = append(t.all, s)
	go t.serve(s, device.Stream(len(t.all)))
	return device.Stream(len(t.all))
}

// NewStream implements [device.Driver].
func (d *Driver) NewStream() (device.Stream, error) {
	if err := d.entered("NewStream"); err != nil {
		return 0, err
	}
	return d.NewStreamOn(d.current()), nil
}

// FreeStream implements [device.Driver]: the stream ends with its work.
func (d *Driver) FreeStream(s device.Stream) error {
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	if on := t.get(s); on != nil {
		on.gone = true
		t.changed.Broadcast()
		return nil
	}
	return fmt.Errorf("FreeStream: %#x is none: %w", uintptr(s), device.ErrDriver)
}

// Close ends all streams, even if they have work.
func (d *Driver) Close() {
	d.streams.mu.Lock()
	defer d.streams.mu.Unlock()
	d.streams.ended = true
	d.streams.changed.Broadcast()
}

// get returns a stream, nil if it does not exist. The caller holds the lock.
func (t *streams) get(s device.Stream) *stream {
	if s == 0 || int(s) > len(t.all) || t.all[s-1].gone {
		return nil
	}
	return t.all[s-1]
}

func (t *streams) device(s device.Stream) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.get(s)
	if on == nil {
		return 0, fmt.Errorf("Enter: %#x is no stream: %w", uintptr(s), device.ErrDriver)
	}
	return on.device, nil
}

// serve runs the operations of a stream.
func (t *streams) serve(s *stream, handle device.Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for s.n == 0 && !s.gone && !t.ended {
			t.changed.Wait()
		}
		if t.ended || s.n == 0 {
			return
		}
		o := s.ops[s.first]
		t.mu.Unlock()
		t.d.mu.RLock()
		before, touch := t.d.before, t.d.touch
		t.d.mu.RUnlock()
		if before != nil {
			before(Op{handle, o.kind, o.bytes()})
		}
		if o.kind == Reduction {
			t.reduce(&o, handle, touch)
		} else {
			t.carryOut(&o)
		}
		t.mu.Lock()
		s.first = (s.first + 1) % len(s.ops)
		s.n--
		s.done++
		t.changed.Broadcast()
	}
}

// reduce runs a kernel. It calls touch before it uses memory.
func (t *streams) reduce(o *op, handle device.Stream, touch func(device.Stream, unsafe.Pointer)) {
	k := o.kernel
	reach := func(p unsafe.Pointer, n int64) []byte { return t.d.Bytes(p, int(n)) }
	Start(&k.Reduction, reach)
	Work(&k.Reduction, func(p unsafe.Pointer, n int64) []byte {
		if touch != nil {
			touch(handle, p)
		}
		return t.d.Bytes(p, int(n))
	})
	Finish(&k.Reduction, reach)
	if !k.captured {
		kernels.Put(k)
	}
}

func (o *op) bytes() (n int) {
	if o.kind != Reduction {
		return o.width * o.rows
	}
	for _, c := range o.kernel.Copies {
		if c.Found == nil {
			n += int(c.Count) * o.kernel.Type.Size()
		}
	}
	return n
}

// carryOut runs an operation that is no kernel.
func (t *streams) carryOut(o *op) {
	switch o.kind {
	case CopyOut, CopyIn, Copy:
		for i := range o.rows {
			copy(o.dst[i*o.dstPitch:][:o.width], o.src[i*o.srcPitch:][:o.width])
		}
	case Signal:
		t.d.handler.Ready(o.job)
	case Await:
		for !o.satisfied() && !t.over() {
			time.Sleep(20 * time.Microsecond)
		}
	case Store:
		atomic.StoreUint32(o.word, o.value)
	case Record:
		t.mu.Lock()
		o.event.reached = max(o.event.reached, o.turn)
		t.mu.Unlock()
	case Follow:
		t.mu.Lock()
		for o.event.reached < o.turn && !t.ended {
			t.changed.Wait()
		}
		t.mu.Unlock()
	}
}

func (t *streams) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

func (o *op) satisfied() bool {
	now := atomic.LoadUint32(o.word)
	if o.equal {
		return now == o.value
	}
	return int32(now-o.value) >= 0
}

// submit appends an operation to a stream, or to the graph that captures the stream.
func (d *Driver) submit(method string, s device.Stream, o op) error {
	if err := d.entered(method); err != nil {
		return err
	}
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.get(s)
	if on == nil {
		return fmt.Errorf("%s: %#x is no stream: %w", method, uintptr(s), device.ErrDriver)
	}
	if on.capture != nil {
		if o.kernel != nil {
			o.kernel.captured = true
		}
		on.capture.ops = append(on.capture.ops, o)
		return nil
	}
	t.push(on, o)
	return nil
}

// push appends an operation. The caller holds the lock.
func (t *streams) push(s *stream, o op) {
	if s.n == len(s.ops) {
		longer := make([]op, max(2*s.n, 64))
		for i := range s.n {
			longer[i] = s.ops[(s.first+i)%s.n]
		}
		s.ops, s.first = longer, 0
	}
	s.ops[(s.first+s.n)%len(s.ops)] = o
	s.n++
	s.queued++
	t.changed.Broadcast()
}

// Synchronize waits until a stream has completed its work, and reports whether it has within the time.
func (d *Driver) Synchronize(s device.Stream, within time.Duration) bool {
	t := &d.streams
	late := time.AfterFunc(within, t.changed.Broadcast)
	defer late.Stop()
	end := time.Now().Add(within)
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.all[s-1]
	for upto := on.queued; on.done < upto; {
		if time.Now().After(end) {
			return false
		}
		t.changed.Wait()
	}
	return true
}

// rows enqueues a copy.
func (d *Driver) rows(method string, kind Kind, dst unsafe.Pointer, dstPitch int, src unsafe.Pointer, srcPitch, width,
	rows int, s device.Stream) error {
	if width == 0 || rows == 0 {
		return nil
	}
	o := op{kind: kind, dstPitch: dstPitch, srcPitch: srcPitch, width: width, rows: rows}
	o.dst, o.src = d.Bytes(dst, (rows-1)*dstPitch+width), d.Bytes(src, (rows-1)*srcPitch+width)
	if o.dst == nil || o.src == nil {
		return fmt.Errorf("%s: beyond the end of memory: %w", method, device.ErrDriver)
	}
	return d.submit(method, s, o)
}

// CopyOut implements [device.Driver].
func (d *Driver) CopyOut(to, from unsafe.Pointer, size int, s device.Stream) error {
	return d.rows("CopyOut", CopyOut, to, size, from, size, size, 1, s)
}

// CopyIn implements [device.Driver].
func (d *Driver) CopyIn(to, from unsafe.Pointer, size int, s device.Stream) error {
	return d.rows("CopyIn", CopyIn, to, size, from, size, size, 1, s)
}

// Copy implements [device.Driver].
func (d *Driver) Copy(dst, src unsafe.Pointer, size int, s device.Stream) error {
	return d.rows("Copy", Copy, dst, size, src, size, size, 1, s)
}

// CopyRows implements [device.Driver].
func (d *Driver) CopyRows(dst unsafe.Pointer, dstPitch int, src unsafe.Pointer, srcPitch, width, rows int,
	s device.Stream) error {
	kind := CopyIn
	if at, err := d.Locate(dst); err == nil && at.Kind <= device.Pinned {
		kind = CopyOut
	}
	return d.rows("CopyRows", kind, dst, dstPitch, src, srcPitch, width, rows, s)
}

// Reduce implements [device.Driver].
func (d *Driver) Reduce(r *device.Reduction, s device.Stream) error {
	if err := r.Check(); err != nil || r.Empty() {
		return err
	}
	k := kernels.Get().(*kernel)
	k.Reduction, k.captured = *r, false
	k.Copies = append(k.copies[:0], r.Copies...)
	k.Before = append(k.stores[:0:device.MaxStores], r.Before...)
	k.After = append(k.stores[len(r.Before):len(r.Before)], r.After...)
	return d.submit("Reduce", s, op{kind: Reduction, kernel: k})
}

// kernel is a queued kernel, with memory for its lists.
type kernel struct {
	device.Reduction
	copies   [device.MaxCopies]device.Copy
	stores   [device.MaxStores]device.Store
	captured bool
}

var kernels = sync.Pool{New: func() any { return new(kernel) }}

// Signal implements [device.Driver].
func (d *Driver) Signal(s device.Stream, job uintptr) error {
	return d.submit("Signal", s, op{kind: Signal, job: job})
}

// Await implements [device.Driver].
func (d *Driver) Await(s device.Stream, word *uint32, value uint32, equal bool) error {
	return d.submit("Await", s, op{kind: Await, word: word, value: value, equal: equal})
}

// Store implements [device.Driver].
func (d *Driver) Store(s device.Stream, word *uint32, value uint32) error {
	return d.submit("Store", s, op{kind: Store, word: word, value: value})
}
