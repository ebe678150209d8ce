package shim

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/status"
)

// leader is what rank 0 does for everyone: it is the communicator's arbiter of tickets,
// and it compares what stalled ranks are doing. Tickets are handled one at a time on the
// leader's own goroutine, where they may wait for planes; stall reports at once.
type leader struct {
	c       *comm.Core
	inbox   chan *control.Message
	stop    chan struct{}
	stopped chan struct{} // closed when the goroutine has ended
	once    sync.Once
	begin   sync.Once

	mu     sync.Mutex
	rounds [16]round // recent operations that someone stalled in
	last   []uint64  // by rank, the latest operation that it reported

	tickets *arbiter
	births  births
	owed    owed
}

// round is what ranks said about one operation.
type round struct {
	seq    uint64
	states []stall // by rank
}

// stall is what a rank said that it has called, and may be waiting in.
type stall struct {
	sig   uint64
	call  string
	known bool
}

func newLeader(c *comm.Core) *leader {
	l := &leader{
		c: c, inbox: make(chan *control.Message, 4*c.Ranks+16), stop: make(chan struct{}), stopped: make(chan struct{}),
		last: make([]uint64, c.Ranks),
	}
	l.births.c = c
	return l
}

// handleStalls has ranks answer what they have called, and the leader compare what stalled ranks are doing.
func handleStalls(c *comm.Core) {
	c.Handle(control.MsgQuery, func(m *control.Message) {
		if sh, ok := recorder.Of(c).Find(m.Seq); ok {
			reportShape(c, control.MsgState, m.Seq, &sh)
		}
	})
	stalled := func(m *control.Message) { leaderOf(c).stalled(m) }
	c.HandleAtLeader(control.MsgState, stalled)
	c.HandleAtLeader(control.MsgTimeout, stalled)
}

// handleTickets has the leader's goroutine handle what is about tickets.
func handleTickets(c *comm.Core) {
	for _, kind := range []control.Kind{control.MsgWant, control.MsgDone, control.MsgPlanReq, control.MsgRow} {
		c.HandleAtLeader(kind, func(m *control.Message) { leaderOf(c).post(m) })
	}
}

// start begins to serve; messages that came before are waiting. After close it does
// nothing.
func (l *leader) start() { l.begin.Do(func() { go l.serve() }) }

// post hands a message to the leader's goroutine.
func (l *leader) post(m *control.Message) {
	select {
	case l.inbox <- m:
	case <-l.stop:
	}
}

// close ends the leader's goroutine and gives back what it holds.
func (l *leader) close() {
	l.once.Do(func() { close(l.stop) })
	l.begin.Do(func() { close(l.stopped) })
	select {
	case <-l.stopped:
		if l.tickets != nil {
			l.tickets.close()
		}
	case <-time.After(time.Second):
		// It waits for planes, and gives them back itself when it gets them.
	}
}

func (l *leader) serve() {
	defer close(l.stopped)
	for {
		// Without circuits there is no arbiter, and nil channels never speak.
		var idle <-chan time.Time
		var solved <-chan planning.Solution
		var late <-chan time.Time
		var refined <-chan refinement
		if a := l.tickets; a != nil {
			idle, solved, late, refined = a.idle.C, a.solved, a.rounds.timer.C, a.demands.done
		}
		select {
		case m := <-l.inbox:
			if l.tickets == nil {
				l.c.Spread(fmt.Errorf("shim: rank %d asks for a ticket on a communicator without circuits: %w", m.From, errdefs.ErrInternal))
				continue
			}
			if err := l.tickets.handle(m); err != nil {
				l.c.Spread(err)
			}
		case <-idle:
			if err := l.tickets.release(false); err != nil {
				l.c.Spread(err)
			}
		case r := <-solved:
			l.tickets.adopt(r)
		case <-late:
			l.tickets.rounds.expire()
		case r := <-refined:
			l.tickets.adoptRefinement(r)
		case <-l.stop:
			return
		}
	}
}

// stalled compares the reports of ranks on one operation. Different calls with one
// sequence number are a mistake of the program, known as soon as two ranks have
// reported; a rank that gives up ends the communicator for all, naming whoever is not
// where the others are.
func (l *leader) stalled(m *control.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.rounds[m.Seq%uint64(len(l.rounds))]
	fresh := r.seq != m.Seq
	if fresh {
		*r = round{seq: m.Seq, states: make([]stall, l.c.Ranks)}
	}
	from := int(m.From)
	call, why, _ := strings.Cut(string(m.Body), "\n")
	r.states[from] = stall{sig: m.Arg, call: call, known: true}
	l.last[from] = max(l.last[from], m.Seq)
	for o := range r.states {
		if r.states[o].known && r.states[o].sig != m.Arg {
			a, b := min(o, from), max(o, from)
			l.verdict(fmt.Errorf("shim: operation %d: rank %d called %s, rank %d called %s: %w",
				m.Seq, a, r.states[a].call, b, r.states[b].call, errdefs.ErrMismatch))
			return
		}
	}
	if fresh {
		// Once per operation: ranks that are past it, or not stalled, are asked.
		l.query(m.Seq)
	}
	if m.Kind == control.MsgTimeout {
		err := l.timedOut(r, from, why)
		if l.stuckBefore(r) {
			time.AfterFunc(earlierGrace, func() { l.c.Spread(err) })
			return
		}
		l.verdict(err)
	}
}

// earlierGrace is how long the verdict on an operation waits for that on one before it: a rank that is through may have gone on,
// and run out of time in its next operation a little before those that wait for it, or for a plane, in the last one. They know why.
// It is less than what ranks that give up wait for a verdict.
const earlierGrace = 400 * time.Millisecond

// stuckBefore tells whether a rank that is missing from a round has reported that it stalls in an operation before.
func (l *leader) stuckBefore(r *round) bool {
	for o := range r.states {
		seq := l.last[o]
		if before := &l.rounds[seq%uint64(len(l.rounds))]; !r.states[o].known && seq < r.seq && before.seq == seq && seq > 0 && before.states[o].known {
			return true
		}
	}
	return false
}

// timedOut says who is missing from the operation of a round that a rank gave up, or if nobody is, what
// the rank waited for.
func (l *leader) timedOut(r *round, from int, why string) error {
	var with, without []int
	var elsewhere string
	for o := range r.states {
		if r.states[o].known {
			with = append(with, o)
			continue
		}
		without = append(without, o)
		if seq := l.last[o]; seq > 0 {
			elsewhere += fmt.Sprintf("; rank %d was last heard of in operation %d", o, seq)
		}
	}
	who := status.ListRanks(without) + " did not arrive"
	switch {
	case len(without) == 0 && why != "":
		return fmt.Errorf("%s: %w", why, errdefs.ErrTimeout)
	case len(without) == 0:
		who = "all ranks arrived"
	}
	return fmt.Errorf("shim: operation %d, %s: %s waited %v: %s%s: %w",
		r.seq, r.states[from].call, status.ListRanks(with), l.c.Cfg.Timeout.Round(time.Millisecond), who, elsewhere, errdefs.ErrTimeout)
}

// query asks every rank what it has called as number seq.
func (l *leader) query(seq uint64) {
	m := &control.Message{Kind: control.MsgQuery, Seq: seq}
	go func() {
		l.c.ToAll(m)
	}()
}

// verdict fails the communicator from a goroutine of its own: the caller may be one that
// reads a connection, and holds the lock.
func (l *leader) verdict(err error) { go l.c.Spread(err) }
