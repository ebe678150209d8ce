package shim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// shareTable is a leader of two ranks, and rank 1's part, which hears what the leader says when the test has it hear.
type shareTable struct {
	t     *testing.T
	lead  *shareLead
	other *shares
	said  []*control.Message
}

// newShareTable has both ranks see that plane 1 is slow, and the leader asked to look.
func newShareTable(t *testing.T) *shareTable {
	c := &Comm{Identity: comm.Identity{Ranks: 2}}
	sharesSlot.Set(c, newShares(2))
	b := &shareTable{t: t, lead: newShareLead(c), other: newShares(2)}
	b.lead.send = func(m *control.Message) { b.said = append(b.said, m) }
	for _, p := range []*shares{sharesOf(c), b.other} {
		copy(p.seen, []uint64{900, 100})
	}
	b.lead.handle(&control.Message{Kind: control.MsgShares, From: 1, Arg: sharesLook})
	return b
}

// hear has rank 1 take the next that the leader has said, and the leader its answer, which is returned with it.
func (b *shareTable) hear(what uint64) (m, answer *control.Message) {
	b.t.Helper()
	if len(b.said) == 0 || b.said[0].Arg != what {
		b.t.Fatalf("the leader has not said %d next: %v", what, b.said)
	}
	m, b.said = b.said[0], b.said[1:]
	if answer = b.other.answer(m, 2); answer != nil {
		answer.From = 1
		b.lead.handle(answer)
	}
	return m, answer
}

// late has rank 1 begin the operation that the next proposal is for before it hears of that, and returns its number.
func (b *shareTable) late() (from uint64) {
	b.t.Helper()
	from = wordsOf(b.said[0].Body, 3)[0]
	if b.other.due(from) != nil {
		b.t.Fatal("a rank waits for what it has not heard of")
	}
	if _, answer := b.hear(sharesPropose); answer.Body[0] != answerLate || wordsOf(answer.Body, 2)[1] != from {
		b.t.Fatalf("operation %d has begun, and the answer is %v", from, answer)
	}
	return from
}

// TestSharesLate: a rank has begun the operation that shares are proposed for when it hears of that. It refuses,
// nobody goes by them, and all by those that are then proposed for a later one.
func TestSharesLate(t *testing.T) {
	b := newShareTable(t)
	b.hear(sharesAsk)
	refused := sharesOf(b.lead.c).due(leastLead)
	if refused == nil {
		t.Fatal("the leader's own rank waits for no conclusion")
	}
	from := b.late()
	<-refused.settled
	if refused.agreed {
		t.Error("the leader's own rank goes by shares that have been refused")
	}
	if m, _ := b.hear(sharesConclude); wordsOf(m.Body, 1)[0] != 0 {
		t.Error("the conclusion is to accept")
	}
	if _, answer := b.hear(sharesPropose); answer.Body[0] != answerAccepted {
		t.Fatalf("the answer to the second proposal is %v", answer)
	}
	b.hear(sharesConclude)
	mine, theirs := sharesOf(b.lead.c).next, b.other.next
	<-mine.settled
	<-theirs.settled
	if !mine.agreed || !theirs.agreed || mine.from <= from || mine.from != theirs.from || mine.number != theirs.number || !slices.Equal(mine.units, theirs.units) {
		t.Errorf("agreed on: %+v and %+v, after operation %d", mine, theirs, from)
	}
}

// TestSharesAlwaysLate: the leader gives up where a rank is past every operation that it proposes.
func TestSharesAlwaysLate(t *testing.T) {
	b := newShareTable(t)
	b.hear(sharesAsk)
	for range maxTries {
		b.late()
		b.hear(sharesConclude)
	}
	if len(b.said) != 0 || b.lead.open != 0 || sharesOf(b.lead.c).next != nil || b.other.next != nil {
		t.Errorf("still said %v, open %d, next %v and %v", b.said, b.lead.open, sharesOf(b.lead.c).next, b.other.next)
	}
}

// TestSharesLateInCalls is TestSharesLate with calls: between the leader's proposal and the others' hearing of it
// rank 1 runs ahead as a root of broadcasts, which waits for nobody.
func TestSharesLateInCalls(t *testing.T) {
	w := newSharing(t, 2, 2)
	broadcast := func(c *Comm) error {
		buf := []float32{float32(c.Rank)}
		p := unsafe.Pointer(unsafe.SliceData(buf))
		if err := Run([]calls.Call{{Comm: c, Kind: calls.Broadcast, Type: datatype.Float32, Count: 1, Peer: 1, Send: p, Recv: p}}); err != nil {
			return err
		}
		if buf[0] != 1 {
			return fmt.Errorf("rank %d has got %v", c.Rank, buf[0])
		}
		return nil
	}
	type ran struct {
		ahead int
		err   error
	}
	passed := make(chan ran, 1)
	lead := leaderOf(w.comms[0]).shares
	send := lead.send
	lead.send = func(m *control.Message) {
		if m.Arg == sharesPropose && passed != nil {
			var r ran
			for r.err == nil && hostOf(w.comms[1]).seq < wordsOf(m.Body, 3)[0] {
				r.err = broadcast(w.comms[1])
				r.ahead++
			}
			passed <- r
			passed = nil
		}
		send(m)
	}
	done := passed
	w.see(0, func(int) []uint64 { return []uint64{900, 100} })
	r := <-done
	if r.err != nil || r.ahead == 0 {
		t.Fatalf("rank 1 is %d operations ahead: %v", r.ahead, r.err)
	}
	for range r.ahead {
		if err := broadcast(w.comms[0]); err != nil {
			t.Fatal(err)
		}
	}
	if !settled(func() bool {
		w.must(func(c *Comm) error { return gatherOne(c, 1) })
		units, all := w.inForce()
		if !all {
			t.Fatalf("ranks differ: %v", units)
		}
		return units != nil
	}) {
		t.Error("no shares have been agreed on after those that were refused")
	}
}

// TestSharesAllocateNothing: calls that are measured, by even shares and by others, all ranks on one thread.
func TestSharesAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool forget")
	}
	for name, units := range map[string][]int{"even": nil, "uneven": {3 * shareTotal / 4, shareTotal / 4}} {
		t.Run(name, func(t *testing.T) {
			w := newSharing(t, 2, 2)
			var calls []calls.Call
			for _, c := range w.comms {
				calls = append(calls, allReduce(c, make([]float32, 4*paceBytes/4)))
				c.Turn.Lock()
				if p := sharesOf(c); units != nil {
					p.version, p.units = 1, units
				}
				// No window ends, of which other shares might come. What one costs at its end is TestWindow's.
				sharesOf(c).window.ops, sharesOf(c).window.since = 1, math.MaxInt64
				c.Turn.Unlock()
			}
			var failed error
			n := testing.AllocsPerRun(20, func() {
				if err := Run(calls); err != nil {
					failed = err
				}
			})
			if failed != nil {
				t.Fatal(failed)
			}
			if n != 0 {
				t.Errorf("%v allocations per group", n)
			}
			for r, c := range w.comms {
				if sharesOf(c).window.ops != 1+1+20 {
					t.Errorf("rank %d: %d operations have been measured", r, sharesOf(c).window.ops-1)
				}
			}
		})
	}
}
