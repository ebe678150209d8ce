package host

import (
	"math"
	"runtime"
	"runtime/debug"

	"lightpath/collectives/datatype"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/dispatch"
	"lightpath/shim/recorder"
	"lightpath/shim/session"
)

// UseGate lets C make calls on c, which C knows by its handle, and reports whether it can. Call it once, after c has
// been made.
func UseGate(c *comm.Core, g *comm.Gate, handle uint64) bool {
	if c.NonBlocking {
		return false
	}
	c.Turn.Lock()
	defer c.Turn.Unlock()
	h := slot.Of(c)
	if st := h.session; st.Arena == nil || st.Optical != nil || calls.FactsOf(c).NoDevice == nil || c.Healthy() != nil {
		return false
	}
	q := sharedmem.NewQuick(h.session.Arena, int(max(recorder.Of(c).Size, recorder.Least)))
	q.Timed = recorder.Of(c).Timing()
	if c.Cfg.CPUSpread {
		q.Spread = 1
	}
	q.Yields, q.SpinLong, q.SpinShort = yieldAlone, 1, 1
	if h.session.Yielder() == nil {
		q.Sleeps = -1
	}
	switch {
	case c.Cfg.Spin >= 0:
		q.SpinLong, q.SpinShort = uint32(1+c.Cfg.Spin), uint32(1+c.Cfg.Spin)
	case c.LocalRanks <= runtime.NumCPU():
		q.SpinLong, q.SpinShort = session.SpinLong, session.SpinShort
	}
	if !c.Turn.Share(g, handle, q, h) {
		q.Release()
		return false
	}
	recorder.Of(c).FollowC(q)
	return true
}

// teach gives C a recipe for calls of the shape of a call that has just been made. The caller holds the communicator's
// turn. Hot path if C has the recipe: no allocation.
func teach(c *comm.Core, call *calls.Call, sh *calls.Shape, e *dispatch.Entry, op *sharedmem.Op) {
	q := c.Turn.Shared()
	if q == nil || sh.Whole != 0 {
		return
	}
	r, ok := op.Recipe()
	if !ok || calls.Kinds[sh.Kind].Reduces && int(r.Block) > quickMost(sh.Type, sh.Op) {
		return
	}
	r.Kind, r.Type, r.Op, r.Peer, r.Count = uint32(call.Kind), int32(sh.Type), int32(sh.Op), sh.Root, sh.Count
	if sh.Op == calls.OpPreMulSum {
		ended := q.OperatorsEnded() // read it first: an operator that is destroyed from now on ends the recipe
		own, err := calls.FindOperator(c, call.Operator, sh.Type)
		if err != nil {
			return
		}
		r.Op, r.Ended, r.Factor, r.FactorAt = call.Operator, ended, own.Scalar, own.At
	}
	if q.Knows(&r) || recorder.Of(c).Profiled() {
		return
	}
	switch {
	case sh.Op < datatype.Avg:
		r.Combine = uint8(sh.Op)
	case sh.Op == datatype.Avg:
		before, divisor := device.Average(sh.Type, c.Ranks)
		r.Factor = before.Factor
		if divisor > 1 {
			r.Divides = 1
		}
	}
	send, recv := call.Extents()
	r.SendBytes, r.RecvBytes = uint64(send), uint64(recv)
	own := int64(c.Rank) * int64(r.Block)
	switch k := &calls.Kinds[call.Kind]; {
	case k.Recv < 0 && k.Send > 0:
		r.Shift = own
	case k.Send < 0 && k.Recv > 0:
		r.Shift = -own
	}
	recorder.Of(c).Learn(recorder.Recipe{Shape: *sh, Entry: e}, &r)
}

// quickMost returns the largest call, in bytes, that C makes. C's kernels use AVX2 at most. Up to this size they lose
// less time against the kernels of package datatype than the 0.35 us of the way into Go. Measured in
// GB/s of a result in cache, in C and in Go with AVX-512: FP8 sums 1 and 2, bfloat16 5 and 13. Extremes of floats are 6
// to 10 and 14 to 50, all others 20 and more.
func quickMost(t datatype.Type, op datatype.Op) int {
	extreme := op == datatype.Max || op == datatype.Min
	switch {
	case t.Float() && extreme:
		return 4 << 10
	case t == datatype.Bfloat16:
		return 2 << 10
	case t == datatype.Float8E4M3 || t == datatype.Float8E5M2:
		return 512
	}
	return math.MaxInt
}

// RunBegun continues a call that C has begun, and returns when it has ended.
func RunBegun(group []calls.Call) (err error) {
	defer guard(group, debug.SetPanicOnFault(true), &err)
	call := &group[0]
	c := call.Comm
	st := session.Of(c)
	c.Turn.LockBegun()
	defer c.Turn.Unlock()
	if err := call.Validate(); err != nil {
		return c.Fail(err) // cannot happen: C has made it from a checked call
	}
	st.Begin()
	sh := calls.ShapeOf(call)
	e, err := st.PacketEntry(sh)
	ref := session.Ref{Comm: c, Seq: st.Seq, Flight: recorder.Of(c).Adopt(), Entry: e}
	if err != nil {
		return c.Fail(err)
	}
	ref.Sig = e.Signature
	op := st.Op()
	ref.AdoptOp(op, call)
	if err := c.AsyncError(); err != nil {
		op.Abandon()
		recorder.Of(c).End(ref.Flight, recorder.Failed)
		return err
	}
	return poll(group, ref, op)
}
