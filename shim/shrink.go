package shim

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

// waitTurn waits for the shrink before this one; nil: there is none.
func waitTurn(c *comm.Core, before <-chan struct{}) error {
	if before == nil {
		return nil
	}
	select {
	case <-before:
		return nil
	case <-c.Context().Done():
		return c.Context().Err()
	}
}

// turn gives shrinks their turns, in the order of calls: ranks that make several meet at the same
// door for each. try numbers them; before, nil for the first, is closed when it is this one's, which calls over after it.
func (k *kinship) turn() (try uint64, before <-chan struct{}, over func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shrinks++
	last, end := k.shrunk, make(chan struct{})
	k.shrunk = end
	return k.shrinks, last, func() {
		if last == nil {
			close(end)
			return
		}
		go func() { // who did not wait for its turn does not give it away
			<-last
			close(end)
		}()
	}
}

// meetSurvivors meets the ranks that a shrink leaves at the door of the first of them: neither the
// parent's leader nor its control network need be there any more.
func meetSurvivors(c *comm.Core, h *bootstrap.Hello, try uint64) (err error) {
	o := birthOf(c).args.From
	p := o.Parent
	if o.Abort && p.AsyncError() == nil {
		p.Spread(fmt.Errorf("shim: rank %d shrinks the communicator (NCCL_SHRINK_ABORT): %w", p.Rank, errdefs.ErrRevoked))
	}
	if p.AsyncError() != nil {
		yieldCircuits(p)
	}
	h.Without, h.Was, h.Try = without(o.Exclude), p.Rank, int(try)
	first := &p.Table[o.survivors()[0]]
	c.Secret = p.Secret.Derive("shrink", p.ID, uint64(first.Rank))
	if c.Ranks == 1 {
		c.ID, c.Table = bootstrap.RandomID(), []bootstrap.Hello{*h}
		return nil
	}
	addr, err := netip.ParseAddrPort(first.Door)
	if err != nil {
		return fmt.Errorf("shim: %v: door of %s %q: %w", o.How, first.Where(), first.Door, control.ErrMessage)
	}
	at := bootstrap.Place{Addr: addr, Secret: c.Secret, Again: true}
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	var conflict atomic.Pointer[string]
	if c.Rank == 0 {
		birthOf(p).door.Hold(c.Secret, c.Cfg.Timeout, h.Try)
	} else {
		birthOf(p).door.Sign(p.Secret.Derive("shrink", p.ID, uint64(p.Rank)), h, c.Cfg.Timeout, ctx.Done(), func(why string) {
			conflict.Store(&why)
			// Those who agree with this rank wait for it there, and hear it first. Where the meeting has not begun,
			// those who come later hear it then.
			veto := &control.Message{Kind: control.MsgRefuse, Arg: try, Body: []byte(why)}
			if at.Veto(ctx, veto, bootstrap.VetoTime) {
				select {
				case <-ctx.Done():
				case <-time.After(bootstrap.VetoTime):
				}
			} else if ctx.Err() == nil {
				go vetoLater(p, &at, veto)
			}
			cancel(nil)
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

// vetoLater has a meeting refused that begins while this communicator is there and its time is not up.
func vetoLater(c *comm.Core, at *bootstrap.Place, veto *control.Message) {
	ctx, over := context.WithCancel(context.Background())
	go func() {
		at.Veto(ctx, veto, c.Cfg.Timeout)
		over()
	}()
	select {
	case <-ctx.Done():
	case <-c.Ended():
		over()
	}
}

// without names the ranks that a shrink leaves out: the same words for the same ranks only.
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

// yieldCircuits gives back the ports of a communicator that has failed, for one that comes
// from it.
func yieldCircuits(c *comm.Core) {
	c.Turn.Lock()
	defer c.Turn.Unlock()
	if l := live.Of(c); l != nil {
		l.Close()
	}
	circuits.Of(c).Close()
}
