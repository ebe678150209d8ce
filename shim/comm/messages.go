package comm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
)

// messages is a rank's state for control messages.
type messages struct {
	handlers [control.NumKinds]func(*control.Message)
	inbox    chan *control.Message // messages without a handler, for the call in progress
	early    []*control.Message    // from inbox, for a later step of the call; guarded by the turn
	ready    atomic.Int32          // at the leader: ranks that are ready
	decided  []byte                // at the leader: for all ranks, once they are ready

	queue   chan queued // messages that wait for their turn
	serving sync.Once
}

// queued is a message that a goroutine of the communicator handles.
type queued struct {
	handle func(*control.Message)
	m      *control.Message
}

// queueLength bounds the queued messages. If the queue is full, the rank stops reading the connection.
const queueLength = 256

// Handle registers f for messages of a kind. f runs on the goroutine that reads their connection, so it must not
// block. Call Handle before the communicator joins.
func (c *Core) Handle(kind control.Kind, f func(*control.Message)) { c.messages.handlers[kind] = f }

// HandleAtLeader is [Core.Handle] at rank 0. Other ranks ignore such messages.
func (c *Core) HandleAtLeader(kind control.Kind, f func(*control.Message)) {
	c.Handle(kind, func(m *control.Message) {
		if c.Rank == 0 {
			f(m)
		}
	})
}

// HandleInOrder registers f for messages of a kind. A goroutine of the communicator handles messages of all such kinds
// one after another, so f may block. f must not deliver such a message itself.
func (c *Core) HandleInOrder(kind control.Kind, f func(*control.Message)) {
	c.Handle(kind, func(m *control.Message) {
		c.messages.serving.Do(func() { go c.serve() })
		select {
		case c.messages.queue <- queued{f, m}:
		case <-c.life.ending:
		}
	})
}

// serve handles messages in order until the communicator ends.
func (c *Core) serve() {
	for {
		select {
		case q := <-c.messages.queue:
			q.handle(q.m)
		case <-c.life.ending:
			return
		}
	}
}

// Deliver handles a control message.
func (c *Core) Deliver(m *control.Message) {
	if h := c.messages.handlers[m.Kind]; h != nil {
		h(m)
		return
	}
	c.ToCall(m)
}

// ToCall passes a message to the call in progress.
func (c *Core) ToCall(m *control.Message) {
	select {
	case c.messages.inbox <- m:
	case <-c.failure.done:
	}
}

// ToAll sends a message from the leader to all ranks, itself included.
func (c *Core) ToAll(m *control.Message) {
	c.Star.Broadcast(m, -1)
	c.Deliver(m)
}

// ErrNothing reports that no message came in time.
var ErrNothing = errors.New("shim: nothing came")

// Await returns the next message of a kind and sequence to this rank, and drops older ones of the kind. It fails if the
// communicator fails, or after LIGHTPATH_TIMEOUT. The caller holds the turn.
func (c *Core) Await(kind control.Kind, seq uint64) (*control.Message, error) {
	m, err := c.AwaitFor(kind, seq, c.Cfg.Timeout)
	if errors.Is(err, ErrNothing) {
		return nil, fmt.Errorf("shim: rank %d: no word from rank 0 in %v: %w", c.Rank, c.Cfg.Timeout, errdefs.ErrTimeout)
	}
	return m, err
}

// AwaitFor is [Core.Await] with its own limit, after which it returns [ErrNothing].
func (c *Core) AwaitFor(kind control.Kind, seq uint64, d time.Duration) (*control.Message, error) {
	if m := c.takeEarly(kind, seq); m != nil {
		return m, nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		var m *control.Message
		select {
		case m = <-c.messages.inbox:
		case <-c.failure.done:
			return nil, c.AsyncError()
		case <-c.Star.EveryoneLeft(): // this rank has not left, so the leader's connection has ended
			select {
			case m = <-c.messages.inbox:
			default:
				return nil, c.leaderEnded()
			}
		case <-timer.C:
			return nil, ErrNothing
		}
		switch {
		case m.Kind != kind: // a rank that had the leader's answer first has gone on
			c.messages.early = append(c.messages.early, m)
		case m.Seq == seq:
			return m, nil
		}
	}
}

// takeEarly takes a message of a kind and sequence that came before this rank waited for it; nil: there is none.
func (c *Core) takeEarly(kind control.Kind, seq uint64) *control.Message {
	early := &c.messages.early
	*early = slices.DeleteFunc(*early, func(m *control.Message) bool { return m.Kind == kind && m.Seq != seq })
	for i, m := range *early {
		if m.Kind == kind {
			*early = slices.Delete(*early, i, i+1)
			return m
		}
	}
	return nil
}

// AwaitAll returns when all ranks have called it. Then their planes are attached. All ranks get the leader's decided;
// AwaitAll ignores that of other ranks.
func (c *Core) AwaitAll(decided []byte) ([]byte, error) {
	c.messages.decided = decided
	if err := c.Star.ToLeader(&control.Message{Kind: control.MsgReady}); err != nil {
		return nil, err
	}
	m, err := c.Await(control.MsgGo, 0)
	if err != nil {
		return nil, err
	}
	return m.Body, nil
}

// handleReady makes the leader count ready ranks, and tell all ranks when all are ready.
func (c *Core) handleReady() {
	c.HandleAtLeader(control.MsgReady, func(*control.Message) {
		if int(c.messages.ready.Add(1)) == c.Ranks {
			go c.ToAll(&control.Message{Kind: control.MsgGo, Body: c.messages.decided})
		}
	})
}
