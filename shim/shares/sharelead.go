package shares

import (
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// lead is the leader's part in the shares of planes. Only the leader's goroutine uses it, so its messages arrive in
// order. The messages of one round are:
//
//	look -> ask all -> all tell -> propose shares and a future operation -> all answer -> conclude
//
// A rank that has accepted a proposal waits for the conclusion when it reaches the operation. The conclusion is to use
// the shares only if all ranks have accepted. The leader sends it after all answers, so no rank receives it before the
// proposal. A rank past the operation refuses, as the root of a broadcast may. Then the leader proposes a later
// operation.
type lead struct {
	c        *comm.Core
	Send     func(*control.Message) // to all other ranks, without waiting for them
	number   uint64                 // of the open question or proposal, or of the last
	open     uint64                 // kind of its answers: sharesTold, sharesAnswer, or 0 if none is open
	missing  int
	answers  [][]uint64 // by rank; nil: it has not answered
	agreed   []int      // shares agreed last; nil: even
	units    []int      // proposed shares
	lead     uint64     // how many operations after the most advanced rank the shares are to count from
	tries    int
	asked    time.Time     // when it last asked for paces
	changed  time.Time     // when shares were last agreed on
	trial    bool          // those shares were a trial whether a plane has recovered
	patience time.Duration // until the first trial after shares that paces called for
}

const (
	leastLead = 2
	mostLead  = 1 << 12
	// maxTries bounds the proposals for one question. Ranks ask again later.
	maxTries = 12
	// askPause is the least time between two questions.
	askPause = paceTime
	// A trial that goes well for leastPatience is followed by the next. After one that fails, ranks wait for twice as
	// long as after the one before, up to mostPatience.
	leastPatience = time.Second
	mostPatience  = 15 * time.Second
)

func newLead(c *comm.Core) *lead {
	send := func(m *control.Message) { c.Star.Broadcast(m, -1) }
	return &lead{c: c, Send: send, lead: leastLead, patience: leastPatience, answers: make([][]uint64, c.Ranks)}
}

// handle handles a [control.MsgShares] to the leader.
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

// put sends a question or proposal to all ranks and waits for answers of the given kind.
func (l *lead) put(what, answer uint64, words ...uint64) {
	l.number++
	l.open, l.missing = answer, len(l.answers)
	clear(l.answers)
	l.say(what, words...)
}

// say sends a message to all ranks. It handles this rank's own answer like the others.
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

// answered continues when all ranks have answered.
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

// decide proposes other shares if the paces call for them. Now and then it proposes a trial.
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
	case l.agreed != nil && l.trial && time.Since(l.changed) >= leastPatience:
		l.patience = max(l.patience/2, leastPatience)
		l.units = grownShares(l.agreed)
	case l.agreed != nil && time.Since(l.changed) >= l.patience:
		l.units, l.trial = grownShares(l.agreed), true
	default:
		return
	}
	l.tries = 0
	l.propose(first)
}

// propose proposes the units for an operation after first, the latest that any rank has reached.
func (l *lead) propose(first uint64) {
	words := []uint64{first + l.lead}
	for _, u := range l.units {
		words = append(words, uint64(u))
	}
	l.put(SharesPropose, sharesAnswer, words...)
}
