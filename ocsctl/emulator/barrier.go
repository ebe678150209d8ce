package emulator

import (
	"fmt"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// Bounds of the barrier. A rank waits for its plane between two posts, except for the
// trailing ones of an operation, so a few epochs ahead is what honest ranks need.
const (
	maxAhead  = 4096 // epochs that a post may be ahead of the plane
	keepPast  = 1024 // epochs whose outcome is remembered
	maxRounds = 64   // epochs with posts at one time
)

// barrier collects the posts of one plane. It decides nothing about time and performs no
// I/O; the switching thread owns it.
type barrier struct {
	rounds map[uint32]*round
	past   map[uint32]circuit.Permutation // epoch -> the map it was switched to from there
}

// round is the posts of one epoch; all agree on target.
type round struct {
	target circuit.Permutation
	first  int // who posted first, for messages
	ports  map[int]bool
}

func newBarrier() *barrier {
	return &barrier{rounds: map[uint32]*round{}, past: map[uint32]circuit.Permutation{}}
}

// post records that port agrees to move from epoch to target, where the plane is at cur.
// A repetition of what was posted or has happened is accepted and changes nothing.
func (b *barrier) post(cur uint32, port int, epoch uint32, target circuit.Permutation) error {
	if epoch < cur {
		if was, known := b.past[epoch]; known && was.Equal(target) {
			return nil
		}
		return fmt.Errorf("post of port %d for epoch %d, plane is at %d: %w", port, epoch, cur, ocsctl.ErrStaleEpoch)
	}
	r := b.rounds[epoch]
	switch {
	case r == nil && (epoch-cur > maxAhead || len(b.rounds) >= maxRounds):
		return fmt.Errorf("post of port %d for epoch %d, plane is at %d: too far ahead: %w", port, epoch, cur, ocsctl.ErrStaleEpoch)
	case r == nil:
		b.rounds[epoch] = &round{target: target, first: port, ports: map[int]bool{port: true}}
	case !r.target.Equal(target):
		return fmt.Errorf("ports %d and %d posted different maps: %w", r.first, port, ocsctl.ErrConflict)
	default:
		r.ports[port] = true
	}
	return nil
}

// changing lists the ports whose circuit differs between two maps: those that must agree.
func changing(cur, target circuit.Permutation) []int {
	var ports []int
	for r := range cur {
		if cur[r] != target[r] {
			ports = append(ports, r)
		}
	}
	return ports
}

// missing returns the round of epoch (nil without posts) and the changing ports that have
// not posted.
func (b *barrier) missing(epoch uint32, cur circuit.Permutation) (*round, []int) {
	r := b.rounds[epoch]
	if r == nil {
		return nil, nil
	}
	return r, slices.DeleteFunc(changing(cur, r.target), func(p int) bool { return r.ports[p] })
}

// done closes the round of epoch, whose outcome was target.
func (b *barrier) done(epoch uint32, target circuit.Permutation) {
	delete(b.rounds, epoch)
	b.past[epoch] = target
	delete(b.past, epoch-keepPast)
}

// forget removes what a port has posted.
func (b *barrier) forget(port int) {
	for epoch, r := range b.rounds {
		if delete(r.ports, port); len(r.ports) == 0 {
			delete(b.rounds, epoch)
		}
	}
}
