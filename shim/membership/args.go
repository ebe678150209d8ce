package membership

import (
	"errors"
	"fmt"
	"slices"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
)

// Args asks for one communicator of this process.
type Args struct {
	ID          bootstrap.UniqueID
	More        []bootstrap.UniqueID // the other ids if ranks meet at several places
	Ranks, Rank int
	// Device is the number of a device, negative for that of the calling thread's context.
	Device int
	// From is set if the communicator comes from another one. Then it has the parent's device, and ID, More, Ranks and
	// Rank are not read.
	From *Origin
	// NonBlocking: calls that would wait return [errdefs.ErrInProgress] and continue in the background.
	// [comm.Core.State] tells when they have completed.
	NonBlocking bool
	Name        string // for logs
}

// Check checks the arguments.
func (a *Args) Check() error {
	if a.From != nil {
		return a.From.check()
	}
	switch {
	case a.Ranks < 1 || a.Ranks > bootstrap.MaxRanks:
		return fmt.Errorf("shim: nranks %d is not in 1..%d: %w", a.Ranks, bootstrap.MaxRanks, errdefs.ErrInvalidArgument)
	case a.Rank < 0 || a.Rank >= a.Ranks:
		return fmt.Errorf("shim: rank %d is not in 0..%d: %w", a.Rank, a.Ranks-1, errdefs.ErrInvalidArgument)
	case len(a.More) >= a.Ranks:
		return fmt.Errorf("shim: nId %d is not in 1..%d, the ranks: %w", len(a.More)+1, a.Ranks, errdefs.ErrInvalidArgument)
	}
	for i := range a.More {
		if _, _, err := bootstrap.ParseID(&a.More[i]); err != nil {
			return err
		}
	}
	_, _, err := bootstrap.ParseID(&a.ID)
	return err
}

// resolve fills in the rank, ranks and device that follow from the parent. A split has its ranks when they have met.
func (a *Args) resolve() {
	o := a.From
	if o == nil {
		return
	}
	p := o.Parent
	a.Device, a.Ranks, a.Rank = p.Device, 0, 0
	switch o.How {
	case ByShrink:
		ranks := o.survivors()
		a.Ranks, a.Rank = len(ranks), slices.Index(ranks, p.Rank)
	case ByGrow:
		a.Ranks, a.Rank = o.Ranks, p.Rank
	}
}

// How is the way in which a communicator comes from another one, its parent.
type How int

// The ways.
const (
	// BySplit: one communicator per color. All ranks of the parent take part.
	BySplit How = iota + 1
	// ByShrink: one communicator of the ranks that are not excluded. The excluded ranks take no part.
	ByShrink
	// ByGrow: one communicator of all ranks of the parent and of new ranks, which join by an id.
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

// NoColor is the color of ranks that get no communicator from a split.
const NoColor = -1

// Origin names the communicator from which a new one comes, and how.
type Origin struct {
	Parent     *comm.Core
	How        How
	Color, Key int   // BySplit: Color NoColor or from 0 on; ranks are ordered by (Key, rank)
	Exclude    []int // ByShrink: ranks of the parent
	// Abort, ByShrink: the parent may have failed, and is revoked.
	Abort bool
	Ranks int                 // ByGrow
	ID    *bootstrap.UniqueID // ByGrow: of the rank that made it; nil at other ranks, or the same
}

// check checks what this rank asks for.
func (o *Origin) check() error {
	p := o.Parent
	if err := usable(p, o); err != nil {
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
				return fmt.Errorf("shim: excludeRanksList[%d] is %d: not one of ranks 0..%d, twice, or this rank itself: %w",
					i, r, n-1, errdefs.ErrInvalidArgument)
			}
		}
	case ByGrow:
		if o.Ranks <= n || o.Ranks > bootstrap.MaxRanks {
			return fmt.Errorf("shim: nRanks %d is not in %d..%d: %w", o.Ranks, n+1, bootstrap.MaxRanks,
				errdefs.ErrInvalidArgument)
		}
		if o.ID != nil {
			if _, _, err := bootstrap.ParseID(o.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// usable returns why no communicator can come from c, nil if one can. A revoked communicator can still be split and
// shrunk. A failed communicator can be shrunk with Abort. One whose ranks have never met has no one to ask.
func usable(c *comm.Core, o *Origin) error {
	err := c.Usable()
	shrink := o.How == ByShrink
	switch {
	case err == nil || c.Life() != comm.Alive || c.Unmade():
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

// survivors returns the ranks of the parent that a shrink does not exclude.
func (o *Origin) survivors() (ranks []int) {
	for r := range o.Parent.Ranks {
		if !slices.Contains(o.Exclude, r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
