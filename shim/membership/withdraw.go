package membership

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"lightpath/internal/brief"
	"lightpath/shim/bootstrap"
	"lightpath/shim/errdefs"
)

// Refuse tells the other ranks of communicators that this process makes none of them, and why.
func Refuse(args []Args, why error) {
	var wg sync.WaitGroup
	for _, a := range args {
		if a.Check() != nil {
			if o := a.From; o != nil && o.How == ByGrow && o.ID != nil && o.Parent.Failed() {
				wg.Go(func() { o.refuseNew(why) })
			}
			continue // there are no other ranks, or no place to tell them
		}
		a.resolve()
		st := &State{Args: a}
		st.Begin()
		wg.Go(func() {
			st.Withdraw(why)
			st.EndTurn()
			st.End()
		})
	}
	wg.Wait()
}

// withdrawTime bounds the time that a rank takes to withdraw, abortTime if its program waits in an abort.
const (
	withdrawTime = 3 * time.Second
	abortTime    = 500 * time.Millisecond
)

// Withdraw tells the other ranks that this rank does not make the communicator, and why, unless they have heard of it.
// Otherwise they wait for it until their timeout. The caller has called Begin, and calls EndTurn afterwards.
func (st *State) Withdraw(why error) {
	if o := st.Args.From; o != nil && o.How == ByGrow && o.ID != nil && st.Args.ID != *o.ID {
		o.refuseNew(why)
	}
	if st.heard {
		return
	}
	h := st.leaves(why)
	switch o := st.Args.From; {
	case o == nil:
		within := timeFor(why)
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if places, err := st.Args.places(&h); err == nil {
			bootstrap.Leave(ctx, places, &h, within)
		}
	case o.How == ByShrink:
		st.withdrawFromShrink(&h)
	default:
		_ = o.send(st.number, &request{Color: o.Color, Key: o.Key, Ranks: o.Ranks, Hello: h})
	}
}

// timeFor returns the time that a rank takes to withdraw.
func timeFor(why error) time.Duration {
	if errors.Is(why, errdefs.ErrAborted) {
		return abortTime
	}
	return withdrawTime
}

// refuseNew tells the new ranks of a grow, which meet at an id of this rank, that the parent's ranks do not come. The
// id is of no more use.
func (o *Origin) refuseNew(why error) {
	Of(o.Parent).requests.spend(o.ID)
	addr, secret, err := bootstrap.ParseID(o.ID)
	if err != nil {
		return
	}
	text := brief.Text("the ranks of the communicator do not grow it: "+why.Error(), 4096)
	at := bootstrap.Place{Addr: addr, Secret: secret}
	at.Veto(context.Background(), bootstrap.Refusal(text, why), timeFor(why))
}

// leaves returns the hello of a rank that does not take part.
func (st *State) leaves(why error) bootstrap.Hello {
	name, _ := os.Hostname() // only for the message
	return bootstrap.Hello{Rank: st.Args.Rank, Ranks: st.Args.Ranks, Name: name, PID: os.Getpid(),
		Version: bootstrap.Version, Leaves: brief.Text(why.Error(), 4096)}
}
