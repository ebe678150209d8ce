package session

import (
	"runtime"

	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
)

// A short collective of ranks that share memory needs no session: package host polls its operation. This file binds the
// operation and says how often to poll.

const (
	// SpinLong polls take about 1 us. A running rank answers in less.
	SpinLong = 50
	// SpinShort polls are for ranks whose peers wait for the same CPU.
	SpinShort = 3
)

// Patience learns whether spinning pays. It pays if every rank has a running CPU. If other programs make two ranks
// share a CPU, a spinning rank delays the rank that it waits for.
type Patience struct {
	vain  int    // consecutive long spins that ended in a yield
	calls uint32 // number of calls; one call in 32 always spins long
}

// polls returns how often the next call is to poll.
func (p *Patience) polls() int {
	p.calls++
	if p.vain < sharedmem.SpinVain || p.calls%sharedmem.SpinRetry == 0 {
		return SpinLong
	}
	return SpinShort
}

// Learn records the result of a call that polled this often. came says whether the awaited data arrived.
func (p *Patience) Learn(polls int, came bool) {
	switch {
	case came:
		p.vain = 0
	case polls == SpinLong:
		p.vain++
	}
}

// Polls returns how often a call of the communicator is to poll before it does anything else.
func (st *State) Polls() int {
	c := st.c
	switch {
	case c.Cfg.Spin >= 0:
		return 1 + c.Cfg.Spin
	case c.LocalRanks <= runtime.NumCPU():
		return st.Patience.polls()
	}
	return 1
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
