package shim

import (
	"runtime"
	"unsafe"

	"lightpath/collectives/exec"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/log"
	"lightpath/shim/memory"
)

// Collectives of ranks that share memory need no frames: they go through the arena, unless an
// algorithm, or planes, are asked for. Which way a call goes depends on what all ranks have in common alone, and not
// on the group that it is part of.

// throughArena reports whether collectives of a kind go through the arena where they are not carried
// by circuits.
func throughArena(c *Comm, k CallKind) bool {
	return hostOf(c).arena != nil && k < NumCallKinds && !k.p2p() && (len(c.Cfg.Algorithms) == 0 || c.Cfg.Algorithms[kinds[k].collective.String()] == "")
}

// sharedRegion is FindMemory for memory that other processes can map.
func sharedRegion(p unsafe.Pointer, n int64) (sharedmem.Region, int64, bool) {
	r, offset, ok := memory.Find(p, n)
	return sharedmem.Region{Number: r.Number, FD: r.FD, Size: int64(r.Size)}, offset, ok && r.FD >= 0
}

// cannotMap says that memory of ncclMemAlloc is like any other between two ranks.
func cannotMap(c *Comm, rank int, err error) {
	c.Log.Info(log.Net, "rank %d: memory of rank %d cannot be mapped, and is copied: %v", c.Rank, rank, err)
}

// arenaAlgorithm is the name under which the log and traces know it.
const arenaAlgorithm = "shared-memory"

// newArenaEntry makes the entry of a shape that goes through the arena.
func newArenaEntry(c *Comm, s shape) *entry {
	e := &entry{algorithm: arenaAlgorithm, kernels: kernelsOf(&s, c.Ranks), sig: s.callSignature()}
	hostOf(c).programs.put(s, e)
	traceEntry(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s", c.Rank, s.kind, s.count, s.typ, s.root, e.algorithm)
	return e
}

// latest is the entry used last: a loop over one shape does not even look into the table.
type latest struct {
	shape shape
	entry *entry
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
func pollsOf(c *Comm) int {
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
func runAlone(c *Comm, calls []Call) error {
	call := &calls[0]
	if err := c.Usable(); err != nil {
		return err
	}
	inPlace, err := call.check()
	if err != nil {
		return err
	}
	c.Turn.Lock()
	defer c.Turn.Unlock()
	// While this thread waited for the lock another may have failed or destroyed it.
	if err := c.Usable(); err != nil {
		return err
	}
	hostOf(c).begin()
	sh := shapeOf(call, inPlace)
	ref := taskRef{comm: c, entry: hostOf(c).latest.entry}
	if call.Count == 0 {
		hostOf(c).skip(&sh)
		return nil
	}
	if ref.entry == nil || hostOf(c).latest.shape != sh {
		if ref.entry, err = packetEntry(c, sh); err != nil {
			return c.Fail(err)
		}
		hostOf(c).latest = latest{sh, ref.entry}
	}
	ref.seq, ref.flight = hostOf(c).next(&sh, ref.entry)
	ref.sig = ref.entry.sig
	op := hostOf(c).op()
	ref.bindOp(op, call, inPlace)
	if err := pollAlone(c, calls, ref, op); err != nil {
		return err
	}
	teach(c, call, &sh, &ref)
	return nil
}

// pollAlone drives the one operation of a call to its end.
// Hot path: no allocation, no logging.
func pollAlone(c *Comm, calls []Call, ref taskRef, op *sharedmem.Op) error {
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
				flightOf(c).end(ref.flight, failed)
				return c.AsyncError()
			}
			exec.Yield(c.SoleRank)
		}
	}
	return waitFor(c, calls, ref, op, nil)
}

// waitFor ends what runAlone has begun: with the error that it met, or by waiting.
func waitFor(c *Comm, calls []Call, ref taskRef, op *sharedmem.Op, met error) error {
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
func (s *session) bindArena(ref taskRef, inPlace bool) error {
	op := hostOf(ref.comm).op()
	ref.bindOp(op, &s.calls[ref.call], inPlace)
	return s.appendOp(ref, op)
}

// bindOp binds op to the call of r.
func (r *taskRef) bindOp(op *sharedmem.Op, call *Call, inPlace bool) {
	r.op = op
	args := r.sharedCall(call, inPlace)
	op.Bind(hostOf(r.comm).arena, &args)
	r.toDivide(call)
}

// toDivide remembers what of a call's results is to be divided.
func (r *taskRef) toDivide(call *Call) {
	if r.entry.kernels.div != nil {
		_, recv := call.extents()
		r.finishR = exec.Buffer{Ptr: call.Recv, Len: recv}
	}
}

// sharedCall is the call of r as the arena wants it.
func (r *taskRef) sharedCall(call *Call, inPlace bool) sharedmem.Call {
	k := &r.entry.kernels
	scale, factor := k.scaling(call)
	return sharedmem.Call{
		Collective: kinds[call.Kind].collective, Root: int(call.Peer), Block: int(call.Count) * call.Type.Size(),
		Send: call.Send, Recv: call.Recv, InPlace: inPlace,
		Combine: k.combine, CombinePast: k.past, Scale: scale, Factor: factor, Seq: r.seq, Signature: r.sig,
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
