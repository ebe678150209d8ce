package stall

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"lightpath/internal/monotonic"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
)

// watchEvery is how often a rank compares its calls in progress with the departures of other ranks.
const watchEvery = 100 * time.Millisecond

// handleDepartures fails the communicator if a call in progress needs a rank that has left. It looks from the first
// departure on, at all paths' calls, in the flight recorder. So no wait and no call pays for it before. Groups whose
// messages are counted are left to their sessions, which know what is missing.
func handleDepartures(c *comm.Core) {
	var once sync.Once
	c.AddHooks(comm.Hooks{Departed: func() { once.Do(func() { go watchDepartures(c) }) }})
	c.Above.CountCalls, c.Above.CallInProgress = recorder.Of(c).CallsMade, recorder.Of(c).CallInProgress
}

// watchDepartures looks until this rank itself leaves.
func watchDepartures(c *comm.Core) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	known := map[int]int64{}
	for {
		select {
		case <-c.Ended():
			return
		case <-c.FailedChan():
			return
		case <-tick.C:
		}
		if err := needsAbsent(c, known); err != nil {
			c.Spread(err)
			return
		}
	}
}

// needsAbsent returns an error if a call in progress needs a rank that has left or, once no departure is told any more,
// whose process has ended. known has the time since when a call in progress may have waited for it in vain, by rank.
func needsAbsent(c *comm.Core, known map[int]int64) error {
	ops, stall := recorder.Of(c).InProgress()
	if len(ops) == 0 {
		return nil
	}
	now, gone, vanished := monotonic.Now(), c.Departures(), []int(nil)
	if c.LeaderGone() {
		vanished = slices.DeleteFunc(c.Vanished(), func(rank int) bool {
			return slices.ContainsFunc(gone, func(d control.Departure) bool { return d.Rank == rank })
		})
	}
	for i := range ops {
		op := &ops[i]
		// What a rank sent left it before this rank knew of its absence. A wait from before says nothing.
		waitsFor := func(rank int) bool {
			if known[rank] == 0 {
				known[rank] = now
			}
			return stall.Of(op) && stall.Wait.Peer == rank && stall.Seen > known[rank]
		}
		for _, d := range gone {
			switch {
			case op.Seq > 0 && op.Seq <= d.Collectives:
			case op.Seq > 0, !op.CountsMessages() && waitsFor(d.Rank):
				return Departed(c, op.Number, d)
			}
		}
		for _, rank := range vanished {
			if waitsFor(rank) || op.Seq > 0 && stall.Of(op) {
				return absent(c, op.Number, rank, "has ended")
			}
		}
	}
	return nil
}

// Departed returns the error of an operation, by its number in the flight recorder, that needs a rank that has left.
func Departed(c *comm.Core, number uint64, d control.Departure) error {
	return absent(c, number, d.Rank, comm.DestroyedAfter(d))
}

func absent(c *comm.Core, number uint64, rank int, how string) error {
	return fmt.Errorf("shim: %s %s; rank %d waits for it in %s: %w",
		c.Table[rank].Where(), how, c.Rank, recorder.Of(c).Text(number), errdefs.ErrRemote)
}
