package comm

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/status"
)

// departures records the ranks that make no more calls.
type departures struct {
	mu   sync.Mutex
	list []control.Departure
}

// Departures returns the ranks that have destroyed or finalized the communicator, in the order in which this rank was
// told of them.
func (c *Core) Departures() []control.Departure {
	c.gone.mu.Lock()
	defer c.gone.mu.Unlock()
	return slices.Clone(c.gone.list)
}

// peerDeparted is called when a rank has said goodbye. That is no failure: this rank may have made all its calls too.
func (c *Core) peerDeparted(d control.Departure) {
	c.gone.mu.Lock()
	c.gone.list = append(c.gone.list, d)
	c.gone.mu.Unlock()
	c.each(func(h *Hooks) func() { return h.Departed })
}

// LeaderGone reports whether the connection to the leader has ended. Then no rank is told of departures and failures
// by it. LeaderGone is meaningful while this rank has not left.
func (c *Core) LeaderGone() bool {
	select {
	case <-c.Star.EveryoneLeft():
		return c.Rank != 0
	default:
		return false
	}
}

// tellRanks sends a failure to the other ranks after the leader has ended.
func (c *Core) tellRanks(m *control.Message) {
	m.From = uint16(c.Rank)
	c.Above.TellRanks(m)
}

// Vanished returns the ranks on this host whose processes have ended.
func (c *Core) Vanished() (ranks []int) {
	me := &c.Table[c.Rank]
	for i := range c.Table {
		h := &c.Table[i]
		if h.Host == me.Host && h.PIDs == me.PIDs && h.PID != me.PID && status.ProcessAnswer(h.PID) == status.Gone {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// lostGrace is how long other ranks have to complete calls that a lost rank has completed. Its data has mostly arrived.
const lostGrace = 200 * time.Millisecond

// peerLost is called when a control connection ends without a goodbye.
func (c *Core) peerLost(rank int, cause error) {
	if errors.Is(cause, io.EOF) {
		cause = errEnded
	}
	time.AfterFunc(lostGrace, func() { c.failLost(rank, cause) })
}

func (c *Core) failLost(rank int, cause error) {
	c.Spread(fmt.Errorf("shim: lost %s: %w%s: %w", c.Table[rank].Where(), cause, c.inCall(), errdefs.ErrRemote))
}

// errEnded says in an error why a control connection has ended.
var errEnded = errors.New("its process has ended, or closed the connection, without ncclCommDestroy")

// inCall names this rank's call in progress, to be added to an error. It is "" if there is none.
func (c *Core) inCall() string {
	if call := c.Above.CallInProgress(); call != "" {
		return fmt.Sprintf("; rank %d is in %s", c.Rank, call)
	}
	return ""
}

// leaderEnded returns the error of waiting for the leader after its connection has ended.
func (c *Core) leaderEnded() error {
	how := "has ended"
	for _, d := range c.Departures() {
		if d.Rank == 0 {
			how = "has ended; it " + DestroyedAfter(d)
		}
	}
	return fmt.Errorf("shim: %s %s%s: %w", c.Table[0].Where(), how, c.inCall(), errdefs.ErrRemote)
}

// DestroyedAfter says in an error how a rank has left.
func DestroyedAfter(d control.Departure) string {
	if d.Calls == 1 {
		return "destroyed its communicator after 1 call"
	}
	return fmt.Sprintf("destroyed its communicator after %d calls", d.Calls)
}
