package membership

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

// leader gathers the requests of all ranks of a communicator for new communicators, and answers each of them. Safe for
// concurrent use. It runs on the goroutines that read the control connections, since the leader's own goroutine may
// wait for planes.
type leader struct {
	c      *comm.Core
	mu     sync.Mutex
	rounds map[uint64]*round
	failed map[uint64]error // by round; a request that comes later gets the error
}

// round gathers the requests for one communicator, or for one per color.
type round struct {
	seq      uint64
	how      How
	requests []*request // by rank
	have     int
	done     chan struct{}
}

// handle handles the request of a rank.
func (l *leader) handle(m *control.Message) {
	a := new(request)
	from := int(m.From)
	if err := control.DecodeStrict(m.Body, a); err != nil || from >= l.c.Ranks {
		return // a rank with a bad message times out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Again {
		l.giveUp(m.Seq, from, a)
		return
	}
	if err := l.failed[m.Seq]; err != nil {
		go l.refuse(m.Seq, []int{from}, err)
		return
	}
	r := l.rounds[m.Seq]
	if r == nil {
		r = &round{seq: m.Seq, how: How(m.Arg), requests: make([]*request, l.c.Ranks), done: make(chan struct{})}
		if l.rounds == nil {
			l.rounds, l.failed = map[uint64]*round{}, map[uint64]error{}
		}
		l.rounds[m.Seq] = r
		go l.watch(r)
	}
	if r.requests[from] == nil {
		r.have++
	}
	r.requests[from] = a
	switch {
	case How(m.Arg) != r.how:
		first := slices.IndexFunc(r.requests, func(a *request) bool { return a != nil && a != r.requests[from] })
		l.fail(r, fmt.Errorf("shim: rank %d called %v, rank %d called %v: %w",
			first, r.how, from, How(m.Arg), errdefs.ErrMismatch))
	case r.have == len(r.requests):
		l.close(r)
		go l.decide(r)
	}
}

// giveUp notes that a rank which has asked takes no part. If the round has ended, the rank's answer is on its way. mu
// is held.
func (l *leader) giveUp(seq uint64, from int, a *request) {
	if r := l.rounds[seq]; r != nil && r.requests[from] != nil {
		r.requests[from] = a
		go l.refuse(seq, []int{from}, fmt.Errorf("shim: %v: given up: %w", r.how, errdefs.ErrAborted))
	}
}

// close ends a round; mu is held.
func (l *leader) close(r *round) {
	delete(l.rounds, r.seq)
	close(r.done)
}

// fail ends a round with an error; mu is held.
func (l *leader) fail(r *round, err error) {
	l.close(r)
	l.failed[r.seq] = err
	go l.refuse(r.seq, r.asked(), err)
}

// asked returns the ranks that have asked.
func (r *round) asked() (ranks []int) {
	for rank, a := range r.requests {
		if a != nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// watchEvery is how often a round that waits for ranks checks that they are still there.
const watchEvery = 20 * time.Millisecond

// watch ends a round when a missing rank has left, or has not asked in time.
func (l *leader) watch(r *round) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	over := time.NewTimer(l.c.Cfg.Timeout)
	defer over.Stop()
	for {
		late := false
		select {
		case <-r.done:
			return
		case <-l.c.Released():
			return
		case <-over.C:
			late = true
		case <-tick.C:
		}
		l.mu.Lock()
		if l.rounds[r.seq] == r {
			if err := l.absent(r, late); err != nil {
				l.fail(r, err)
			}
		}
		l.mu.Unlock()
	}
}

// absent returns an error if a rank that has not asked has left or is late.
func (l *leader) absent(r *round, late bool) error {
	var missing, left []int
	for rank, a := range r.requests {
		if a == nil {
			missing = append(missing, rank)
			if l.c.Star.HasLeft(rank) {
				left = append(left, rank)
			}
		}
	}
	switch {
	case len(left) > 0:
		return fmt.Errorf("shim: %v: %s of the parent left it: %w", r.how, status.ListRanks(left), errdefs.ErrRemote)
	case late:
		return fmt.Errorf("shim: %v: timed out after %v: %s never called it: %w",
			r.how, l.c.Cfg.Timeout, status.ListRanks(missing), errdefs.ErrTimeout)
	}
	return nil
}

// refuse answers ranks with an error.
func (l *leader) refuse(seq uint64, ranks []int, err error) {
	class, text := result.Encode(err)
	for _, rank := range ranks {
		m := &control.Message{Kind: control.MsgMembershipAnswer, Seq: seq, Arg: class + 1, Body: []byte(text)}
		l.c.Star.To(rank, m)
	}
}

// send sends an answer to a rank.
func (l *leader) send(seq uint64, rank int, a *answer) {
	body, _ := json.Marshal(a) // plain structs: cannot fail
	l.c.Star.To(rank, &control.Message{Kind: control.MsgMembershipAnswer, Seq: seq, Body: body})
}

// decide answers all ranks when all have asked.
func (l *leader) decide(r *round) {
	if r.how == ByGrow {
		l.grow(r)
		return
	}
	colors := map[int][]int{}
	for rank, a := range r.requests {
		if a.Color == NoColor {
			l.send(r.seq, rank, new(answer))
			continue
		}
		colors[a.Color] = append(colors[a.Color], rank)
	}
	for _, color := range slices.Sorted(maps.Keys(colors)) {
		l.split(r, colors[color])
	}
}

// split makes the communicator of one color.
func (l *leader) split(r *round, ranks []int) {
	slices.SortStableFunc(ranks, func(x, y int) int { return cmp.Compare(r.requests[x].Key, r.requests[y].Key) })
	hellos := make([]*bootstrap.Hello, len(ranks))
	for i, rank := range ranks {
		hellos[i] = &r.requests[rank].Hello
		hellos[i].Rank, hellos[i].Ranks = i, len(ranks)
	}
	table, err := bootstrap.Agreed(hellos)
	if err != nil {
		l.refuse(r.seq, ranks, fmt.Errorf("shim: %v: %w", r.how, err))
		return
	}
	a := answer{Comm: bootstrap.RandomID(), Table: table}
	for i, rank := range ranks {
		a.Rank = i
		l.send(r.seq, rank, &a)
	}
}

// grow answers all ranks with the id at which old and new ranks meet.
func (l *leader) grow(r *round) {
	id, err := r.growID()
	if err != nil {
		l.refuse(r.seq, r.asked(), fmt.Errorf("shim: %v: %w", r.how, err))
		return
	}
	for rank := range r.requests {
		l.send(r.seq, rank, &answer{ID: id})
	}
}

// growID returns the id that ranks have passed.
func (r *round) growID() (id []byte, err error) {
	with := -1
	for rank, a := range r.requests {
		switch first := r.requests[0]; {
		case a.Hello.Leaves != "":
			return nil, fmt.Errorf("%s: %w", a.Hello.Left(), errdefs.ErrRemote)
		case a.Ranks != first.Ranks:
			return nil, fmt.Errorf("rank 0 says nRanks %d, rank %d says %d: %w", first.Ranks, rank, a.Ranks,
				errdefs.ErrMismatch)
		case len(a.ID) == 0:
		case with >= 0 && !bytes.Equal(a.ID, id):
			return nil, fmt.Errorf("ranks %d and %d have different ids: %w", with, rank, errdefs.ErrMismatch)
		default:
			with, id = rank, a.ID
		}
	}
	if with < 0 {
		return nil, fmt.Errorf("no rank has passed the id of ncclCommGetUniqueId: %w", errdefs.ErrInvalidUsage)
	}
	return id, nil
}
