package sequence

import (
	"slices"
	"time"
)

const (
	// window bounds the remembered operations, and so the period: window / repeats.
	window = 4096
	// maxChain bounds the candidates that one operation tries.
	maxChain = 256
	// base is of the polynomial hash, odd.
	base = 0x9e3779b97f4a7c15
)

// Change is what an operation has changed.
type Change uint8

// The changes.
const (
	Same   Change = iota
	Locked        // the sequence repeats: there are predictions from now on
	Lost          // the operation was not the predicted one
	Other         // the operation was not the predicted one, and ends a period of another cycle, which is in force now
)

// Learner finds the smallest period that the last operations have repeated. A call of Add takes a bounded time.
// Not safe for concurrent use.
type Learner struct {
	repeats int
	count   uint64 // operations so far
	ring    []past // of the last operations, by number modulo window
	last    map[uint64]uint64
	cycle   *Cycle // in force, or the last one
	locked  bool
	at      int // position in the cycle that comes next
}

// past is an operation that has ended.
type past struct {
	key  uint64
	sum  uint64 // hash of all operations up to this one
	prev uint64 // number of the operation before with the same key, counted from 1; 0: none is known
	gap  time.Duration
}

// Cycle is a period, read-only.
type Cycle struct {
	ID   uint64 // hash of Keys
	Keys []uint64
	Gaps []time.Duration // before each operation, the shortest of those seen; below 0: not known
	sums []uint64        // by length of a prefix of two rounds
}

// New returns a learner. It predicts once a period has come so many times, at least 2.
func New(repeats int) *Learner {
	return &Learner{repeats: max(repeats, 2), last: map[uint64]uint64{}}
}

// Add adds an operation that has ended. gap is the time between the operation before and the request of this one, below
// 0 if it is not known.
func (l *Learner) Add(key uint64, gap time.Duration) Change {
	l.note(key, gap)
	if l.locked && key == l.cycle.Keys[l.at] {
		l.at = (l.at + 1) % len(l.cycle.Keys)
		return Same
	}
	was := l.locked
	l.locked = l.again() || l.find()
	switch {
	case was && l.locked:
		return Other
	case was:
		return Lost
	case l.locked:
		return Locked
	}
	return Same
}

// Next returns the position of the next operation in the cycle, and the cycle; nil: there is no prediction.
func (l *Learner) Next() (int, *Cycle) {
	if !l.locked {
		return 0, nil
	}
	return l.at, l.cycle
}

// note remembers an operation.
func (l *Learner) note(key uint64, gap time.Duration) {
	p := past{key: key, gap: gap, sum: key}
	if l.count > 0 {
		p.sum += l.op(l.count).sum * base
	}
	p.prev = l.last[key]
	if l.count++; len(l.ring) < window {
		l.ring = append(l.ring, p)
	} else {
		*l.op(l.count) = p
	}
	if len(l.last) >= window { // of a trace that never repeats
		clear(l.last)
	}
	l.last[key] = l.count
}

// op returns an operation by its number from 1.
func (l *Learner) op(number uint64) *past { return &l.ring[(number-1)%window] }

// knows reports whether the last n operations are remembered, and the one before them.
func (l *Learner) knows(n uint64) bool { return n <= l.count && n < window }

// hash returns the hash of n operations up to a number.
func (l *Learner) hash(to, n uint64) uint64 {
	if to == n {
		return l.op(to).sum
	}
	return l.op(to).sum - l.op(to-n).sum*power(n)
}

// power returns base to the power of n.
func power(n uint64) uint64 {
	p, b := uint64(1), uint64(base)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			p *= b
		}
		b *= b
	}
	return p
}

// again resumes the last cycle if the last operations are one round of it: after a validation step, say.
func (l *Learner) again() bool {
	if l.cycle == nil {
		return false
	}
	n := len(l.cycle.Keys)
	if !l.knows(uint64(n)) {
		return false
	}
	key, sum := l.op(l.count).key, l.hash(l.count, uint64(n))
	for i, k := range l.cycle.Keys {
		if k == key && l.cycle.round(i+1) == sum {
			l.at = (i + 1) % n
			return true
		}
	}
	return false
}

// round returns the hash of the round that begins at a position.
func (c *Cycle) round(from int) uint64 {
	n := len(c.Keys)
	return c.sums[from+n] - c.sums[from]*power(uint64(n))
}

// find finds the smallest period that the last operations have repeated. Candidates are the distances to earlier
// operations with the last one's key.
func (l *Learner) find() bool {
	end := l.op(l.count)
	tried := 0
	for prev := end.prev; prev != 0 && tried < maxChain; tried++ {
		p := l.count - prev
		all := p * uint64(l.repeats)
		if !l.knows(all) {
			return false
		}
		if same := all - p; l.hash(l.count, same) == l.hash(prev, same) {
			l.lock(int(p))
			return true
		}
		prev = l.op(prev).prev
	}
	return false
}

// lock puts the cycle of the last n operations in force.
func (l *Learner) lock(n int) {
	c := &Cycle{Keys: make([]uint64, n), Gaps: make([]time.Duration, n), sums: make([]uint64, 1, 2*n+1)}
	for i := range n {
		at := l.count - uint64(n-1-i)
		c.Keys[i], c.Gaps[i] = l.op(at).key, -1
		for r := range uint64(l.repeats) {
			if gap := l.op(at - r*uint64(n)).gap; gap >= 0 && (c.Gaps[i] < 0 || gap < c.Gaps[i]) {
				c.Gaps[i] = gap
			}
		}
	}
	for _, k := range slices.Concat(c.Keys, c.Keys) {
		c.sums = append(c.sums, c.sums[len(c.sums)-1]*base+k)
	}
	c.ID = c.sums[n]
	l.cycle, l.at = c, 0
}
