package shim

import (
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// shareLead is the leader's part in the shares of planes. It is used by the leader's goroutine only, so
// what it says arrives in order.
//
//	look -> ask all -> told by all -> propose, from an operation that none has reached -> answered by all -> conclude
//
// A rank that has accepted a proposal waits, when it comes to the operation, for the conclusion, and that
// is to accept only if all have. It is said only after all have answered, so no rank can get it before the
// proposal. A rank that is past the operation, as the root of a broadcast may be, refuses; then the leader
// proposes a later one.
type shareLead struct {
	c        *comm.Core
	send     func(*control.Message) // to all other ranks, without waiting for them
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

func newShareLead(c *comm.Core) *shareLead {
	send := func(m *control.Message) { c.Star.Broadcast(m, -1) }
	return &shareLead{c: c, send: send, lead: leastLead, patience: leastPatience, answers: make([][]uint64, c.Ranks)}
}

// handle takes a [control.MsgShares] to the leader.
func (l *shareLead) handle(m *control.Message) {
	if sharesOf(l.c) == nil {
		return
	}
	switch from := int(m.From); {
	case m.Arg == sharesLook:
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
func (l *shareLead) put(what, answer uint64, words ...uint64) {
	l.number++
	l.open, l.missing = answer, len(l.answers)
	clear(l.answers)
	l.say(what, words...)
}

// say sends something to all ranks. This one's own answer comes the same way as the others'.
func (l *shareLead) say(what uint64, words ...uint64) {
	m := &control.Message{Kind: control.MsgShares, Seq: l.number, Arg: what, Body: appendWords(nil, words...)}
	l.send(m)
	if answer := sharesOf(l.c).answer(m, len(sharesOf(l.c).seen)); answer != nil {
		l.handle(answer)
	}
}

// take notes a rank's answer and reports whether it was the last.
func (l *shareLead) take(from int, body []byte) bool {
	n := 2
	if l.open == sharesTold {
		n = 1 + len(sharesOf(l.c).seen)
	}
	if l.answers[from] = wordsOf(body, n); l.answers[from] == nil {
		return false
	}
	l.missing--
	return l.missing == 0
}

// answered goes on when all ranks have answered.
func (l *shareLead) answered() {
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
func (l *shareLead) decide() {
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
func (l *shareLead) propose(first uint64) {
	words := []uint64{first + l.lead}
	for _, u := range l.units {
		words = append(words, uint64(u))
	}
	l.put(sharesPropose, sharesAnswer, words...)
}
