package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
)

// How says how a communicator comes from another one, its parent.
type How int

// The ways.
const (
	// BySplit: one communicator per colour; everyone in the parent takes part.
	BySplit How = iota + 1
	// ByShrink: one communicator of those that are left. Those left out take no part.
	ByShrink
	// ByGrow: one communicator of everyone in the parent and others, who join by an id.
	ByGrow
)

// String names the call.
func (h How) String() string {
	switch h {
	case BySplit:
		return "ncclCommSplit"
	case ByShrink:
		return "ncclCommShrink"
	case ByGrow:
		return "ncclCommGrow"
	}
	return fmt.Sprintf("How(%d)", int(h))
}

// NoColor is the colour of those who get no communicator from a split.
const NoColor = -1

// Origin is where a communicator comes from.
type Origin struct {
	Parent     *comm.Core
	How        How
	Color, Key int   // BySplit: Color NoColor or from 0 on; ranks are ordered by (Key, rank)
	Exclude    []int // ByShrink: ranks of the parent
	// Abort, ByShrink: the parent may have failed, and is revoked.
	Abort bool
	Ranks int       // ByGrow
	ID    *UniqueID // ByGrow: of the rank that made it; nil at others, or the same
}

// kinAsk is what a rank tells the parent's leader.
type kinAsk struct {
	Color, Key int
	Ranks      int
	ID         []byte
	Hello      bootstrap.Hello
}

// kinAnswer is the leader's answer: the new communicator, the id to meet at, or neither for
// those without a colour.
type kinAnswer struct {
	Comm  uint64
	Rank  int
	Table []bootstrap.Hello
	ID    []byte
}

// check reports whether o can be begun.
func (o *Origin) check() error {
	p := o.Parent
	if err := parental(p, o); err != nil {
		return err
	}
	n := p.Ranks
	switch o.How {
	case BySplit:
		if o.Color < NoColor {
			return fmt.Errorf("shim: color %d is negative and not NCCL_SPLIT_NOCOLOR: %w", o.Color, errdefs.ErrInvalidArgument)
		}
	case ByShrink:
		if len(o.Exclude) == 0 || len(o.Exclude) >= n {
			return fmt.Errorf("shim: excludeRanksCount %d is not in 1..%d: %w", len(o.Exclude), n-1, errdefs.ErrInvalidArgument)
		}
		for i, r := range o.Exclude {
			if r < 0 || r >= n || r == p.Rank || slices.Contains(o.Exclude[:i], r) {
				return fmt.Errorf("shim: excludeRanksList[%d] is %d: not one of ranks 0..%d, twice, or this rank itself: %w", i, r, n-1, errdefs.ErrInvalidArgument)
			}
		}
	case ByGrow:
		if o.Ranks <= n || o.Ranks > bootstrap.MaxRanks {
			return fmt.Errorf("shim: nRanks %d is not in %d..%d: %w", o.Ranks, n+1, bootstrap.MaxRanks, errdefs.ErrInvalidArgument)
		}
		if o.ID != nil {
			if _, _, err := bootstrap.ParseID(o.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// parental reports why nothing can come from a communicator. One that was revoked, here or
// elsewhere, can still be split and shrunk, one that has failed shrunk with Abort.
func parental(c *comm.Core, o *Origin) error {
	err := c.Usable()
	shrink := o.How == ByShrink
	switch {
	case err == nil || c.Life() != comm.Alive:
		return err
	case shrink && o.Abort:
		return nil
	case c.Busy() != nil:
		return err
	case o.How != ByGrow && (c.Revoked() || errors.Is(err, errdefs.ErrRevoked)):
		return nil
	}
	return err
}

// survivors are the ranks of the parent that a shrink leaves.
func (o *Origin) survivors() (ranks []int) {
	for r := range o.Parent.Ranks {
		if !slices.Contains(o.Exclude, r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// kinship is what comes from a communicator: its births are counted, so that ranks mean the
// same one. Safe for concurrent use.
type kinship struct {
	mu      sync.Mutex
	births  uint64
	waits   map[uint64]chan *control.Message
	grow    *UniqueID // made for growing, and not used yet
	shrinks uint64    // that were asked for
	// shrunk is closed when the last shrink that was asked for is over; nil before the first.
	shrunk chan struct{}
}

// spend forgets the id that was made for growing, once it is used.
func (k *kinship) spend(id *UniqueID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.grow != nil && *k.grow == *id {
		k.grow = nil
	}
}

// GrowID makes the id by which others join the next communicator that grows out of this one.
// There is one at a time, and each is good for one use.
func GrowID(c *comm.Core) (UniqueID, error) {
	if err := c.Usable(); err != nil {
		return UniqueID{}, err
	}
	birthOf(c).kin.mu.Lock()
	defer birthOf(c).kin.mu.Unlock()
	if birthOf(c).kin.grow != nil {
		return UniqueID{}, fmt.Errorf("shim: the id that ncclCommGetUniqueId made before has not been used yet: %w", errdefs.ErrInvalidUsage)
	}
	id, err := bootstrap.NewID(c.Cfg)
	if err == nil {
		birthOf(c).kin.grow = &id
	}
	return id, err
}

// next numbers a birth, in the order of calls.
func (k *kinship) next() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.births++
	return k.births
}

// expect registers for the answer to a birth.
func (k *kinship) expect(seq uint64) <-chan *control.Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waits == nil {
		k.waits = map[uint64]chan *control.Message{}
	}
	ch := make(chan *control.Message, 1)
	k.waits[seq] = ch
	return ch
}

func (k *kinship) forget(seq uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.waits, seq)
}

// answer delivers the leader's word to whoever waits for it.
func (k *kinship) answer(m *control.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ch := k.waits[m.Seq]; ch != nil {
		delete(k.waits, m.Seq)
		ch <- m
	}
}

// agreeWithParent asks the parent's leader for birth number seq of c, and returns what it has decided
// with everyone. It ends with the communicator that is made, with the parent, and where the
// parent was healthy with its failure.
func agreeWithParent(c *comm.Core, seq uint64, ask *kinAsk) (*kinAnswer, error) {
	o := birthOf(c).args.From
	p := o.Parent
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, fmt.Errorf("shim: %v: %w", o.How, err)
	}
	answered := birthOf(p).kin.expect(seq)
	defer birthOf(p).kin.forget(seq)
	failed := p.FailedChan()
	if p.AsyncError() != nil {
		failed = nil // revoked, as is known
	}
	if err := p.Star.ToLeader(&control.Message{Kind: control.MsgKin, Seq: seq, Arg: uint64(o.How), Body: body}); err != nil {
		return nil, err
	}
	timer := time.NewTimer(p.Cfg.Timeout + bootstrap.RefusalGrace)
	defer timer.Stop()
	select {
	case m := <-answered:
		if m.Arg != 0 {
			m.Arg-- // 0 is no error here
			return nil, result.Decode(m)
		}
		a := new(kinAnswer)
		return a, control.DecodeStrict(m.Body, a)
	case <-c.Context().Done():
		return nil, c.AsyncError()
	case <-failed:
		return nil, p.AsyncError()
	case <-p.Ended():
		return nil, fmt.Errorf("shim: %v: the parent was destroyed: %w", o.How, errdefs.ErrDestroyed)
	case <-p.Star.EveryoneLeft():
		return nil, fmt.Errorf("shim: %v: rank 0 of the parent is gone: %w", o.How, errdefs.ErrRemote)
	case <-timer.C:
		return nil, fmt.Errorf("shim: %v: no word from rank 0 of the parent in %v: %w", o.How, p.Cfg.Timeout, errdefs.ErrTimeout)
	}
}
