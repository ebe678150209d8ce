package shim

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/other"
)

// launching is what puts scripts on streams. Scripts of a communicator follow each other on the device, whatever
// streams they are on: that is the order in which they run on every rank. Therefore one memory serves them all. What a
// capture records follows itself, and has memory of its own that lives as long as its graph.
type launching struct {
	peers  device.Peers // the driver
	launch sync.Mutex   // held while a script is put on streams; guards what follows
	ctx    device.Context
	memory stretchOfDevice
	old    []stretchOfDevice // which scripts that have not ended may still use
	// streams and joints are by lane; the first lane is on the caller's stream.
	streams []device.Stream
	joints  []device.Event
	events  []device.Event // by batch
	fork    device.Event
	last    lastLaunch // that was not captured
	graph   lastLaunch // of the capture that came last
	issuing issuing    // the script that is being put there
	list    []other.Transfer
	kernel  device.Reduction // as the driver is given it
	cross   crossings

	// Of what is being put on streams, for the library that is the ports' own:
	capture  device.Capture
	captured bool
	number   uint32 // of the launch
}

// lastLaunch is the end of a script on the device.
type lastLaunch struct {
	capture uint64
	event   device.Event
	set     bool
}

func (l *launching) setUp(c *comm.Core, lanes int) {
	l.peers, _ = device.Active().(device.Peers)
	l.streams, l.joints = make([]device.Stream, lanes), make([]device.Event, lanes)
	l.cross.setUp(c, lanes)
}

// issuing is a call's script on its way to streams.
type issuing struct {
	in      *interposer
	e       *scripted
	call    *calls.Call
	capture device.Capture
	bases   [program.Area + 1]unsafe.Pointer
	scale   device.Scale
	op      datatype.Op
	divisor int64
	run     *crossing  // nil without circuits
	replay  *gdrReplay // of a capture over RDMA ports without circuits
	bounced bounced
}

// interpose puts calls that are interposed on their streams, one after another, and returns.
func interpose(calls []calls.Call) error {
	for i := range calls {
		in := interposerOf(calls[i].Comm)
		e, err := in.of(&calls[i])
		if err != nil {
			return err
		}
		if e.script == nil {
			return calls[i].Misuse(errors.New("it is not interposed"))
		}
		if err := in.enqueue(e, &calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// enqueue puts a call's script on its stream. Hot path without circuits: it allocates nothing once a shape is known.
func (in *interposer) enqueue(e *scripted, call *calls.Call) error {
	in.launch.Lock()
	defer in.launch.Unlock()
	in.check()
	if err := in.c.Sound(); err != nil {
		return err
	}
	on, err := enterStream(in.c, call.Stream)
	if err != nil {
		return err
	}
	defer device.Active().Leave()
	p := &in.issuing
	*p = issuing{in: in, e: e, call: call}
	if p.capture, err = capturingOn(in.c, on, call.Stream); err != nil {
		return err
	}
	if err := p.prepare(); err != nil {
		return err
	}
	if err := p.put(); err != nil {
		// It is on its streams in part, and nobody can take that back.
		err = fmt.Errorf("shim: rank %d: %v, interposed: %w", in.c.Rank, call.Kind, err)
		return in.c.Fail(err)
	}
	return nil
}

// prepare finds out what the script needs; nothing is on a stream yet.
func (p *issuing) prepare() (err error) {
	in := p.in
	in.capture, in.captured = p.capture, p.capture.ID != 0
	if err := p.buffers(); err != nil {
		return err
	}
	if err := p.operator(); err != nil {
		return err
	}
	if err := in.streamsOf(p.e.script); err != nil {
		return err
	}
	scratch := (p.e.script.ScratchBytes + 255) &^ 255
	area := (p.e.script.AreaBytes + 255) &^ 255
	memory, err := p.memory(scratch + area + p.bounced.size)
	if err != nil {
		return err
	}
	p.bases[schedule.Scratch], p.bases[program.Area] = memory, unsafe.Add(memory, scratch)
	p.bounce(unsafe.Add(memory, scratch+area))
	if in.gdr != nil {
		if err := in.gdr.reserve(p.e.script, &p.bases); err != nil {
			return err
		}
	}
	switch {
	case circuits.Of(in.c) != nil:
		p.run, err = in.cross.take(p)
	case in.gdr != nil && in.captured:
		p.replay, err = in.gdr.replayOf(p)
	}
	return err
}

// mustReach refuses a buffer that a device cannot reach where it is.
func mustReach(c *calls.Call, name string, at unsafe.Pointer, size int64) error {
	if size == 0 {
		return nil
	}
	place, err := locate(c, name, at, size)
	if err == nil && place.Kind == device.Host {
		err = c.Invalid("%s %p is memory that no device reaches: who executes the call takes device memory, managed memory and page-locked memory", name, at)
	}
	return err
}

// operator finds out what the kernels compute.
func (p *issuing) operator() error {
	call, n := p.call, p.in.c.Ranks
	if !call.Kind.Reduces() {
		return nil
	}
	switch p.op = call.Op; call.Op {
	case datatype.Avg:
		p.op = datatype.Sum
		p.scale, p.divisor = device.Average(call.Type, n)
	case calls.OpPreMulSum:
		p.op = datatype.Sum
		place, err := device.Active().Locate(call.Scalar)
		if err != nil {
			return err
		}
		p.scale.Set = true
		if place.Kind == device.Host {
			copy(p.scale.Factor[:], memory.Bytes(call.Scalar, int64(call.Type.Size())))
		} else {
			p.scale.At = call.Scalar
		}
	}
	return nil
}

// lanesOf makes the streams and events of so many lanes that are not there yet.
func (in *interposer) lanesOf(lanes int) (err error) {
	l := &in.launching
	if l.ctx == 0 {
		if l.ctx, err = l.peers.Context(); err != nil {
			return err
		}
		if err := device.Active().LoadKernels(); err != nil {
			return err
		}
	}
	for _, e := range []*device.Event{&l.fork, &l.last.event, &l.graph.event} {
		if err := makeEvent(e); err != nil {
			return err
		}
	}
	for j := 1; j < lanes; j++ {
		if l.streams[j] == 0 {
			if l.streams[j], err = l.peers.NewStream(); err != nil {
				return err
			}
		}
		if err := makeEvent(&l.joints[j]); err != nil {
			return err
		}
	}
	return nil
}

// streamsOf makes the streams and events of a script that are not there yet.
func (in *interposer) streamsOf(s *program.Script) error {
	l := &in.launching
	if err := in.lanesOf(len(s.Lanes)); err != nil {
		return err
	}
	for i := range s.Batches {
		if i == len(l.events) {
			l.events = append(l.events, 0)
		}
		if s.Batches[i].Marked {
			if err := makeEvent(&l.events[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func makeEvent(e *device.Event) (err error) {
	if *e == 0 {
		*e, err = device.Active().NewEvent()
	}
	return err
}

// put enqueues the script.
func (p *issuing) put() error {
	in, s, main := p.in, p.e.script, p.call.Stream
	l := &in.launching
	if err := p.follow(main); err != nil {
		return err
	}
	if err := p.run.begin(main); err != nil {
		return err
	}
	if err := p.bounced.in.put(main); err != nil {
		return err
	}
	if err := p.forkLanes(); err != nil {
		return err
	}
	for i := range s.Batches {
		if err := p.batch(i); err != nil {
			return err
		}
	}
	for j := 1; j < len(s.Lanes); j++ {
		if p.used(j) {
			if err := errors.Join(device.Active().Record(l.joints[j], l.streams[j]), device.Active().Follow(main, l.joints[j])); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(p.divide(), p.bounced.out.put(main)); err != nil {
		return err
	}
	if err := p.run.end(main); err != nil {
		return err
	}
	_, err := p.last(main)
	return err
}

// lastOf returns where the end of the last script is that this one comes after.
func (p *issuing) lastOf() *lastLaunch {
	if p.capture.ID != 0 {
		return &p.in.graph
	}
	return &p.in.last
}

// follow has a stream wait for the last script.
func (p *issuing) follow(s device.Stream) error {
	if x := p.in.gdr; x != nil && x.circuits {
		return onDeviceOf(x.c).follow(s, p.capture) // or for a launch that is staged
	}
	if last := p.lastOf(); last.set && last.capture == p.capture.ID {
		if err := device.Active().Follow(s, last.event); err != nil {
			return err
		}
	}
	return p.replay.begin(s)
}

// last makes what the stream has been given the last script, and returns the event behind it.
func (p *issuing) last(s device.Stream) (device.Event, error) {
	last := p.lastOf()
	if err := p.replay.end(s); err != nil {
		return 0, err
	}
	if x := p.in.gdr; x != nil && p.capture.ID == 0 {
		if err := device.Active().Store(s, x.ended.Word(), p.in.number); err != nil {
			return 0, err
		}
	}
	if x := p.in.gdr; x != nil && x.circuits {
		if err := device.Active().Record(onDeviceOf(x.c).last(p.capture), s); err != nil {
			return 0, err
		}
	}
	last.capture, last.set = p.capture.ID, true
	return last.event, device.Active().Record(last.event, s)
}

// used tells whether a lane has anything to do.
func (p *issuing) used(j int) bool {
	for i := range p.e.script.Batches {
		if p.e.script.Batches[i].Lane == j {
			return true
		}
	}
	return false
}

// forkLanes has the lanes follow the caller's stream.
func (p *issuing) forkLanes() error {
	l := &p.in.launching
	forked := false
	for j := 1; j < len(p.e.script.Lanes); j++ {
		if !p.used(j) {
			continue
		}
		if !forked {
			if err := device.Active().Record(l.fork, p.call.Stream); err != nil {
				return err
			}
			forked = true
		}
		if err := device.Active().Follow(l.streams[j], l.fork); err != nil {
			return err
		}
	}
	return nil
}

// on returns the stream of a lane.
func (p *issuing) on(lane int) device.Stream {
	if lane == 0 {
		return p.call.Stream
	}
	return p.in.streams[lane]
}

// batch enqueues a batch: what it waits for, its work, its messages.
func (p *issuing) batch(i int) error {
	l, b := &p.in.launching, &p.e.script.Batches[i]
	s := p.on(b.Lane)
	for _, w := range b.Wait {
		if err := device.Active().Follow(s, l.events[w]); err != nil {
			return err
		}
	}
	for k := range b.Work {
		if err := p.work(&b.Work[k], s); err != nil {
			return err
		}
	}
	if len(b.Transfers) > 0 {
		if err := p.exchange(b, s); err != nil {
			return err
		}
	}
	if b.Marked {
		return device.Active().Record(l.events[i], s)
	}
	return nil
}

func (p *issuing) at(g program.Segment) unsafe.Pointer { return unsafe.Add(p.bases[g.Buf], g.Off) }

// work enqueues a copy or a kernel.
func (p *issuing) work(w *program.Work, s device.Stream) error {
	if !w.Reduce && !w.Scale {
		return device.Active().Copy(p.at(w.Dst), p.at(w.A), int(w.Dst.Len), s)
	}
	r := &p.in.kernel
	*r = device.Reduction{Dst: p.at(w.Dst), N: 1, Count: w.Dst.Len / p.e.script.ElemSize, Type: p.call.Type, Op: p.op}
	r.Sources[0] = p.at(w.A)
	if w.Reduce {
		r.N, r.Sources[1] = 2, p.at(w.B)
	} else {
		r.Scale = p.scale
	}
	return device.Active().Reduce(r, s)
}

// exchange enqueues the messages of a batch, once the plane has the circuits that they need.
func (p *issuing) exchange(b *program.Batch, s device.Stream) error {
	l := &p.in.launching
	if b.First {
		if err := p.run.await(b.Lane, b.Config, s); err != nil {
			return err
		}
	}
	l.list = l.list[:0]
	for k := range b.Transfers {
		t := &b.Transfers[k]
		l.list = append(l.list, other.Transfer{At: p.at(t.At), Bytes: t.At.Len, Peer: t.Peer, Send: t.Send})
	}
	if err := p.in.lib.Exchange(p.in.comms[b.Lane], l.list, s); err != nil {
		return err
	}
	if b.Last {
		return p.run.leave(b.Lane, b.Config, s)
	}
	return nil
}

// divide makes averages of sums of integers.
func (p *issuing) divide() error {
	_, recv := p.call.Extents()
	if p.divisor <= 1 || recv == 0 {
		return nil
	}
	r := &p.in.kernel
	*r = device.Reduction{
		Dst: p.bases[schedule.Output], N: 1, Count: recv / p.e.script.ElemSize, Type: p.call.Type, Op: datatype.Sum, Divisor: p.divisor,
	}
	r.Sources[0] = r.Dst
	return device.Active().Reduce(r, p.call.Stream)
}
