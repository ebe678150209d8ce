package shares

import (
	"slices"
	"testing"

	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// shareTable is a leader of two ranks, and rank 1's part. The test decides when rank 1 handles a message of the
// leader.
type shareTable struct {
	t     *testing.T
	lead  *lead
	other *State
	said  []*control.Message
}

// newShareTable makes both ranks measure plane 1 as slow, and asks the leader to look.
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

// TestSharesLate checks a proposal that reaches a rank after it has begun the operation. The rank refuses, and no rank
// uses the shares. All ranks use the next proposal, for a later operation.
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
	if !mine.agreed || !theirs.agreed || mine.From <= from || mine.From != theirs.From || mine.number != theirs.number ||
		!slices.Equal(mine.units, theirs.units) {
		t.Errorf("agreed on: %+v and %+v, after operation %d", mine, theirs, from)
	}
}

// TestSharesAlwaysLate checks that the leader gives up if a rank is past every operation that it proposes.
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

// hear makes rank 1 handle the leader's next message and the leader handle the answer. It returns both.
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

// late makes rank 1 begin the operation of the next proposal before it handles the proposal. It returns the
// operation's number.
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
