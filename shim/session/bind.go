package session

import (
	"lightpath/collectives/exec"
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

// BindAll prepares the tasks of all calls of a communicator, in shared memory or on the packet planes.
func (s *Session) BindAll(c *comm.Core) error {
	Of(c).Begin()
	p2p := false
	for i := range s.Calls {
		switch call := &s.Calls[i]; {
		case call.Comm != c:
		case call.Kind.P2P():
			p2p = true
		default:
			if err := s.BindCollective(c, i); err != nil {
				return err
			}
		}
	}
	if !p2p {
		return nil
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

// BindCollective prepares the task of collective i, in shared memory or on the packet planes.
func (s *Session) BindCollective(c *comm.Core, i int) error {
	call, st := &s.Calls[i], Of(c)
	sh := calls.ShapeOf(call)
	if call.Count == 0 {
		st.Skip(&sh)
		return nil
	}
	e, err := st.PacketEntry(sh)
	if err != nil {
		return c.Fail(err) // the other ranks may have begun
	}
	ref := Ref{Comm: c, Call: i, Sig: e.Signature, Entry: e}
	ref.Seq, ref.Flight = st.Next(&sh, e)
	return s.BindEntry(ref, nil)
}

// PacketEntry returns the program of a shape on the packet planes, for the collective that gets the next number.
func (st *State) PacketEntry(s calls.Shape) (*dispatch.Entry, error) {
	key := dispatch.Key{Shape: s}
	var units []int
	if st.Shares != nil && s.Request.Planes == 0 {
		var err error
		if key.Shares, units, err = st.Shares.SharesFor(st.c, st.Seq+1, &st.Programs); err != nil {
			return nil, err
		}
	}
	if e := st.Programs.Get(key); e != nil {
		return e, nil
	}
	return st.newEntry(key, units)
}

// BindEntry binds the entry of a reference to its call. p is nil on packet planes and in shared memory.
func (s *Session) BindEntry(ref Ref, p *circuits.Planes) error {
	c, call, st := ref.Comm, &s.Calls[ref.Call], Of(ref.Comm)
	if ref.shared() {
		op := st.Op()
		ref.BindOp(op, call)
		return s.BindEngine(ref, op)
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
	var err error
	if ec.Buffers[schedule.Scratch], err = st.scratchOf(ref.Entry.Prog.ScratchBytes); err != nil {
		return c.Fail(err)
	}
	if p != nil {
		ec.Endpoint, ec.OCS, ec.Base, ec.SkipDrain = p.End, p, p.Machine.Base(), p.SkipDrain
	}
	ref.toDivide(call)
	return s.bindTask(ref, &ec, p != nil && recorder.Of(c).Timed, ref.Entry.ReceivedBytes != nil)
}

// bindTask adds a task.
func (s *Session) bindTask(ref Ref, ec *exec.Call, traced, paced bool) error {
	t := Of(ref.Comm).task()
	t.Trace(traced)
	t.MeasureDelivery(paced)
	ec.Observer = recorder.Of(ref.Comm).Observer(ref.Flight, ec.Program)
	if err := t.Bind(*ec); err != nil {
		return ref.Comm.Fail(err)
	}
	s.tasks, s.refs = append(s.tasks, t), append(s.refs, ref)
	return nil
}

// BindEngine adds a task that an engine runs, for example an operation through shared memory.
func (s *Session) BindEngine(ref Ref, x exec.Engine) error {
	c := ref.Comm
	end := Of(c).Packet
	if p := circuits.Of(c); p != nil && ref.onCircuits() {
		end = p.End
	}
	return s.bindTask(ref, &exec.Call{Engine: x, Comm: c.ID, Op: ref.Seq, Endpoint: end, Poison: c.Poison()}, false, false)
}

// toDivide records which result of a call must be divided.
func (r *Ref) toDivide(call *calls.Call) {
	if r.Entry.Kernels.Div != nil {
		_, recv := call.Extents()
		r.result = exec.Buffer{Ptr: call.Recv, Len: recv}
	}
}

// Finish does the work after a task.
func (r *Ref) Finish() {
	if e := r.Entry; e != nil && e.Kernels.Div != nil {
		e.Kernels.Div(memory.Bytes(r.result.Ptr, r.result.Len), int64(r.Comm.Ranks))
	}
	recorder.Of(r.Comm).End(r.Flight, recorder.Completed)
}
