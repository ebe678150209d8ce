package shares

import (
	"slices"
	"testing"

	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// shareTable is a leader of two ranks, and rank 1's part, which hears what the leader says when the test has it hear.
type shareTable struct {
	t     *testing.T
	lead  *lead
	other *State
	said  []*control.Message
}

// newShareTable has both ranks see that plane 1 is slow, and the leader asked to look.
func newShareTable(t *testing.T) *shareTable {
	c := &comm.Core{Identity: comm.Identity{Ranks: 2}}
	SharesSlot.Set(c, newShares(2))
	b := &shareTable{t: t, lead: newLead(c), other: newShares(2)}
	b.lead.Send = func(m *control.Message) { b.said = append(b.said, m) }
	for _, p := range []*State{Of(c), b.other} {
		copy(p.Seen, []uint64{900, 100})
	}
	b.lead.handle(&control.Message{Kind: control.MsgShares, From: 1, Arg: SharesLook})
	return b
}

// TestSharesLate: a rank has begun the operation that shares are proposed for when it hears of that. It refuses,
// nobody goes by them, and all by those that are then proposed for a later one.
func TestSharesLate(t *testing.T) {
	b := newShareTable(t)
	b.hear(sharesAsk)
	refused := Of(b.lead.c).due(leastLead)
	if refused == nil {
		t.Fatal("the leader's own rank waits for no conclusion")
	}
	from := b.late()
	<-refused.settled
	if refused.agreed {
		t.Error("the leader's own rank goes by shares that have been refused")
	}
	if m, _ := b.hear(sharesConclude); WordsOf(m.Body, 1)[0] != 0 {
		t.Error("the conclusion is to accept")
	}
	if _, answer := b.hear(SharesPropose); answer.Body[0] != answerAccepted {
		t.Fatalf("the answer to the second proposal is %v", answer)
	}
	b.hear(sharesConclude)
	mine, theirs := Of(b.lead.c).Next, b.other.Next
	<-mine.settled
	<-theirs.settled
	if !mine.agreed || !theirs.agreed || mine.From <= from || mine.From != theirs.From || mine.number != theirs.number || !slices.Equal(mine.units, theirs.units) {
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
	if len(b.said) != 0 || b.lead.open != 0 || Of(b.lead.c).Next != nil || b.other.Next != nil {
		t.Errorf("still said %v, open %d, next %v and %v", b.said, b.lead.open, Of(b.lead.c).Next, b.other.Next)
	}
}

// hear has rank 1 take the next that the leader has said, and the leader its answer, which is returned with it.
func (b *shareTable) hear(what uint64) (m, answer *control.Message) {
	b.t.Helper()
	if len(b.said) == 0 || b.said[0].Arg != what {
		b.t.Fatalf("the leader has not said %d next: %v", what, b.said)
	}
	m, b.said = b.said[0], b.said[1:]
	if answer = b.other.Answer(m, 2); answer != nil {
		answer.From = 1
		b.lead.handle(answer)
	}
	return m, answer
}

// late has rank 1 begin the operation that the next proposal is for before it hears of that, and returns its number.
func (b *shareTable) late() (from uint64) {
	b.t.Helper()
	from = WordsOf(b.said[0].Body, 3)[0]
	if b.other.due(from) != nil {
		b.t.Fatal("a rank waits for what it has not heard of")
	}
	if _, answer := b.hear(SharesPropose); answer.Body[0] != answerLate || WordsOf(answer.Body, 2)[1] != from {
		b.t.Fatalf("operation %d has begun, and the answer is %v", from, answer)
	}
	return from
}
