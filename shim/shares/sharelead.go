package shares

import (
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// lead is the leader's part in the shares of planes. It is used by the leader's goroutine only, so
// what it says arrives in order.
//
//	look -> ask all -> told by all -> propose, from an operation that none has reached -> answered by all -> conclude
//
// A rank that has accepted a proposal waits, when it comes to the operation, for the conclusion, and that
// is to accept only if all have. It is said only after all have answered, so no rank can get it before the
// proposal. A rank that is past the operation, as the root of a broadcast may be, refuses; then the leader
// proposes a later one.
type lead struct {
	c        *comm.Core
	Send     func(*control.Message) // to all other ranks, without waiting for them
	number   uint64                 // of the question or proposal that is open, or was last
	open     uint64                 // what the answers to it are: sharesTold, sharesAnswer, or 0
	missing  int
	answers  [][]uint64 // by rank; nil: it has not answered
	agreed   []int      // shares in force, or to come; nil: even
	units    []int      // that are proposed
	lead     uint64     // how many operations ahead of the first rank they are to count from
	tries    int
	asked    time.Time     // when it last asked what ranks see
	changed  time.Time     // when shares were last agreed on
	trial    bool          // those were to try whether a plane has recovered
	patience time.Duration // until the next trial
}

const (
	leastLead = 2
	mostLead  = 1 << 12
	// maxTries bounds the proposals for one question: the ranks will ask again.
	maxTries = 12
	// askPause is the least time between two questions.
	askPause = paceTime / 2
	// Between trials pass leastPatience, and up to mostPatience where they fail.
	leastPatience = time.Second
	mostPatience  = time.Minute
)

func newLead(c *comm.Core) *lead {
	send := func(m *control.Message) { c.Star.Broadcast(m, -1) }
	return &lead{c: c, Send: send, lead: leastLead, patience: leastPatience, answers: make([][]uint64, c.Ranks)}
}

// handle takes a [control.MsgShares] to the leader.
func (l *lead) handle(m *control.Message) {
	if Of(l.c) == nil {
		return
	}
	switch from := int(m.From); {
	case m.Arg == SharesLook:
		if now := time.Now(); l.open == 0 && now.Sub(l.asked) >= askPause {
			l.asked = now
			l.put(sharesAsk, sharesTold)
		}
	case m.Arg != l.open || l.open == 0 || m.Seq != l.number || l.answers[from] != nil:
	case l.take(from, m.Body):
		l.answered()
	}
}

// put asks all ranks something.
func (l *lead) put(what, answer uint64, words ...uint64) {
	l.number++
	l.open, l.missing = answer, len(l.answers)
	clear(l.answers)
	l.say(what, words...)
}

// say sends something to all ranks. This one's own answer comes the same way as the others'.
func (l *lead) say(what uint64, words ...uint64) {
	m := &control.Message{Kind: control.MsgShares, Seq: l.number, Arg: what, Body: AppendWords(nil, words...)}
	l.Send(m)
	if answer := Of(l.c).Answer(m, len(Of(l.c).Seen)); answer != nil {
		l.handle(answer)
	}
}

// take notes a rank's answer and reports whether it was the last.
func (l *lead) take(from int, body []byte) bool {
	n := 2
	if l.open == sharesTold {
		n = 1 + len(Of(l.c).Seen)
	}
	if l.answers[from] = WordsOf(body, n); l.answers[from] == nil {
		return false
	}
	l.missing--
	return l.missing == 0
}

// answered goes on when all ranks have answered.
func (l *lead) answered() {
	if l.open == sharesTold {
		l.open = 0
		l.decide()
		return
	}
	l.open = 0
	accepted, busy, first := true, false, uint64(0)
	for _, a := range l.answers {
		accepted = accepted && a[0] == answerAccepted
		busy = busy || a[0] == answerBusy
		first = max(first, a[1])
	}
	if accepted {
		l.agreed, l.lead, l.changed = l.units, max(l.lead/2, leastLead), time.Now()
		if evenShares(l.agreed) {
			l.agreed = nil
		}
		l.say(sharesConclude, 1)
		return
	}
	l.say(sharesConclude, 0)
	l.tries++
	if l.lead = min(2*l.lead, mostLead); !busy && l.tries < maxTries {
		l.propose(first)
	}
}

// decide proposes other shares where what ranks have told asks for them, and now and then to try.
func (l *lead) decide() {
	told, first := make([][]uint64, len(l.answers)), uint64(0)
	for r, a := range l.answers {
		told[r] = a[1:]
		first = max(first, a[0])
	}
	planes := len(told[0])
	pace := slowest(told, planes)
	switch {
	case pace == nil:
		return
	case misfit(l.agreed, make([]int, planes), pace):
		if l.trial {
			l.patience = min(2*l.patience, mostPatience)
		}
		l.units, l.trial = nextShares(l.agreed, pace), false
	case l.agreed != nil && time.Since(l.changed) >= l.patience:
		if l.trial {
			l.patience = max(l.patience/2, leastPatience)
		}
		l.units, l.trial = grownShares(l.agreed), true
	default:
		return
	}
	l.tries = 0
	l.propose(first)
}

// propose proposes units for some operations after the latest that a rank has reached.
func (l *lead) propose(first uint64) {
	words := []uint64{first + l.lead}
	for _, u := range l.units {
		words = append(words, uint64(u))
	}
	l.put(SharesPropose, sharesAnswer, words...)
}
