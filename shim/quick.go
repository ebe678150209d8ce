package shim

import (
	"runtime"
	"slices"

	"lightpath/collectives/shared"
)

// UseGate lets C make calls on c, of which it knows the handle, and reports whether it can. Callable
// once, after c has been made.
func (c *Comm) UseGate(g *Gate, handle uint64) bool {
	if c.args.NonBlocking {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arena == nil || c.light != nil || c.dev != nil || c.sound() != nil {
		return false
	}
	q := shared.NewQuick(c.arena, int(max(c.flight.size, minFlown)))
	if c.flight.timed {
		q.Timed = 1
	}
	q.Yields, q.SpinLong, q.SpinShort = yieldAlone, 1, 1
	switch {
	case c.cfg.Spin >= 0:
		q.SpinLong, q.SpinShort = uint32(1+c.cfg.Spin), uint32(1+c.cfg.Spin)
	case c.localRanks <= runtime.NumCPU():
		q.SpinLong, q.SpinShort = spinLong, spinShort
	}
	if !c.mu.give(c, g, handle, q) {
		q.Release()
		return false
	}
	c.flight.follow(q)
	return true
}

// teach has C make calls such as this one, which has just been made. c.mu is held.
// Hot path: no allocation.
func (c *Comm) teach(call *Call, sh *shape, ref *taskRef) {
	q := c.mu.quick
	if c.mu.gate.Load() == nil || sh.whole != 0 || ref.finishR.Ptr != nil || kinds[sh.kind].reduces && !shared.Reducible(sh.typ, sh.op) {
		return
	}
	if slices.ContainsFunc(c.flight.quick.kinds[:q.Used], func(k quickKind) bool { return k.shape == *sh }) {
		return
	}
	r, ok := ref.op.Recipe()
	if !ok {
		return
	}
	send, recv := call.extents()
	r.Kind, r.Type, r.Op, r.Peer, r.Count = uint32(call.Kind), int32(sh.typ), int32(sh.op), sh.root, sh.count
	r.SendBytes, r.RecvBytes = uint64(send), uint64(recv)
	own := int64(c.args.Rank) * int64(r.Block)
	switch k := &kinds[call.Kind]; {
	case k.recv < 0 && k.send > 0:
		r.Shift = own
	case k.send < 0 && k.recv > 0:
		r.Shift = -own
	}
	i := q.Used
	if i == shared.QuickRecipes {
		i = (q.Last + 1) % shared.QuickRecipes
	}
	c.flight.learn(i, quickKind{shape: *sh, entry: ref.entry}, &r)
}

// RunBegun goes on with a call that C has begun, and returns when it is complete.
func RunBegun(calls []Call) error {
	call := &calls[0]
	c := call.Comm
	c.mu.lockBegun()
	defer c.mu.Unlock()
	inPlace, err := call.check()
	if err != nil {
		return c.fail(err) // but C has made it out of a call like it
	}
	c.begin()
	sh := shapeOf(call, inPlace)
	ref := taskRef{comm: c, seq: c.seq, flight: c.flight.adopt()}
	if ref.entry, err = c.packetEntry(sh); err != nil {
		return c.fail(err)
	}
	ref.sig = ref.entry.sig
	op := c.op()
	args := ref.sharedCall(call, inPlace)
	op.Adopt(c.arena, &args)
	ref.op = op
	if err := c.AsyncError(); err != nil {
		op.Abandon()
		c.flight.end(ref.flight, failed)
		return err
	}
	return c.pollAlone(calls, ref, op)
}
