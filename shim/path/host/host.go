package host

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
	"lightpath/shim/session"
)

// Run runs checked calls on host memory and returns when all have ended, or [errdefs.ErrInProgress] if their
// communicators do not block. Hot path: a group of shapes seen before allocates nothing on packet planes.
func Run(group []calls.Call) (err error) {
	defer guard(group, debug.SetPanicOnFault(true), &err)
	if len(group) == 1 {
		if c := &group[0]; runsAlone(c) {
			return runAlone(c.Comm, group)
		}
	}
	s := session.New(group)
	defer s.Close()
	for i := range group {
		if c := group[i].Comm; !slices.Contains(s.Comms, c) {
			s.Comms = append(s.Comms, c)
		}
	}
	if len(s.Comms) > 0 && s.Comms[0].NonBlocking || len(s.Comms) > 1 {
		if background, err := startInBackground(s); background || err != nil {
			return err
		}
	}
	return run(s)
}

// run runs a session whose calls may be cut.
func run(s *session.Session) error {
	for i := range s.Calls {
		if s.Calls[i].IsCut() {
			return runInPieces(s)
		}
	}
	return s.Run()
}

// guard restores the setting of debug.SetPanicOnFault, which was before. A fault in a buffer of the group becomes an
// error that names the buffer. Other panics remain. Both fail the communicators, since the calls are half done. The
// address of a fault does not tell: it is missing for the first page and for addresses that no process can have. guard
// must be deferred directly.
func guard(group []calls.Call, before bool, err *error) {
	debug.SetPanicOnFault(before)
	p := recover()
	if p == nil {
		return
	}
	*err = nil
	if _, ok := p.(runtime.Error); ok {
		*err = session.BadBuffer(group)
	}
	why := *err
	if why == nil {
		why = fmt.Errorf("shim: panic: %v: %w", p, errdefs.ErrInternal)
	}
	for i := range group {
		group[i].Comm.Spread(why)
	}
	if *err == nil {
		panic(p)
	}
}

// state is the state of a communicator's calls that run alone. The communicator's turn guards it.
type state struct {
	session *session.State
	shape   calls.Shape     // of the entry used last: a loop over one shape needs no look-up in the table
	entry   *dispatch.Entry // nil: none
}

var slot = comm.NewSlot[state]()

// Setup gives a communicator its state.
func Setup(c *comm.Core) {
	h := &state{session: session.Of(c)}
	slot.Set(c, h)
	c.AddHooks(comm.Hooks{Forget: func() { h.entry = nil }})
}

// Lend implements [comm.Lender].
func (h *state) Lend(q *sharedmem.Quick) { h.session.Arena.Lend(q, h.session.Seq) }

// TakeBack implements [comm.Lender].
func (h *state) TakeBack(q *sharedmem.Quick) { h.session.Seq = h.session.Arena.TakeBack(q) }

// yieldAlone is the number of yields of a call that runs alone, after its polls, before it waits as a session does.
const yieldAlone = 100

// runsAlone reports whether a group of one call needs no session: a collective through shared memory.
func runsAlone(c *calls.Call) bool {
	st := session.Of(c.Comm)
	return !c.Comm.NonBlocking && st.Optical == nil && c.Options == (calls.Options{}) && st.InArena(c.Kind) && !c.IsCut()
}

// runAlone runs a group of one collective through shared memory.
// Hot path: no allocation, no logging.
func runAlone(c *comm.Core, group []calls.Call) error {
	call := &group[0]
	c.Turn.Lock()
	defer c.Turn.Unlock()
	// Another thread may have failed or destroyed the communicator while this thread waited for the lock.
	if err := c.Usable(); err != nil {
		return err
	}
	h := slot.Of(c)
	st := h.session
	st.Begin()
	sh := calls.ShapeOf(call)
	if call.Count == 0 {
		st.Skip(&sh)
		return nil
	}
	if h.entry == nil || h.shape != sh {
		e, err := st.PacketEntry(sh)
		if err != nil {
			return c.Fail(err)
		}
		h.shape, h.entry = sh, e
	}
	ref := session.Ref{Comm: c, Entry: h.entry, Sig: h.entry.Signature}
	ref.Seq, ref.Flight = st.Next(&sh, ref.Entry)
	op := st.Op()
	ref.BindOp(op, call)
	if err := poll(group, ref, op); err != nil {
		return err
	}
	teach(c, call, &sh, ref.Entry, op)
	return nil
}

// poll drives the one operation of a call until it ends. Hot path: no allocation, no logging.
func poll(group []calls.Call, ref session.Ref, op *sharedmem.Op) error {
	c, st := ref.Comm, session.Of(ref.Comm)
	polls := st.Polls()
	yields, yielder := yieldAlone, st.Yielder()
	if !yielder.Begin() {
		yields = 0
	}
	for i := 0; i < polls+yields; i++ {
		_, done, err := op.Poll()
		switch {
		case err != nil:
			op.Abandon()
			s := session.New(group, c)
			defer s.Close()
			return s.Explain(&ref, err)
		case done:
			if i > session.SpinShort {
				st.Patience.Learn(polls, i < polls)
			}
			ref.Finish()
			return nil
		case i >= polls:
			if c.Failed() {
				op.Abandon()
				recorder.Of(c).End(ref.Flight, recorder.Failed)
				return c.AsyncError()
			}
			if !yielder.Yield(c.SoleRank) {
				yields = 0
			}
		}
	}
	return wait(group, ref, op)
}

// wait continues an operation as a session.
func wait(group []calls.Call, ref session.Ref, op *sharedmem.Op) error {
	s := session.New(group, ref.Comm)
	defer s.Close()
	if err := s.BindEngine(ref, op); err != nil {
		return err
	}
	return s.Drive()
}
