package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"lightpath/shim/arbiter/live"
	"lightpath/shim/bootstrap"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/status"
)

// turn makes shrinks run one after another, in the order of calls, since ranks meet at the same rendezvous for each.
// try is the shrink's number. before is closed when the shrink may run; it is nil for the first. The caller calls over
// afterwards.
func (q *requests) turn() (try uint64, before <-chan struct{}, over func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shrinks++
	last, end := q.shrunk, make(chan struct{})
	q.shrunk = end
	return q.shrinks, last, func() {
		if last == nil {
			close(end)
			return
		}
		go func() { // the next shrink also waits for the predecessor of this shrink
			<-last
			close(end)
		}()
	}
}

// meetSurvivors meets the ranks that a shrink does not exclude, at the rendezvous of their first. The parent's leader
// and control network may have ended.
func meetSurvivors(c *comm.Core, h *bootstrap.Hello) error {
	st := Of(c)
	o := st.Args.From
	p := o.Parent
	if o.Abort && p.AsyncError() == nil {
		p.Spread(fmt.Errorf("shim: rank %d shrinks the communicator (NCCL_SHRINK_ABORT): %w", p.Rank, errdefs.ErrRevoked))
	}
	if p.AsyncError() != nil {
		yieldCircuits(p)
	}
	st.describe(h)
	first, at, err := o.place()
	c.Secret = at.Secret
	if c.Ranks == 1 {
		c.ID, c.Table = bootstrap.RandomID(), []bootstrap.Hello{*h}
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	var conflict atomic.Pointer[string]
	if c.Rank == 0 {
		st.startMeeting(p, at.Secret)
		go refuseForEnded(ctx, p, o.survivors(), at)
	} else {
		Of(p).rendezvous.RefuseOthers(p.Secret.Derive("shrink", p.ID, uint64(p.Rank)), h, c.Cfg.Timeout, ctx.Done(),
			func(why string) {
				conflict.Store(&why)
				st.veto(ctx, at, why)
				cancel()
			})
	}
	c.ID, c.Table, err = bootstrap.Meet(ctx, []bootstrap.Place{at}, h, c.Cfg.Timeout)
	if err != nil && conflict.Load() != nil {
		return fmt.Errorf("shim: rank %d: communicator not made: %s: %w", p.Rank, *conflict.Load(), errdefs.ErrInvalidUsage)
	}
	if err != nil && errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("shim: %v: %s of the parent, where those that are left meet, is gone: %w", o.How, first.Where(), err)
	}
	return err
}

// refuseForEnded ends a meeting of ranks of p when the process of one of them has ended. It returns when ctx ends.
func refuseForEnded(ctx context.Context, p *comm.Core, ranks []int, at bootstrap.Place) {
	if err := control.AwaitEnded(ctx, ranks, func(rank int) error { return Ended(p, rank) }); err != nil {
		at.Veto(ctx, bootstrap.Refusal(err.Error(), err), bootstrap.VetoTime)
	}
}

// veto tells the meeting of a shrink that another list of ranks excludes this rank's, until ctx ends. Ranks that agree
// with this rank wait for it there, and get the refusal first. If the meeting has not begun, they get it when they
// arrive.
func (st *State) veto(ctx context.Context, at bootstrap.Place, why string) {
	refusal := &control.Message{Kind: control.MsgRefuse, Arg: st.number, Body: []byte(why)}
	if at.Veto(ctx, refusal, bootstrap.VetoTime) {
		select {
		case <-ctx.Done():
		case <-time.After(bootstrap.VetoTime):
		}
	} else if p := st.Args.From.Parent; ctx.Err() == nil {
		go during(p, func(ctx context.Context) { at.Veto(ctx, refusal, p.Cfg.Timeout) })
	}
}

// describe adds the shrink to a hello.
func (st *State) describe(h *bootstrap.Hello) {
	o := st.Args.From
	h.Without, h.Was, h.Try = without(o.Exclude), o.Parent.Rank, int(st.number)
}

// place returns the first rank that a shrink does not exclude, and its rendezvous.
func (o *Origin) place() (first *bootstrap.Hello, at bootstrap.Place, err error) {
	first = &o.Parent.Table[o.survivors()[0]]
	at = bootstrap.Place{Secret: o.Parent.Secret.Derive("shrink", o.Parent.ID, uint64(first.Rank)), Again: true}
	if at.Addr, err = netip.ParseAddrPort(first.Rendezvous); err != nil {
		err = fmt.Errorf("shim: %v: rendezvous of %s %q: %w", o.How, first.Where(), first.Rendezvous, control.ErrMessage)
	}
	return first, at, err
}

// startMeeting starts the meeting of a shrink at its first rank, once.
func (st *State) startMeeting(p *comm.Core, s control.Secret) {
	if st.meeting == nil {
		st.meeting = Of(p).rendezvous.StartMeeting(s, p.Cfg.Timeout, int(st.number))
	}
}

// withdrawFromShrink tells the ranks that come to the meeting of a shrink that this rank does not. The meeting may
// begin later. The next shrink, which has the same meeting place, waits until they know.
func (st *State) withdrawFromShrink(h *bootstrap.Hello) {
	o, over := st.Args.From, st.over
	first, at, err := o.place()
	if err != nil || h.Ranks == 1 {
		return
	}
	st.describe(h)
	st.over = nil
	go during(o.Parent, func(ctx context.Context) {
		defer over()
		if st.Await(ctx) != nil {
			return
		}
		if first.Rank == o.Parent.Rank {
			st.startMeeting(o.Parent, at.Secret)
		}
		_, _, _ = bootstrap.Meet(ctx, []bootstrap.Place{at}, h, o.Parent.Cfg.Timeout)
		_ = wait(ctx, st.meeting)
	})
}

// during does work, whose context ends with a communicator.
func during(c *comm.Core, work func(ctx context.Context)) {
	ctx, over := context.WithCancel(context.Background())
	go func() {
		work(ctx)
		over()
	}()
	select {
	case <-ctx.Done():
	case <-c.Ended():
		over()
	}
}

// without returns text that names the ranks a shrink excludes. Equal texts mean equal ranks.
func without(ranks []int) string {
	ranks = slices.Sorted(slices.Values(ranks))
	s := status.ListRanks(ranks)
	if strings.HasSuffix(s, " more") {
		h := fnv.New64a()
		for _, r := range ranks {
			_, _ = h.Write(binary.LittleEndian.AppendUint16(nil, uint16(r))) // never fails
		}
		s += fmt.Sprintf(" (list %016x)", h.Sum64())
	}
	return s
}

// yieldCircuits gives back the ports of a failed parent, for the communicator that comes from it.
func yieldCircuits(c *comm.Core) {
	c.Turn.Lock()
	defer c.Turn.Unlock()
	if l := live.Of(c); l != nil {
		l.Close()
	}
	circuits.Of(c).Close()
}
