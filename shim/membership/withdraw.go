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
	if st.heard {
		return
	}
	h := st.leaves(why)
	switch o := st.Args.From; {
	case o == nil:
		within := withdrawTime
		if errors.Is(why, errdefs.ErrAborted) {
			within = abortTime
		}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if places, err := st.Args.places(&h); err == nil {
			_, _, _ = bootstrap.Meet(ctx, places, &h, within)
		}
	case o.How == ByShrink:
		st.withdrawFromShrink(&h)
	default:
		_ = o.send(st.number, &request{Color: o.Color, Key: o.Key, Ranks: o.Ranks, Hello: h})
	}
}

// leaves returns the hello of a rank that does not take part.
func (st *State) leaves(why error) bootstrap.Hello {
	name, _ := os.Hostname() // only for the message
	return bootstrap.Hello{Rank: st.Args.Rank, Ranks: st.Args.Ranks, Name: name, PID: os.Getpid(),
		Version: bootstrap.Version, Leaves: brief.Text(why.Error(), 4096)}
}
