package shim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
	"lightpath/shim/status"
)

// births is the leader's part in making communicators from its own: it gathers what every rank
// asks for, and answers everyone. Safe for concurrent use: it runs on the goroutines that read
// the control connections, for the leader's own may be waiting for planes.
type births struct {
	c      *comm.Core
	mu     sync.Mutex
	rounds map[uint64]*birth
	last   uint64 // the latest that has ended by a rank's absence: who comes now is too late
	why    error
}

// birth is one communicator, or one per colour, that ranks have begun to ask for.
type birth struct {
	seq  uint64
	how  How
	asks []*kinAsk // by rank
	have int
	done chan struct{}
}

// handleBirths has the leader gather what ranks ask for, and ranks take its answers.
func handleBirths(c *comm.Core) {
	birthOf(c).births.c = c
	c.HandleAtLeader(control.MsgKin, func(m *control.Message) { birthOf(c).births.ask(m) })
	c.Handle(control.MsgKinAnswer, func(m *control.Message) { birthOf(c).kin.answer(m) })
}

// ask takes the wish of a rank.
func (b *births) ask(m *control.Message) {
	a := new(kinAsk)
	from := int(m.From)
	if err := control.DecodeStrict(m.Body, a); err != nil || from >= b.c.Ranks {
		return // a rank that speaks nonsense times out
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Seq <= b.last {
		go b.refuse(m.Seq, []int{from}, b.why)
		return
	}
	r := b.rounds[m.Seq]
	if r == nil {
		r = &birth{seq: m.Seq, how: How(m.Arg), asks: make([]*kinAsk, b.c.Ranks), done: make(chan struct{})}
		if b.rounds == nil {
			b.rounds = map[uint64]*birth{}
		}
		b.rounds[m.Seq] = r
		go b.watch(r)
	}
	if r.asks[from] == nil {
		r.have++
	}
	r.asks[from] = a
	switch {
	case How(m.Arg) != r.how:
		first := slices.IndexFunc(r.asks, func(a *kinAsk) bool { return a != nil && a != r.asks[from] })
		b.fail(r, fmt.Errorf("shim: rank %d called %v, rank %d called %v: %w", first, r.how, from, How(m.Arg), errdefs.ErrMismatch))
	case r.have == len(r.asks):
		b.close(r)
		go b.decide(r)
	}
}

// close ends a birth; mu is held.
func (b *births) close(r *birth) {
	delete(b.rounds, r.seq)
	close(r.done)
}

// fail ends a birth without a child; mu is held.
func (b *births) fail(r *birth, err error) {
	b.close(r)
	b.last, b.why = max(b.last, r.seq), err
	var asked []int
	for rank, a := range r.asks {
		if a != nil {
			asked = append(asked, rank)
		}
	}
	go b.refuse(r.seq, asked, err)
}

// watchEvery is how often a birth that waits for ranks looks whether they can still come.
const watchEvery = 20 * time.Millisecond

// watch ends a birth that a rank cannot come to any more, or does not in time.
func (b *births) watch(r *birth) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	over := time.NewTimer(b.c.Cfg.Timeout)
	defer over.Stop()
	for {
		late := false
		select {
		case <-r.done:
			return
		case <-b.c.Released():
			return
		case <-over.C:
			late = true
		case <-tick.C:
		}
		b.mu.Lock()
		if b.rounds[r.seq] == r {
			if err := b.absent(r, late); err != nil {
				b.fail(r, err)
			}
		}
		b.mu.Unlock()
	}
}

// absent says why ranks that have not asked will not, if so.
func (b *births) absent(r *birth, late bool) error {
	var missing, left []int
	for rank, a := range r.asks {
		if a == nil {
			missing = append(missing, rank)
			if b.c.Star.HasLeft(rank) {
				left = append(left, rank)
			}
		}
	}
	switch {
	case len(left) > 0:
		return fmt.Errorf("shim: %v: %s of the parent left it: %w", r.how, status.ListRanks(left), errdefs.ErrRemote)
	case late:
		return fmt.Errorf("shim: %v: timed out after %v: %s never called it: %w", r.how, b.c.Cfg.Timeout, status.ListRanks(missing), errdefs.ErrTimeout)
	}
	return nil
}

// refuse answers ranks with an error.
func (b *births) refuse(seq uint64, ranks []int, err error) {
	class, text := result.Encode(err)
	for _, rank := range ranks {
		b.c.Star.To(rank, &control.Message{Kind: control.MsgKinAnswer, Seq: seq, Arg: class + 1, Body: []byte(text)})
	}
}

func (b *births) answer(seq uint64, rank int, a *kinAnswer) {
	body, _ := json.Marshal(a) // plain structs: cannot fail
	b.c.Star.To(rank, &control.Message{Kind: control.MsgKinAnswer, Seq: seq, Body: body})
}

// decide answers everyone once all have asked.
func (b *births) decide(r *birth) {
	if r.how == ByGrow {
		b.grow(r)
		return
	}
	colours := map[int][]int{}
	for rank, a := range r.asks {
		if a.Color == NoColor {
			b.answer(r.seq, rank, new(kinAnswer))
			continue
		}
		colours[a.Color] = append(colours[a.Color], rank)
	}
	for _, colour := range slices.Sorted(maps.Keys(colours)) {
		b.split(r, colours[colour])
	}
}

// split makes the communicator of one colour.
func (b *births) split(r *birth, ranks []int) {
	slices.SortStableFunc(ranks, func(x, y int) int { return cmp.Compare(r.asks[x].Key, r.asks[y].Key) })
	hellos := make([]*bootstrap.Hello, len(ranks))
	for i, rank := range ranks {
		hellos[i] = &r.asks[rank].Hello
		hellos[i].Rank, hellos[i].Ranks = i, len(ranks)
	}
	table, refusal := bootstrap.Agreed(hellos)
	if refusal != "" {
		b.refuse(r.seq, ranks, fmt.Errorf("shim: %v: communicator not made: %s: %w", r.how, refusal, errdefs.ErrInvalidUsage))
		return
	}
	a := kinAnswer{Comm: bootstrap.RandomID(), Table: table}
	for i, rank := range ranks {
		a.Rank = i
		b.answer(r.seq, rank, &a)
	}
}

// grow finds the id that ranks old and new meet at.
func (b *births) grow(r *birth) {
	with := -1
	for rank, a := range r.asks {
		var err error
		switch first := r.asks[0]; {
		case a.Ranks != first.Ranks:
			err = fmt.Errorf("shim: %v: rank 0 says nRanks %d, rank %d says %d: %w", r.how, first.Ranks, rank, a.Ranks, errdefs.ErrMismatch)
		case len(a.ID) == 0:
			continue
		case with >= 0 && !bytes.Equal(a.ID, r.asks[with].ID):
			err = fmt.Errorf("shim: %v: ranks %d and %d have different ids: %w", r.how, with, rank, errdefs.ErrMismatch)
		}
		if err != nil {
			b.refuse(r.seq, allRanks(len(r.asks)), err)
			return
		}
		with = rank
	}
	if with < 0 {
		b.refuse(r.seq, allRanks(len(r.asks)), fmt.Errorf("shim: %v: no rank has passed the id of ncclCommGetUniqueId: %w", r.how, errdefs.ErrInvalidUsage))
		return
	}
	for rank := range r.asks {
		b.answer(r.seq, rank, &kinAnswer{ID: r.asks[with].ID})
	}
}

func allRanks(n int) []int {
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}
