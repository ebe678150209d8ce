package controller

import (
	"fmt"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// Bounds of the barrier. A rank waits for its plane between two posts, except for the last ones of an operation, so
// correct ranks need only a few epochs ahead.
const (
	maxAhead  = 4096 // epochs that a post may be ahead of its port
	keepPast  = 1024 // past moves that the barrier remembers
	maxRounds = 64   // rounds of one holder at one time
)

// barrier collects the posts of one plane. It has no clock and does no I/O; the core owns it.
type barrier struct {
	rounds map[roundKey]*round
	past   map[roundKey]circuit.Permutation // targets of rounds that have ended in a move
	ended  []roundKey                       // the keys of past, at most keepPast, the oldest at oldest
	oldest int
	spare  []*round // to reuse
}

// roundKey identifies a move that the ports of a holder agree on. Epochs are those of these ports.
type roundKey struct {
	epoch  uint32
	holder uint64
}

// round holds the posts of one epoch for one holder; all have the same target.
type round struct {
	target circuit.Permutation // of ports; only circuits inside the holder's lease count
	first  int                 // the port that posted first, for messages
	began  int64               // time of the first post
	posted []bool              // by port
	from   int                 // the move waits for no port below it
}

func newBarrier() *barrier {
	return &barrier{rounds: map[roundKey]*round{}, past: map[roundKey]circuit.Permutation{}}
}

// late reports whether a post is for an epoch before the port's, cur. A late post for the move that ended its epoch
// is accepted and changes nothing; err is ErrStaleEpoch for any other.
func (b *barrier) late(cur uint32, port int, k roundKey, target circuit.Permutation) (late bool, err error) {
	if k.epoch >= cur {
		return false, nil
	}
	if was, known := b.past[k]; known && was.Equal(target) {
		return true, nil
	}
	return true, fmt.Errorf("post of port %d for epoch %d, plane is at %d: %w", port, k.epoch, cur, ocsctl.ErrStaleEpoch)
}

// post records that port agrees to a move to target; cur is the port's epoch. The barrier keeps target. A repeated
// post changes nothing.
func (b *barrier) post(cur uint32, port int, k roundKey, target circuit.Permutation, now int64) error {
	r := b.rounds[k]
	switch {
	case r == nil && (k.epoch-cur > maxAhead || b.waiting(k.holder) >= maxRounds):
		return fmt.Errorf("post of port %d for epoch %d, plane is at %d: too far ahead: %w",
			port, k.epoch, cur, ocsctl.ErrStaleEpoch)
	case r == nil:
		r = b.round(len(target))
		r.target, r.first, r.began = target, port, now
		b.rounds[k] = r
	case !r.target.Equal(target):
		return fmt.Errorf("ports %d and %d posted different maps: %w", r.first, port, ocsctl.ErrConflict)
	}
	r.posted[port] = true
	return nil
}

// waiting returns the number of a holder's rounds.
func (b *barrier) waiting(holder uint64) (n int) {
	for k := range b.rounds {
		if k.holder == holder {
			n++
		}
	}
	return n
}

// round returns an empty round.
func (b *barrier) round(ports int) *round {
	if n := len(b.spare); n > 0 {
		r := b.spare[n-1]
		b.spare = b.spare[:n-1]
		clear(r.posted)
		r.from = 0
		return r
	}
	return &round{posted: make([]bool, ports)}
}

// changing returns the ports whose circuit differs between two maps: a move needs their posts.
func changing(cur, target circuit.Permutation) []int {
	var ports []int
	for r := range cur {
		if cur[r] != target[r] {
			ports = append(ports, r)
		}
	}
	return ports
}

// done ends a round after the plane has moved to its target.
func (b *barrier) done(k roundKey) {
	r := b.rounds[k]
	if r == nil {
		return
	}
	b.past[k] = r.target
	b.drop(k)
	if len(b.ended) < keepPast {
		b.ended = append(b.ended, k)
		return
	}
	delete(b.past, b.ended[b.oldest])
	b.ended[b.oldest] = k
	b.oldest = (b.oldest + 1) % keepPast
}

// recheck resets round.from, since a port has got a rank.
func (b *barrier) recheck() {
	for _, r := range b.rounds {
		r.from = 0
	}
}

// drop forgets a round.
func (b *barrier) drop(k roundKey) {
	if r := b.rounds[k]; r != nil {
		delete(b.rounds, k)
		b.spare = append(b.spare, r)
	}
}

// reset forgets every post.
func (b *barrier) reset() {
	for k := range b.rounds {
		b.drop(k)
	}
}

// forget removes the posts of a port.
func (b *barrier) forget(port int) {
	for k, r := range b.rounds {
		if !r.posted[port] {
			continue
		}
		r.posted[port], r.from = false, 0
		if !slices.Contains(r.posted, true) {
			b.drop(k)
		}
	}
}
