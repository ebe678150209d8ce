package stall

import (
	"bytes"
	"encoding/json"
	"maps"
	"sync"

	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/status"
)

// sight holds the faults that ranks have reported to this rank. A stalled rank tells the leader, and the leader tells
// all ranks. So the error of each rank names the same faults, whichever rank gives up first.
type sight struct {
	mu   sync.Mutex
	told []byte                 // what this rank last told the leader
	seen map[int][]status.Fault // by rank
}

// handle collects the faults that ranks report, for the errors of this rank.
func (s *sight) handle(c *comm.Core) {
	s.seen = map[int][]status.Fault{}
	c.Handle(control.MsgFaults, func(m *control.Message) { s.take(c, m) })
	c.Above.Verdict = func() string { return s.verdict(c) }
}

// ReportFaults tells all ranks which faults this rank sees, if that has changed.
func ReportFaults(c *comm.Core) {
	s := &slot.Of(c).faults
	var text []byte
	if all := c.Faults(0); len(all) > 0 {
		text, _ = json.Marshal(all) // numbers and texts have no error
	}
	s.mu.Lock()
	same := bytes.Equal(text, s.told)
	s.told = text
	s.mu.Unlock()
	if !same {
		// If the leader is gone, the communicator fails by itself.
		_ = c.Star.ToLeader(&control.Message{Kind: control.MsgFaults, Body: text})
	}
}

// take records the faults that a rank reports. The leader forwards them.
func (s *sight) take(c *comm.Core, m *control.Message) {
	rank := int(m.Arg)
	if c.Rank == 0 {
		rank = int(m.From)
		c.Star.Broadcast(&control.Message{Kind: control.MsgFaults, Arg: uint64(rank), Body: m.Body}, -1)
	}
	var all []status.Fault
	if len(m.Body) > 0 && json.Unmarshal(m.Body, &all) != nil || rank < 0 || rank >= c.Ranks {
		return
	}
	s.mu.Lock()
	s.seen[rank] = all
	s.mu.Unlock()
}

// verdict names the faults that ranks have reported, and what this rank sees now.
func (s *sight) verdict(c *comm.Core) string {
	own := c.Faults(0)
	s.mu.Lock()
	seen := maps.Clone(s.seen)
	s.mu.Unlock()
	seen[c.Rank] = own
	return status.Verdict(seen, func(rank int) string {
		if rank < 0 || rank >= len(c.Table) {
			return "a rank"
		}
		return c.Table[rank].Where()
	})
}
