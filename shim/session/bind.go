package session

import (
	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
)

// Ref describes a task, for messages and for the work after the task.
type Ref struct {
	Comm     *comm.Core
	Call     int // index of the (first) call
	Seq      uint64
	Sig      uint32
	Entry    *dispatch.Entry // of a collective
	Circuits bool            // sends and receives on planes with circuits
	Flight   uint64          // its number in the flight recorder

	op     *sharedmem.Op // for a collective through shared memory
	result exec.Buffer   // result to divide by the number of ranks
}

// shared reports whether the task goes through shared memory.
func (r *Ref) shared() bool { return r.Entry != nil && r.Entry.Prog == nil }

// onCircuits reports whether the task is on planes with circuits.
func (r *Ref) onCircuits() bool { return r.Circuits || r.Entry != nil && r.Entry.Plan != nil }

// Bind prepares the tasks of all calls of a communicator on the packet planes.
func (s *Session) Bind(c *comm.Core) error {
	Of(c).Begin()
	for i := range s.Calls {
		if call := &s.Calls[i]; call.Comm == c && !call.Kind.P2P() {
			if err := s.BindPacket(c, i); err != nil {
				return err
			}
		}
	}
	first, err := s.Gather(c)
	if err != nil || first < 0 {
		return err
	}
	return s.BindMessages(c, first)
}

// Restart drops the tasks that have been driven, and starts a group of one communicator.
func (s *Session) Restart(c *comm.Core) {
	Of(c).Begin()
	s.tasks, s.refs = s.tasks[:0], s.refs[:0]
}

// BindPacket prepares the task of collective i on the packet planes.
func (s *Session) BindPacket(c *comm.Core, i int) error {
	call, st := &s.Calls[i], Of(c)
	if err := call.Resolve(); err != nil {
		return err
	}
	sh := calls.ShapeOf(call)
	if call.Count == 0 {
		st.Skip(&sh)
		return nil
	}
	e, err := st.PacketEntry(sh)
	if err != nil {
		return c.Fail(err) // the other ranks may have begun
	}
	ref := Ref{Comm: c, Call: i, Sig: sh.Signature(), Entry: e}
	ref.Seq, ref.Flight = st.Next(&sh, e)
	return s.BindEntry(ref, nil)
}

// BindEntry binds the entry of a reference to its call. p is nil on packet planes and in shared memory.
func (s *Session) BindEntry(ref Ref, p *circuits.Planes) error {
	c, call, st := ref.Comm, &s.Calls[ref.Call], Of(ref.Comm)
	if ref.shared() {
		op := st.Op()
		ref.BindOp(op, call)
		return s.Engage(ref, op)
	}
	send, recv := call.Extents()
	k := &ref.Entry.Kernels
	scale, factor := k.Scaling(call)
	ec := exec.Call{
		Program: ref.Entry.Prog, Reduce: k.Reduce, Scale: scale, Factor: factor,
		Comm: c.ID, Op: ref.Seq, Endpoint: st.Packet, Poison: c.Poison(),
	}
	ec.Buffers[schedule.Input] = exec.Buffer{Ptr: call.Send, Len: send}
	ec.Buffers[schedule.Output] = exec.Buffer{Ptr: call.Recv, Len: recv}
	ec.Buffers[schedule.Scratch] = st.scratchOf(ref.Entry.Prog.ScratchBytes)
	if p != nil {
		ec.Endpoint, ec.OCS, ec.Base, ec.SkipDrain = p.End, p.Switches(), p.Base(), p.SkipDrain
	}
	ref.toDivide(call)
	return s.bindTask(ref, &ec, p != nil && recorder.Of(c).Timed, ref.Entry.Brings != nil)
}

// bindTask adds a task.
func (s *Session) bindTask(ref Ref, ec *exec.Call, traced, paced bool) error {
	t := Of(ref.Comm).Task()
	t.Trace(traced)
	t.MeasureDelivery(paced)
	if err := t.Bind(*ec); err != nil {
		return ref.Comm.Fail(err)
	}
	s.tasks, s.refs = append(s.tasks, t), append(s.refs, ref)
	return nil
}

// Engage adds a task that an engine runs, for example an operation through shared memory.
func (s *Session) Engage(ref Ref, x exec.Engine) error {
	c := ref.Comm
	end := Of(c).Packet
	if p := circuits.Of(c); p != nil && ref.onCircuits() {
		end = p.End
	}
	return s.bindTask(ref, &exec.Call{Engine: x, Comm: c.ID, Op: ref.Seq, Endpoint: end, Poison: c.Poison()}, false, false)
}

// Gather merges the sends and receives of a communicator into [State.Group] and its program on packet planes. It
// returns the index of the first such call, -1 if there are none.
func (s *Session) Gather(c *comm.Core) (first int, err error) {
	first = -1
	st := Of(c)
	g := &st.Group
	g.Sends, g.Recvs, g.Buffers, st.recvBufs = g.Sends[:0], g.Recvs[:0], g.Buffers[:0], st.recvBufs[:0]
	for i := range s.Calls {
		call := &s.Calls[i]
		if call.Comm != c || !call.Kind.P2P() {
			continue
		}
		if first < 0 {
			first = i
		}
		if err := call.Resolve(); err != nil {
			return first, err
		}
		send, recv := call.Extents()
		whole := int64(call.Whole) * int64(call.Type.Size())
		if call.Kind == calls.Send {
			g.Sends = append(g.Sends, program.Message{Peer: int(call.Peer), Bytes: send, Whole: whole})
			g.Buffers = append(g.Buffers, exec.Buffer{Ptr: call.Send, Len: send})
		} else {
			g.Recvs = append(g.Recvs, program.Message{Peer: int(call.Peer), Bytes: recv, Whole: whole})
			st.recvBufs = append(st.recvBufs, exec.Buffer{Ptr: call.Recv, Len: recv})
		}
	}
	if first < 0 {
		return first, nil
	}
	g.Buffers = append(g.Buffers, st.recvBufs...)
	args := program.P2PArgs{Rank: c.Rank, Ranks: c.Ranks, Planes: len(st.Packet.Planes())}
	if err := program.BuildP2P(&st.p2p, args, g.Sends, g.Recvs); err != nil {
		return first, s.Calls[first].Misuse(err)
	}
	g.Flight = recorder.Of(c).AddGroup(g.Sends, g.Recvs)
	return first, nil
}

// BindMessages prepares the task of the gathered sends and receives on packet planes. Call first is the first of them.
func (s *Session) BindMessages(c *comm.Core, first int) error {
	st := Of(c)
	return s.bindTask(Ref{Comm: c, Call: first, Seq: st.Seq, Flight: st.Group.Flight}, &exec.Call{
		Program: &st.p2p, Messages: st.Group.Buffers, Comm: c.ID, Op: st.Seq, Pairs: st.Pairs, Gate: s.Gate,
		Endpoint: st.Packet,
		Poison:   c.Poison(),
	}, false, false)
}

// BindRound is [Session.BindMessages] with a program on planes with circuits, for round number.
func (s *Session) BindRound(c *comm.Core, first int, number uint64, prog *program.Program) error {
	st, p := Of(c), circuits.Of(c)
	return s.bindTask(Ref{Comm: c, Call: first, Seq: number, Circuits: true, Flight: st.Group.Flight}, &exec.Call{
		Program: prog, Messages: st.Group.Buffers, Comm: c.ID, Op: st.Seq, Pairs: st.Pairs, Endpoint: p.End,
		Poison: c.Poison(),
		OCS:    p.Switches(), Base: p.Base(), SkipDrain: p.SkipDrain,
	}, recorder.Of(c).Timed, false)
}

// BindOp binds an operation through shared memory to the call of r.
func (r *Ref) BindOp(op *sharedmem.Op, call *calls.Call) {
	r.op = op
	args := r.sharedCall(call)
	op.Bind(Of(r.Comm).Arena, &args)
	r.toDivide(call)
}

// AdoptOp is [Ref.BindOp] for a call that C has begun.
func (r *Ref) AdoptOp(op *sharedmem.Op, call *calls.Call) {
	r.op = op
	args := r.sharedCall(call)
	op.Adopt(Of(r.Comm).Arena, &args)
	r.toDivide(call)
}

// toDivide records which result of a call must be divided.
func (r *Ref) toDivide(call *calls.Call) {
	if r.Entry.Kernels.Div != nil {
		_, recv := call.Extents()
		r.result = exec.Buffer{Ptr: call.Recv, Len: recv}
	}
}

// sharedCall returns the call of r in the form that package sharedmem takes.
func (r *Ref) sharedCall(call *calls.Call) sharedmem.Call {
	k := &r.Entry.Kernels
	scale, factor := k.Scaling(call)
	return sharedmem.Call{
		Collective: calls.Kinds[call.Kind].Collective, Root: int(call.Peer), Block: int(call.Count) * call.Type.Size(),
		Send: call.Send, Recv: call.Recv, InPlace: call.InPlace(),
		Combine: k.Combine, CombineStream: k.CombineStream, Scale: scale, Factor: factor, Seq: r.Seq, Signature: r.Sig,
	}
}

// Finish does the work after a task.
func (r *Ref) Finish() {
	if e := r.Entry; e != nil && e.Kernels.Div != nil {
		e.Kernels.Div(memory.Bytes(r.result.Ptr, r.result.Len), int64(r.Comm.Ranks))
	}
	recorder.Of(r.Comm).End(r.Flight, recorder.Completed)
}
