package controller

import (
	"testing"

	"lightpath/plans/circuit"
)

// TestBarrierForgets: after the last post of a round is void, the next one may name another map, and rounds that are
// used again share nothing.
func TestBarrierForgets(t *testing.T) {
	b := newBarrier()
	post := func(port int, k roundKey, target circuit.Permutation) {
		t.Helper()
		if err := b.post(0, port, k, target, 0); err != nil {
			t.Fatal(err)
		}
	}
	one, two := circuit.Shift(3, 1), circuit.Shift(3, 2)
	mine, yours := roundKey{0, 1}, roundKey{0, 2}
	post(0, mine, one)
	post(1, mine, one)
	post(1, mine, one) // repeated
	b.forget(0)
	if r := b.rounds[mine]; r == nil || r.posted[0] || !r.posted[1] {
		t.Fatalf("one post is void: %+v", r)
	}
	b.forget(1)
	post(0, mine, two)
	post(1, yours, one)
	m, y := b.rounds[mine], b.rounds[yours]
	if m.posted[1] || y.posted[0] || !m.target.Equal(two) || !y.target.Equal(one) {
		t.Errorf("rounds share posts: %+v, %+v", m, y)
	}
	b.done(mine)
	b.done(yours)
	if len(b.rounds) != 0 {
		t.Errorf("rounds of a past epoch: %v", b.rounds)
	}
	for epoch := uint32(1); epoch < maxRounds+1; epoch++ {
		post(0, roundKey{epoch, 1}, one)
	}
	if err := b.post(0, 0, roundKey{maxRounds + 1, 1}, one, 0); err == nil {
		t.Error("too many rounds")
	}
	for k, r := range b.rounds {
		if r.posted[1] || r.posted[2] || !r.posted[0] {
			t.Errorf("round %+v is not its own: %+v", k, r)
		}
	}
	b.reset()
	for epoch := range uint32(2 * keepPast) {
		post(0, roundKey{epoch, 1}, one)
		b.done(roundKey{epoch, 1})
	}
	_, oldest := b.past[roundKey{keepPast, 1}]
	if len(b.past) != keepPast || !oldest {
		t.Errorf("%d past rounds", len(b.past))
	}
}
