package stall

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
)

// Awaited is what a rank waits for from a peer in a group of sends and receives. The group cannot end before the peer
// has called that many sends.
type Awaited struct {
	Rank        int    `json:"rank"`        // that waits
	Messages    uint64 `json:"messages"`    // receives from the peer that it has called since the communicator was made
	Collectives uint64 `json:"collectives"` // that it has called
}

// awaited holds, by rank, the last report of what that rank waits for from this rank. An old entry does no harm: it
// means nothing once this rank has called that many sends.
type awaited struct {
	mu     sync.Mutex
	byRank map[int]Awaited
}

// handle makes this rank remember what others wait for from it. The leader forwards.
func (s *awaited) handle(c *comm.Core) {
	s.byRank = map[int]Awaited{}
	c.Handle(control.MsgAwaited, func(m *control.Message) {
		switch {
		case m.Arg >= uint64(c.Ranks):
			return
		case c.Rank == 0 && m.Arg != 0:
			go c.Star.To(int(m.Arg), &control.Message{Kind: control.MsgAwaited, Arg: m.Arg, Body: m.Body})
			return
		}
		var a Awaited
		if json.Unmarshal(m.Body, &a) != nil || a.Rank < 0 || a.Rank >= c.Ranks {
			return
		}
		s.mu.Lock()
		s.byRank[a.Rank] = a
		s.mu.Unlock()
	})
}

// ReportAwaited tells a peer what this rank waits for from it.
func ReportAwaited(c *comm.Core, peer int, a Awaited) {
	text, _ := json.Marshal(a) // numbers have no error
	// If the leader is gone, the communicator fails by itself.
	_ = c.Star.ToLeader(&control.Message{Kind: control.MsgAwaited, Arg: uint64(peer), Body: text})
}

// Unsent returns an error if another rank waits for a message whose send this rank has not called. Meanwhile this rank
// is in a collective that the other rank has not called. Then neither can continue: this rank sends nothing before the
// collective ends. sent returns the number of sends that this rank has called to a rank.
func Unsent(c *comm.Core, seq uint64, call string, sent func(rank int) uint64) error {
	s := &slot.Of(c).awaited
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rank := range slices.Sorted(maps.Keys(s.byRank)) {
		a, n := s.byRank[rank], sent(rank)
		if a.Messages > n && a.Collectives < seq {
			return fmt.Errorf("shim: rank %d has called %d receives from rank %d, which has called %d sends to it: "+
				"rank %d waits in a receive, rank %d in operation %d, %s: %w",
				rank, a.Messages, c.Rank, n, rank, c.Rank, seq, call, errdefs.ErrMismatch)
		}
	}
	return nil
}
