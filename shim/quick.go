package shim

import (
	"math"
	"runtime"

	"lightpath/collectives/datatype"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/recorder"
)

// UseGate lets C make calls on c, of which it knows the handle, and reports whether it can. Callable
// once, after c has been made.
func UseGate(c *comm.Core, g *Gate, handle uint64) bool {
	if c.NonBlocking {
		return false
	}
	c.Turn.Lock()
	defer c.Turn.Unlock()
	if hostOf(c).arena == nil || circuits.Of(c) != nil || onDeviceOf(c) != nil || c.Sound() != nil {
		return false
	}
	q := sharedmem.NewQuick(hostOf(c).arena, int(max(recorder.Of(c).Size, recorder.Least)))
	if recorder.Of(c).Timed {
		q.Timed = 1
	}
	q.Yields, q.SpinLong, q.SpinShort = yieldAlone, 1, 1
	switch {
	case c.Cfg.Spin >= 0:
		q.SpinLong, q.SpinShort = uint32(1+c.Cfg.Spin), uint32(1+c.Cfg.Spin)
	case c.LocalRanks <= runtime.NumCPU():
		q.SpinLong, q.SpinShort = spinLong, spinShort
	}
	if !c.Turn.Share(g, handle, q, hostOf(c)) {
		q.Release()
		return false
	}
	recorder.Of(c).FollowC(q)
	return true
}

// teach has C make calls such as this one, which has just been made. c.mu is held.
// Hot path where C knows them: no allocation.
func teach(c *comm.Core, call *calls.Call, sh *calls.Shape, ref *taskRef) {
	q := c.Turn.Shared()
	if q == nil || sh.Whole != 0 {
		return
	}
	r, ok := ref.op.Recipe()
	if !ok || calls.Kinds[sh.Kind].Reduces && int(r.Block) > quickMost(sh.Type, sh.Op) {
		return
	}
	r.Kind, r.Type, r.Op, r.Peer, r.Count = uint32(call.Kind), int32(sh.Type), int32(sh.Op), sh.Root, sh.Count
	if sh.Op == calls.OpPreMulSum {
		ended := q.OperatorsEnded() // before: an operator that is destroyed from now on ends the recipe
		op, err := calls.FindOperator(c, call.Operator, sh.Type)
		if err != nil {
			return
		}
		r.Op, r.Ended, r.Factor, r.FactorAt = call.Operator, ended, op.Scalar, op.At
	}
	if q.Knows(&r) {
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
	recorder.Of(c).Learn(recorder.Recipe{Shape: *sh, Entry: ref.entry}, &r)
}

// quickMost is up to how many bytes C's kernels, which know AVX2 at most, lose less against those of package
// datatype than it takes to come to them, some 0.35 us. (GB/s of a result in cache, C and here with AVX-512: FP8
// sums 1 and 2, bfloat16 5 and 13, extremes of floats 6 to 10 and 14 to 50, all others 20 and more.)
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

// RunBegun goes on with a call that C has begun, and returns when it is complete.
func RunBegun(group []calls.Call) error {
	call := &group[0]
	c := call.Comm
	c.Turn.LockBegun()
	defer c.Turn.Unlock()
	if err := call.Validate(); err != nil {
		return c.Fail(err) // but C has made it out of a call like it
	}
	hostOf(c).begin()
	sh := calls.ShapeOf(call)
	ref := taskRef{comm: c, seq: hostOf(c).seq, flight: recorder.Of(c).Adopt()}
	e, err := packetEntry(c, sh)
	if err != nil {
		return c.Fail(err)
	}
	ref.entry = e
	ref.sig = ref.entry.Signature
	op := hostOf(c).op()
	args := ref.sharedCall(call)
	op.Adopt(hostOf(c).arena, &args)
	ref.op = op
	ref.toDivide(call)
	if err := c.AsyncError(); err != nil {
		op.Abandon()
		recorder.Of(c).End(ref.flight, recorder.Failed)
		return err
	}
	return pollAlone(c, group, ref, op)
}
