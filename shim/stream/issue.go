package stream

import (
	"errors"
	"fmt"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// launching is the state that puts scripts on streams. The launches of a communicator run one after another on the
// device, so all scripts share one memory. Captured launches have memory of their own that lives as long as the graph.
// Device.Mu guards it.
type launching struct {
	peers   device.Peers // the driver
	ctx     device.Context
	memory  Memory
	old     []Memory        // scripts that have not ended may still use it
	streams []device.Stream // by lane; lane 0 is on the caller's stream
	joints  []device.Event  // by lane
	events  []device.Event  // by batch
	fork    device.Event
	current issuing // the script that is being put on streams
	list    []Transfer
	kernel  device.Reduction // argument of the driver, reused
}

// issuing is a call's script while it is put on streams.
type issuing struct {
	Launch
	in      *Issuer
	scale   device.Scale
	op      datatype.Op
	divisor int64
	run     *crossing // nil without circuits
	bounced bounced
}

// Issue puts a call's script on its stream. The caller holds Device.Mu. Hot path without circuits: it allocates nothing
// for a known shape.
func (in *Issuer) Issue(e *Scripted, call *calls.Call) error {
	in.check()
	if err := in.c.Healthy(); err != nil {
		return err
	}
	if err := Enter(in.c, call.Stream); err != nil {
		return err
	}
	defer device.Active().Leave()
	p := &in.current
	*p = issuing{in: in, Launch: Launch{Of: e, Call: call}}
	var err error
	if p.Capture, err = device.Active().Capturing(call.Stream); err != nil {
		return err
	}
	if err := p.findBuffers(); err != nil {
		return err
	}
	if err := p.findOperator(); err != nil {
		return err
	}
	if err = p.prepare(); err == nil {
		err = p.put()
	}
	if err != nil {
		// The other ranks wait for this one, and part of the script may be on its streams.
		return in.c.Fail(fmt.Errorf("shim: rank %d: %v, %s: %w", in.c.Rank, call.Kind, in.Name, err))
	}
	return nil
}

// prepare gets what the script needs. It puts nothing on a stream.
func (p *issuing) prepare() (err error) {
	in, script := p.in, p.Of.Script
	if err := in.prepareEvents(script); err != nil {
		return err
	}
	scratch, area := aligned(script.ScratchBytes), aligned(script.AreaBytes)
	at, err := in.memoryFor(p.Capture, scratch+area+p.bounced.size)
	if err != nil {
		return err
	}
	p.Bases[schedule.Scratch], p.Bases[program.Area] = at, unsafe.Add(at, scratch)
	p.bounce(unsafe.Add(at, scratch+area))
	if err := in.Wire.Prepare(&p.Launch); err != nil {
		return err
	}
	if circuits.Of(in.c) != nil {
		p.run, err = in.take(&p.Launch)
	}
	return err
}

// findOperator decides what the kernels compute.
func (p *issuing) findOperator() (err error) {
	call, n := p.Call, p.in.c.Ranks
	if !call.Kind.Reduces() {
		return nil
	}
	switch p.op = call.Op; call.Op {
	case datatype.Avg:
		p.op = datatype.Sum
		p.scale, p.divisor = device.Average(call.Type, n)
	case calls.OpPreMulSum:
		p.op = datatype.Sum
		p.scale, err = ScaleOf(call)
	}
	return err
}

// ScaleOf returns the multiplication by the scalar of a call's operator. The kernel reads a scalar that the device
// reaches when it runs.
func ScaleOf(call *calls.Call) (device.Scale, error) {
	s := device.Scale{Set: true}
	place, err := device.Active().Locate(call.Scalar)
	switch {
	case err != nil:
		return s, err
	case place.Kind == device.Host:
		copy(s.Factor[:], memory.Bytes(call.Scalar, int64(call.Type.Size())))
	default:
		s.At = call.Scalar
	}
	return s, nil
}

// PrepareLanes creates the streams and events of the first lanes that do not exist yet.
func (in *Issuer) PrepareLanes(lanes int) (err error) {
	if in.ctx == 0 {
		if in.ctx, err = in.peers.Context(); err != nil {
			return err
		}
		if err := device.Active().LoadKernels(); err != nil {
			return err
		}
	}
	if err := errors.Join(Of(in.c).Prepare(), NewEvents(&in.fork)); err != nil {
		return err
	}
	for j := 1; j < lanes; j++ {
		if in.streams[j] == 0 {
			if in.streams[j], err = in.peers.NewStream(); err != nil {
				return err
			}
		}
		if err := NewEvents(&in.joints[j]); err != nil {
			return err
		}
	}
	return nil
}

// prepareEvents creates the streams and events of a script that do not exist yet.
func (in *Issuer) prepareEvents(s *program.Script) error {
	if err := in.PrepareLanes(len(s.Lanes)); err != nil {
		return err
	}
	for i := range s.Batches {
		if i == len(in.events) {
			in.events = append(in.events, 0)
		}
		if s.Batches[i].Marked {
			if err := NewEvents(&in.events[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// put puts the script on streams.
func (p *issuing) put() error {
	in, s, main := p.in, p.Of.Script, p.Call.Stream
	if err := in.Follow(main, p.Capture); err != nil {
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
		if p.uses(j) {
			if err := in.JoinLane(j, main); err != nil {
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
	return in.End(main, nil, p.Capture)
}

// Follow is [Device.Follow] for a launch of the wire.
func (in *Issuer) Follow(s device.Stream, capture device.Capture) error {
	if err := Of(in.c).Follow(s, capture); err != nil {
		return err
	}
	return in.Wire.Begin(s)
}

// End is [Device.End] for a launch of the wire.
func (in *Issuer) End(s device.Stream, others []device.Stream, capture device.Capture) error {
	if err := in.Wire.End(s); err != nil {
		return err
	}
	return Of(in.c).End(s, others, capture)
}

// uses reports whether a lane has anything to do.
func (p *issuing) uses(lane int) bool {
	for i := range p.Of.Script.Batches {
		if p.Of.Script.Batches[i].Lane == lane {
			return true
		}
	}
	return false
}

// forkLanes makes the streams of the lanes in use follow the caller's stream.
func (p *issuing) forkLanes() error {
	in, main := p.in, p.Call.Stream
	forked := false
	for j := 1; j < len(p.Of.Script.Lanes); j++ {
		if !p.uses(j) {
			continue
		}
		if !forked {
			if err := in.Fork(main); err != nil {
				return err
			}
			forked = true
		}
		if _, err := in.Lane(j, main); err != nil {
			return err
		}
	}
	return nil
}

// Fork records the point on a stream from which lanes fork.
func (in *Issuer) Fork(main device.Stream) error { return device.Active().Record(in.fork, main) }

// Lane returns the stream of a lane, which waits for the last Fork. Lane 0 is main.
func (in *Issuer) Lane(lane int, main device.Stream) (device.Stream, error) {
	if lane == 0 {
		return main, nil
	}
	return in.streams[lane], device.Active().Follow(in.streams[lane], in.fork)
}

// JoinLane makes a stream wait for a lane other than lane 0.
func (in *Issuer) JoinLane(lane int, main device.Stream) error {
	return errors.Join(device.Active().Record(in.joints[lane], in.streams[lane]),
		device.Active().Follow(main, in.joints[lane]))
}

// batch puts a batch on the stream of its lane: its waits, its work, its messages.
func (p *issuing) batch(i int) error {
	in, b := p.in, &p.Of.Script.Batches[i]
	s := p.Call.Stream
	if b.Lane > 0 {
		s = in.streams[b.Lane]
	}
	for _, w := range b.Wait {
		if err := device.Active().Follow(s, in.events[w]); err != nil {
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
		return device.Active().Record(in.events[i], s)
	}
	return nil
}

func (p *issuing) at(g program.Segment) unsafe.Pointer { return unsafe.Add(p.Bases[g.Buf], g.Off) }

// work puts a copy or a kernel on a stream.
func (p *issuing) work(w *program.Work, s device.Stream) error {
	if !w.Reduce && !w.Scale {
		return device.Active().Copy(p.at(w.Dst), p.at(w.A), int(w.Dst.Len), s)
	}
	r := &p.in.kernel
	*r = device.Reduction{Dst: p.at(w.Dst), N: 1, Count: w.Dst.Len / p.Of.Script.ElemSize, Type: p.Call.Type, Op: p.op}
	r.Sources[0] = p.at(w.A)
	if w.Reduce {
		r.N, r.Sources[1] = 2, p.at(w.B)
	} else {
		r.Scale = p.scale
	}
	return device.Active().Reduce(r, s)
}

// exchange puts the messages of a batch on a stream, once the plane has the circuits that they need.
func (p *issuing) exchange(b *program.Batch, s device.Stream) error {
	in := p.in
	if b.First {
		if err := p.run.await(b.Lane, b.Config, s); err != nil {
			return err
		}
	}
	in.list = in.list[:0]
	for k := range b.Transfers {
		t := &b.Transfers[k]
		in.list = append(in.list, Transfer{At: p.at(t.At), Bytes: t.At.Len, Peer: t.Peer, Send: t.Send})
	}
	if err := in.Wire.Exchange(b.Lane, in.list, s); err != nil {
		return err
	}
	if b.Last {
		return p.run.leave(b.Lane, b.Config, s)
	}
	return nil
}

// divide turns integer sums into averages.
func (p *issuing) divide() error {
	_, recv := p.Call.Extents()
	if p.divisor <= 1 || recv == 0 {
		return nil
	}
	r := &p.in.kernel
	*r = device.Reduction{
		Dst: p.Bases[schedule.Output], N: 1, Count: recv / p.Of.Script.ElemSize, Type: p.Call.Type, Op: datatype.Sum,
		Divisor: p.divisor,
	}
	r.Sources[0] = r.Dst
	return device.Active().Reduce(r, p.Call.Stream)
}

// free frees memory, streams and events, if all scripts have completed.
func (in *Issuer) free() {
	d := Of(in.c)
	if !d.Over() {
		return
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, m := range append(in.old, in.memory) {
		in.FreeMemory(m)
	}
	in.Wire.Free()
	FreeEvents(&in.fork)
	for _, list := range [][]device.Event{in.joints, in.events} {
		for i := range list {
			FreeEvents(&list[i])
		}
	}
	for _, s := range in.streams {
		if s != 0 {
			_ = in.peers.FreeStream(s)
		}
	}
	in.cross.free()
	in.old, in.memory = nil, Memory{}
}
