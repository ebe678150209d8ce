package shim

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"lightpath/collectives/exec"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/ticket"
)

// runMixed runs a group with communicators that have circuits. Each communicator gets its
// own thread of control: an operation on circuits waits for its ticket, and the calls of
// other communicators, that ranks elsewhere may have to finish first, must not wait for it.
func (s *session) runMixed() error {
	if len(s.comms) == 1 {
		return s.runCircuits(s.comms[0])
	}
	errs := make([]error, len(s.comms))
	var wg sync.WaitGroup
	for i, c := range s.comms {
		wg.Go(func() {
			sub := sessions.Get().(*session)
			sub.calls, sub.comms, sub.opts.Deadline = s.calls, append(sub.comms, c), s.opts.Deadline
			errs[i] = sub.runCircuits(c)
			sub.reset()
			sessions.Put(sub)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// runCircuits runs the calls of one communicator in their order, each under its ticket.
func (s *session) runCircuits(c *comm.Core) error {
	if opticalOf(c) == nil {
		if err := s.bind(c); err != nil {
			return err
		}
		return s.drive()
	}
	for i := range s.calls {
		if call := &s.calls[i]; call.Comm != c || call.Kind.P2P() {
			continue
		}
		hostOf(c).begin()
		s.tasks, s.refs = s.tasks[:0], s.refs[:0]
		run := s.runTicketed
		if s.cross != nil {
			run = s.runCrossing
		}
		if err := run(c, i); err != nil {
			return err
		}
	}
	hostOf(c).begin()
	s.tasks, s.refs = s.tasks[:0], s.refs[:0]
	first, err := s.gather(c)
	switch {
	case err != nil || first < 0:
		return err
	case postsRounds(c):
		return s.runRound(c, first)
	}
	if err := s.bindMessages(c, first); err != nil {
		return err
	}
	return s.drive()
}

// runTicketed runs one collective as the leader decides.
func (s *session) runTicketed(c *comm.Core, i int) error {
	o, call := opticalOf(c), &s.calls[i]
	if err := call.Resolve(); err != nil {
		return err
	}
	sh := calls.ShapeOf(call)
	if call.Count == 0 || o.packet[planning.ShapeOf(sh)] {
		// All ranks know that this shape needs no ticket.
		if err := s.bindPacket(c, i); err != nil {
			return err
		}
		return s.drive()
	}
	ref := taskRef{comm: c, call: i, sig: sh.Signature()}
	ref.seq, ref.flight = hostOf(c).next(&sh, nil)
	recorder.Of(c).Asked(ref.flight, false)
	t, err := s.ticket(&ref)
	if err != nil {
		return c.Fail(err)
	}
	recorder.Of(c).Asked(ref.flight, true)
	if err := s.bindTicket(ref, t, sh); err != nil {
		return c.Fail(err)
	}
	e := s.refs[0].entry
	recorder.Of(c).Bound(ref.flight, e, t.Use, e.Plan != nil)
	if err := s.drive(); err != nil {
		return err
	}
	if e.Plan != nil {
		o.advance(t.Use, e.Prog.Configs)
	}
	if err := c.Star.ToLeader(&control.Message{Kind: control.MsgDone, Seq: ref.seq}); err != nil {
		return c.Fail(err)
	}
	return nil
}

// bindTicket binds the task that a ticket asks for.
func (s *session) bindTicket(ref taskRef, t *ticket.Ticket, sh calls.Shape) (err error) {
	c := ref.comm
	o := opticalOf(c)
	o.learn(t)
	if t.Flags&ticket.Packet != 0 {
		if t.Flags&ticket.Always != 0 {
			o.packet[planning.ShapeOf(sh)] = true
		}
		if ref.entry, err = packetEntry(c, sh); err != nil {
			return err
		}
		return s.bindPacketEntry(ref)
	}
	if err := o.settle(t); err != nil {
		return fmt.Errorf("shim: rank %d operation %d: %w", c.Rank, ref.seq, err)
	}
	plan, err := o.obtain(t, ref.seq, sh)
	if err != nil {
		return err
	}
	if ref.entry, err = o.entry(sh, plan, t.Use); err != nil {
		return err
	}
	var switchAt [][]int64
	if t.Start != 0 {
		switchAt = o.due(ref.entry.Prog, t.Start)
	} else if err := o.giveUp(t.Use, ref.entry.Prog.Configs); err != nil {
		return err
	}
	return s.bindEntry(ref, o.end, o, switchAt)
}

// ticket asks for and waits for the decision on an operation. While it waits it tells the
// leader, as a stalled operation does, so that mismatched calls and missing ranks are
// found.
func (s *session) ticket(ref *taskRef) (*ticket.Ticket, error) {
	c := ref.comm
	if err := c.Star.ToLeader(&control.Message{Kind: control.MsgWant, Seq: ref.seq, Arg: uint64(ref.sig)}); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(c.Cfg.Timeout)
	own := !s.opts.Deadline.IsZero() && s.opts.Deadline.Before(deadline)
	if own {
		deadline = s.opts.Deadline
	}
	for {
		m, err := c.AwaitFor(control.MsgTicket, ref.seq, min(time.Second, time.Until(deadline)))
		switch {
		case err == nil:
			if err := ticket.Decode(m.Body, &opticalOf(c).ticket); err != nil {
				return nil, err
			}
			t := &opticalOf(c).ticket
			return t, opticalOf(c).fits(t)
		case !errors.Is(err, comm.ErrNothing):
			return nil, err
		case time.Now().Before(deadline):
			reportCall(c, control.MsgState, ref.seq, ref.sig, &s.calls[ref.call])
		case own:
			return nil, fmt.Errorf("shim: rank %d operation %d: no ticket by the call's deadline: %w", c.Rank, ref.seq, exec.ErrDeadline)
		default:
			reportTimeout(c, ref.seq, ref.sig, &s.calls[ref.call], nil)
			if _, err := c.AwaitFor(control.MsgTicket, ref.seq, time.Second); !errors.Is(err, comm.ErrNothing) && err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("shim: rank %d operation %d: no ticket in %v: %w", c.Rank, ref.seq, c.Cfg.Timeout, errdefs.ErrTimeout)
		}
	}
}
