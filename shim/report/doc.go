// Package report reports on the communicators of this process: their status, questions to all ranks, memory, metrics.
// It serves the reports at a socket of the process and at NCCL's RAS port, and writes the file of LIGHTPATH_METRICS.
//
// Layer 6: it may import session, stream, circuits and the rooms below them. It never changes a communicator, and
// knows no path.
package report

import (
	"sync"

	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/status"
)

// Request holds the arguments for a communicator. Until its ranks have met, nothing else is known of it.
type Request struct {
	Key, Name           string
	Ranks, Rank, Device int // Ranks 0, Rank -1: not known yet
}

// State is the reports of one communicator.
type State struct {
	Owed    Owed // at the leader
	request Request
	mu      sync.Mutex
	last    uint64                      // question of this rank
	open    map[uint64]chan status.Rank // answers to its open questions
}

var slot = comm.NewSlot[State]()

// Of returns the reports of a communicator.
func Of(c *comm.Core) *State { return slot.Of(c) }

// Setup prepares the reports of a communicator.
func Setup(c *comm.Core, r Request) {
	slot.Set(c, &State{request: r})
	c.Handle(control.MsgAsk, func(m *control.Message) { handleAsk(c, m) })
	c.Handle(control.MsgTell, func(m *control.Message) { handleTell(c, m) })
	c.AddHooks(comm.Hooks{Ending: func() { unwatch(c) }})
}
