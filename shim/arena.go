package shim

import (
	"runtime"

	"lightpath/collectives/exec"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/log"
	"lightpath/shim/recorder"
)

// Collectives of ranks that share memory need no frames: they go through the arena, unless an
// algorithm, or planes, are asked for. Which way a call goes depends on what all ranks have in common alone, and not
// on the group that it is part of.

// throughArena reports whether collectives of a kind go through the arena where they are not carried
// by circuits.
func throughArena(c *comm.Core, k calls.Kind) bool {
	return hostOf(c).arena != nil && k < calls.NumKinds && !k.P2P() && (len(c.Cfg.Algorithms) == 0 || c.Cfg.Algorithms[calls.Kinds[k].Collective.String()] == "")
}

// arenaAlgorithm is the name under which the log and traces know it.
const arenaAlgorithm = "shared-memory"

// newArenaEntry makes the entry of a shape that goes through the arena.
func newArenaEntry(c *comm.Core, s calls.Shape) *dispatch.Entry {
	e := &dispatch.Entry{Algorithm: arenaAlgorithm, Kernels: calls.KernelsOf(&s, c.Ranks), Signature: s.Signature()}
	hostOf(c).programs.Put(dispatch.Key{Shape: s}, e)
	hostOf(c).programs.Trace(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s", c.Rank, s.Kind, s.Count, s.Type, s.Root, e.Algorithm)
	return e
}

// latest is the entry used last: a loop over one shape does not even look into the table.
type latest struct {
	shape calls.Shape
	entry *dispatch.Entry
}

// A call on its own waits by itself before the machinery of groups does.
const (
	// spinLong polls take about 1 us: more than what a rank that runs takes to answer.
	spinLong = 50
	// spinShort is for ranks whose peers do not run while they do.
	spinShort = 3
	// yieldAlone is how often it gives the CPU away then.
	yieldAlone = 100
)

// patience learns whether spinning pays: it does where every rank runs, and is in the way of the
// very rank that is waited for where two share a CPU, as they do wherever others want one.
type patience struct {
	vain  int    // long spins in a row that ended in a yield
	calls uint32 // one in 32 spins long whatever the others did
}

// polls returns how often the next call is to poll.
func (p *patience) polls() int {
	p.calls++
	if p.vain < 3 || p.calls%32 == 0 {
		return spinLong
	}
	return spinShort
}

// learn takes note of how a call went that has polled so often.
func (p *patience) learn(polls int, came bool) {
	switch {
	case came:
		p.vain = 0
	case polls == spinLong:
		p.vain++
	}
}

// pollsOf is how often a call is to poll before it does anything else.
func pollsOf(c *comm.Core) int {
	switch {
	case c.Cfg.Spin >= 0:
		return 1 + c.Cfg.Spin
	case c.LocalRanks <= runtime.NumCPU():
		return hostOf(c).patience.polls()
	}
	return 1
}

// runAlone runs a group of one collective that goes through the arena.
// Hot path: no allocation, no logging.
func runAlone(c *comm.Core, group []calls.Call) error {
	call := &group[0]
	if err := c.Usable(); err != nil {
		return err
	}
	c.Turn.Lock()
	defer c.Turn.Unlock()
	// While this thread waited for the lock another may have failed or destroyed it.
	if err := c.Usable(); err != nil {
		return err
	}
	hostOf(c).begin()
	sh := calls.ShapeOf(call)
	ref := taskRef{comm: c, entry: hostOf(c).latest.entry}
	if call.Count == 0 {
		hostOf(c).skip(&sh)
		return nil
	}
	if ref.entry == nil || hostOf(c).latest.shape != sh {
		var err error
		if ref.entry, err = packetEntry(c, sh); err != nil {
			return c.Fail(err)
		}
		hostOf(c).latest = latest{sh, ref.entry}
	}
	ref.seq, ref.flight = hostOf(c).next(&sh, ref.entry)
	ref.sig = ref.entry.Signature
	op := hostOf(c).op()
	ref.bindOp(op, call)
	if err := pollAlone(c, group, ref, op); err != nil {
		return err
	}
	teach(c, call, &sh, &ref)
	return nil
}

// pollAlone drives the one operation of a call to its end.
// Hot path: no allocation, no logging.
func pollAlone(c *comm.Core, calls []calls.Call, ref taskRef, op *sharedmem.Op) error {
	polls := pollsOf(c)
	for i := range polls + yieldAlone {
		_, done, err := op.Poll()
		switch {
		case err != nil:
			return waitFor(c, calls, ref, op, err)
		case done:
			if i > spinShort {
				hostOf(c).patience.learn(polls, i < polls)
			}
			ref.finish()
			return nil
		case i >= polls:
			if c.Failed() {
				op.Abandon()
				recorder.Of(c).End(ref.flight, recorder.Failed)
				return c.AsyncError()
			}
			exec.Yield(c.SoleRank)
		}
	}
	return waitFor(c, calls, ref, op, nil)
}

// waitFor ends what runAlone has begun: with the error that it met, or by waiting.
func waitFor(c *comm.Core, calls []calls.Call, ref taskRef, op *sharedmem.Op, met error) error {
	s := sessions.Get().(*session)
	s.calls, s.comms = calls, append(s.comms, c)
	var err error
	if met != nil {
		op.Abandon()
		err = s.explain(&ref, met)
	} else if err = s.appendOp(ref, op); err == nil {
		err = s.drive()
	}
	s.reset()
	sessions.Put(s)
	return err
}

// bindArena prepares the task of a collective through the arena.
func (s *session) bindArena(ref taskRef) error {
	op := hostOf(ref.comm).op()
	ref.bindOp(op, &s.calls[ref.call])
	return s.appendOp(ref, op)
}

// bindOp binds op to the call of r.
func (r *taskRef) bindOp(op *sharedmem.Op, call *calls.Call) {
	r.op = op
	args := r.sharedCall(call)
	op.Bind(hostOf(r.comm).arena, &args)
	r.toDivide(call)
}

// toDivide remembers what of a call's results is to be divided.
func (r *taskRef) toDivide(call *calls.Call) {
	if r.entry.Kernels.Div != nil {
		_, recv := call.Extents()
		r.finishR = exec.Buffer{Ptr: call.Recv, Len: recv}
	}
}

// sharedCall is the call of r as the arena wants it.
func (r *taskRef) sharedCall(call *calls.Call) sharedmem.Call {
	k := &r.entry.Kernels
	scale, factor := k.Scaling(call)
	return sharedmem.Call{
		Collective: calls.Kinds[call.Kind].Collective, Root: int(call.Peer), Block: int(call.Count) * call.Type.Size(),
		Send: call.Send, Recv: call.Recv, InPlace: call.InPlace(),
		Combine: k.Combine, CombinePast: k.Past, Scale: scale, Factor: factor, Seq: r.seq, Signature: r.sig,
	}
}

func (s *session) appendOp(ref taskRef, op *sharedmem.Op) error {
	c := ref.comm
	t := hostOf(c).task()
	t.Trace(false)
	if err := t.Bind(exec.Call{Engine: op, Comm: c.ID, Op: ref.seq, Endpoint: hostOf(c).packet, Poison: c.Poison()}); err != nil {
		return c.Fail(err)
	}
	s.tasks, s.refs = append(s.tasks, t), append(s.refs, ref)
	return nil
}
