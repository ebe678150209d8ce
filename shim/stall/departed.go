package stall

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
)

// watchEvery is how often a rank compares its calls in progress with the departures of other ranks.
const watchEvery = 100 * time.Millisecond

// handleDepartures fails the communicator if a call in progress needs a rank that has left. It looks from the first
// departure on, at all paths' calls, in the flight recorder. So no wait and no call pays for it before.
func handleDepartures(c *comm.Core) {
	var once sync.Once
	c.AddHooks(comm.Hooks{Departed: func() { once.Do(func() { go watchDepartures(c) }) }})
	c.Above.CountCalls, c.Above.CallInProgress = recorder.Of(c).CallsMade, recorder.Of(c).CallInProgress
}

// watchDepartures looks until this rank itself leaves.
func watchDepartures(c *comm.Core) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.Ended():
			return
		case <-c.FailedChan():
			return
		case <-tick.C:
		}
		if err := needsDeparted(c); err != nil {
			c.Spread(err)
			return
		}
	}
}

// needsDeparted returns an error if a call in progress needs a rank that has left.
func needsDeparted(c *comm.Core) error {
	ops, stall := recorder.Of(c).InProgress()
	if len(ops) == 0 {
		return nil
	}
	gone := c.Departures()
	for i := range ops {
		op := &ops[i]
		for _, d := range gone {
			if needs(op, &stall, d) {
				return departed(c, op, d.Rank, comm.DestroyedAfter(d))
			}
		}
		if !stall.Of(op) || !c.LeaderGone() {
			continue
		}
		// No rank would be told of another departure.
		for _, rank := range c.Vanished() {
			if !slices.ContainsFunc(gone, func(d control.Departure) bool { return d.Rank == rank }) {
				return departed(c, op, rank, "has ended")
			}
		}
	}
	return nil
}

// needs reports whether an operation cannot complete after a departure. A collective needs every rank. Other operations
// have no number that ranks share: one needs the rank if it waits for it and does not move, since everything that the
// rank sent left it before its departure was told.
func needs(op *recorder.Operation, stall *recorder.Standstill, d control.Departure) bool {
	if op.Seq > 0 {
		return op.Seq > d.Collectives
	}
	return stall.Of(op) && stall.Wait.Peer == d.Rank
}

func departed(c *comm.Core, op *recorder.Operation, rank int, how string) error {
	return fmt.Errorf("shim: %s %s; rank %d waits for it in %v: %w",
		c.Table[rank].Where(), how, c.Rank, op, errdefs.ErrRemote)
}
