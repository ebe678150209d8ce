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

	"lightpath/shim/bootstrap"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/status"
)

// waitTurn waits for the shrink before this one; nil: there is none.
func (c *Comm) waitTurn(before <-chan struct{}) error {
	if before == nil {
		return nil
	}
	select {
	case <-before:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
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

// meetAtDoor meets the ranks that a shrink leaves at the door of the first of them: neither the
// parent's leader nor its control network need be there any more.
func (c *Comm) meetAtDoor(h *bootstrap.Hello, try uint64) (err error) {
	o := c.args.From
	p := o.Parent
	if o.Abort && p.AsyncError() == nil {
		p.spread(fmt.Errorf("shim: rank %d shrinks the communicator (NCCL_SHRINK_ABORT): %w", p.args.Rank, errdefs.ErrRevoked))
	}
	if p.AsyncError() != nil {
		p.yieldCircuits()
	}
	h.Without, h.Was, h.Try = without(o.Exclude), p.args.Rank, int(try)
	first := &p.table[o.survivors()[0]]
	c.secret = p.secret.Derive("shrink", p.id, uint64(first.Rank))
	if c.args.Ranks == 1 {
		c.id, c.table = bootstrap.RandomID(), []bootstrap.Hello{*h}
		return nil
	}
	addr, err := netip.ParseAddrPort(first.Door)
	if err != nil {
		return fmt.Errorf("shim: %v: door of %s %q: %w", o.How, first.Where(), first.Door, control.ErrMessage)
	}
	at := bootstrap.Place{Addr: addr, Secret: c.secret, Again: true}
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	var conflict atomic.Pointer[string]
	if c.args.Rank == 0 {
		p.door.Hold(c.secret, c.cfg.Timeout, h.Try)
	} else {
		p.door.Sign(p.secret.Derive("shrink", p.id, uint64(p.args.Rank)), h, c.cfg.Timeout, ctx.Done(), func(why string) {
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
				go p.vetoLater(&at, veto)
			}
			cancel(nil)
		})
	}
	c.id, c.table, err = bootstrap.Meet(ctx, []bootstrap.Place{at}, h, c.cfg.Timeout)
	if err != nil && conflict.Load() != nil {
		return fmt.Errorf("shim: rank %d: communicator not made: %s: %w", p.args.Rank, *conflict.Load(), errdefs.ErrInvalidUsage)
	}
	if err != nil && errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("shim: %v: %s of the parent, where those that are left meet, is gone: %w", o.How, first.Where(), err)
	}
	return err
}

// vetoLater has a meeting refused that begins while this communicator is there and its time is not up.
func (c *Comm) vetoLater(at *bootstrap.Place, veto *control.Message) {
	ctx, over := context.WithCancel(context.Background())
	go func() {
		at.Veto(ctx, veto, c.cfg.Timeout)
		over()
	}()
	select {
	case <-ctx.Done():
	case <-c.kin.done():
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
func (c *Comm) yieldCircuits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.light == nil {
		return
	}
	if c.leader != nil {
		c.leader.close()
	}
	c.light.close()
}
