package stall

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"lightpath/collectives/exec"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
	"lightpath/shim/status"
)

// Report tells the leader which call this rank is in, as operation seq, and all ranks which faults it sees.
func Report(c *comm.Core, seq uint64, signature uint32, call string) {
	ReportFaults(c)
	// If the leader is gone, the communicator fails by itself.
	_ = c.Star.ToLeader(&control.Message{Kind: control.MsgState, Seq: seq, Arg: uint64(signature), Body: []byte(call)})
}

// ReportShape is [Report] for a collective of the past.
func ReportShape(c *comm.Core, seq uint64, s *calls.Shape) { Report(c, seq, s.Signature(), s.String()) }

// GiveUp tells the leader that a call has waited too long. why, if it is known, says what the call waits for.
func GiveUp(c *comm.Core, seq uint64, signature uint32, call string, why error) {
	if why != nil {
		text := strings.TrimSuffix(why.Error(), ": "+exec.ErrTimeout.Error())
		call += "\n" + strings.TrimSuffix(text, ": "+errdefs.ErrTimeout.Error())
	}
	_ = c.Star.ToLeader(&control.Message{Kind: control.MsgTimeout, Seq: seq, Arg: uint64(signature), Body: []byte(call)})
}

// GiveUpLaunch tells the leader that a launch on a device has waited too long. If the launch is a collective, the
// leader knows which ranks have not called it: GiveUpLaunch gives it a second to fail the communicator first.
func GiveUpLaunch(c *comm.Core, number uint32, err error) {
	for _, op := range recorder.Of(c).OfLaunch(number) {
		if op.Seq == 0 {
			continue
		}
		GiveUp(c, op.Seq, op.Shape.Signature(), op.Shape.String(), err)
		select {
		case <-c.FailedChan():
		case <-time.After(time.Second):
		}
		return
	}
}

// Handle makes ranks answer which call they made, the leader compare calls, and every rank notice that a call needs a
// rank that has left.
func Handle(c *comm.Core) {
	c.Handle(control.MsgQuery, func(m *control.Message) {
		if s, ok := recorder.Of(c).Find(m.Seq); ok {
			ReportShape(c, m.Seq, &s)
		}
	})
	handleDepartures(c)
	s := &state{board: board{c: c}}
	slot.Set(c, s)
	s.faults.handle(c)
	s.awaited.handle(c)
	c.HandleAtLeader(control.MsgState, s.board.add)
	c.HandleAtLeader(control.MsgTimeout, s.board.add)
}

// state is what the ranks have reported to this rank.
type state struct {
	board   board // the leader's
	faults  sight
	awaited awaited
}

var slot = comm.NewSlot[state]()

// board holds the ranks' reports to the leader on recent operations.
type board struct {
	c      *comm.Core
	mu     sync.Mutex
	recent [16]operation
	last   []uint64 // by rank, the latest operation that it reported
}

// operation holds the ranks' reports on one operation.
type operation struct {
	seq   uint64
	ranks []said
}

// said is a rank's report of the call that it is in.
type said struct {
	signature uint64
	call      string
	known     bool
}

// add compares the report of a rank with those of others. Different calls with one number are a mistake of the program,
// known as soon as two ranks have spoken. A rank that gives up ends the communicator for all, and the error names the
// ranks that are elsewhere.
func (b *board) add(m *control.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := int(m.From)
	if b.last == nil {
		b.last = make([]uint64, b.c.Ranks)
	}
	op := &b.recent[m.Seq%uint64(len(b.recent))]
	fresh := op.seq != m.Seq
	if fresh {
		*op = operation{seq: m.Seq, ranks: make([]said, b.c.Ranks)}
	}
	call, why, _ := strings.Cut(string(m.Body), "\n")
	op.ranks[from] = said{signature: m.Arg, call: call, known: true}
	b.last[from] = max(b.last[from], m.Seq)
	for r := range op.ranks {
		if op.ranks[r].known && op.ranks[r].signature != m.Arg {
			first, second := min(r, from), max(r, from)
			b.fail(Mismatch(m.Seq, first, op.ranks[first].call, second, op.ranks[second].call))
			return
		}
	}
	if fresh { // once per operation: ranks that are past it, or not stalled, are asked
		go b.c.ToAll(&control.Message{Kind: control.MsgQuery, Seq: m.Seq})
	}
	if m.Kind != control.MsgTimeout {
		return
	}
	err := b.timedOut(op, from, why)
	if b.stuckBefore(op) {
		time.AfterFunc(earlierGrace, func() { b.c.Spread(err) })
		return
	}
	b.fail(err)
}

// Mismatch returns the error of two ranks that made different calls as one operation.
func Mismatch(seq uint64, a int, called string, b int, other string) error {
	return fmt.Errorf("shim: operation %d: rank %d called %s, rank %d called %s: %w", seq, a, called, b, other,
		errdefs.ErrMismatch)
}

// fail fails the communicator on a goroutine of its own: the caller may be one that reads a connection, and holds mu.
func (b *board) fail(err error) { go b.c.Spread(err) }

// earlierGrace is how long a time-out waits for one in an operation before. A rank that has finished that operation may
// time out in its next one. The ranks that still wait in the earlier one time out a little later, and they know why. It
// is shorter than the time that such ranks wait for the leader.
const earlierGrace = 400 * time.Millisecond

// stuckBefore reports whether a rank that is missing from an operation has reported that it stalls in one before.
func (b *board) stuckBefore(op *operation) bool {
	for r := range op.ranks {
		seq := b.last[r]
		if op.ranks[r].known || seq == 0 || seq >= op.seq {
			continue
		}
		if before := &b.recent[seq%uint64(len(b.recent))]; before.seq == seq && before.ranks[r].known {
			return true
		}
	}
	return false
}

// timedOut returns the error of an operation that rank from gave up. It names the missing ranks or, if there are none,
// the wait of the rank.
func (b *board) timedOut(op *operation, from int, why string) error {
	var here, missing []int
	var elsewhere string
	for r := range op.ranks {
		if op.ranks[r].known {
			here = append(here, r)
			continue
		}
		missing = append(missing, r)
		if seq := b.last[r]; seq > 0 {
			elsewhere += fmt.Sprintf("; rank %d was last heard of in operation %d", r, seq)
		}
	}
	who := status.ListRanks(missing) + " did not arrive"
	switch {
	case len(missing) == 0 && why != "":
		return fmt.Errorf("%s: %w", why, errdefs.ErrTimeout)
	case len(missing) == 0:
		who = "all ranks arrived"
	}
	return fmt.Errorf("shim: operation %d, %s: %s waited %v: %s%s: %w", op.seq, op.ranks[from].call,
		status.ListRanks(here), b.c.Cfg.Timeout.Round(time.Millisecond), who, elsewhere, errdefs.ErrTimeout)
}
