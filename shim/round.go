package shim

import (
	"fmt"
	"time"

	"lightpath/shim/control"
	"lightpath/shim/log"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

// rounds is the arbiter's part in grouped sends and receives: it gathers the groups that ranks
// post, and gives a round of all of them circuits. It belongs to the leader's goroutine. See
// "Rounds" in ARCHITECTURE.md for the protocol and why nobody can hang in it.
type rounds struct {
	a      *arbiter
	rows   []*ticket.Row // by rank, of the open round; nil: not posted
	have   int
	open   uint64      // number of the round, where have > 0
	closed uint64      // posts up to this number go plain at once
	timer  *time.Timer // of the open round
	misses int         // rounds in a row that ran out of time
	skip   int         // rounds that are not waited for
}

// maxSkip bounds for how many rounds the leader does not wait after some ran out of time.
const maxSkip = 1024

func newRounds(a *arbiter) rounds {
	r := rounds{a: a, rows: make([]*ticket.Row, a.o.c.Ranks), timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	return r
}

// roundNumber is the number of a rank's post: how many collectives it has called, and how many
// groups it has posted since the last of them, from 1.
func roundNumber(collectives uint64, posts uint32) uint64 { return collectives<<32 | uint64(posts) }

// post takes a rank's group.
func (r *rounds) post(m *control.Message) error {
	from, number := int(m.From), m.Seq
	row, err := ticket.DecodeRow(m.Body, from, len(r.rows))
	if err != nil {
		return err
	}
	if r.rows[from] != nil {
		return fmt.Errorf("%w: rank %d posts round %d twice", control.ErrMessage, from, number)
	}
	if r.have > 0 && number > r.open {
		r.close() // a rank has left it behind
	}
	if number <= r.closed || r.have > 0 && number < r.open {
		r.plain(from, number)
		return nil
	}
	if r.have == 0 {
		r.open = number
		r.timer.Reset(r.a.o.c.Cfg.DemandWait)
	}
	r.rows[from] = row
	r.have++
	switch {
	case row.Packet, len(r.a.wants) > 0: // who waits for the ticket of a collective does not post
		r.close()
	case r.have == len(r.rows):
		r.timer.Stop()
		r.misses, r.skip = 0, 0
		return r.complete()
	case r.have == 1 && r.skip > 0:
		r.skip--
		r.close()
	}
	return nil
}

// expire ends a round for which the time is up.
func (r *rounds) expire() {
	if r.have == 0 {
		return
	}
	r.misses++
	r.skip = min(1<<min(r.misses, 16), maxSkip) - 1
	r.a.o.c.Log.Info(log.Coll, "round %#x: packet planes, %d of %d ranks in %v; the next %d rounds are not waited for",
		r.open, r.have, len(r.rows), r.a.o.c.Cfg.DemandWait, r.skip)
	r.close()
}

// close answers all posts of the open round, if there is one, with packet planes.
func (r *rounds) close() {
	if r.have == 0 {
		return
	}
	r.timer.Stop()
	for from, row := range r.rows {
		if row != nil {
			r.plain(from, r.open)
		}
	}
	r.clear()
}

func (r *rounds) clear() {
	clear(r.rows)
	r.have, r.closed = 0, max(r.closed, r.open)
}

// plain tells a rank to use packet planes.
func (r *rounds) plain(rank int, number uint64) {
	r.a.o.c.Star.To(rank, &control.Message{Kind: control.MsgRound, Seq: number})
}

// complete answers a round in which all ranks are.
func (r *rounds) complete() error {
	a := r.a
	pairs, closed, err := ticket.Match(r.rows)
	if err != nil {
		return err
	}
	demand := planning.NewDemand(pairs, len(r.rows))
	if !closed || !a.o.Worthwhile(demand) {
		r.close()
		return nil
	}
	a.idle.Stop()
	if err := a.secure(); err != nil {
		return err
	}
	_, shared := a.o.entangled(a.held)
	if a.held == 0 || shared {
		if a.held != 0 {
			a.idle.Reset(idleHold)
		}
		r.close()
		return nil
	}
	plan, err := a.planDemand(demand)
	if err != nil {
		return fmt.Errorf("shim: round %#x: %w", r.open, err)
	}
	body := a.roundBody(plan)
	if len(body) > int(control.MaxBody(control.MsgRound)) {
		a.idle.Reset(idleHold)
		r.close()
		return nil
	}
	number := r.open
	r.clear()
	a.o.c.Star.Broadcast(&control.Message{Kind: control.MsgRound, Seq: number, Body: body}, -1)
	a.o.c.Deliver(&control.Message{Kind: control.MsgRound, Seq: number, Body: body})
	return nil
}
