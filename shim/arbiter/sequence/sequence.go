package sequence

import (
	"slices"
	"time"

	"lightpath/internal/period"
)

const (
	// DefaultRepeats is how often a sequence has to come before the next operation is predicted.
	DefaultRepeats = 3
	// window bounds the remembered operations, and so the period: window / repeats.
	window = 4096
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

// Learner finds the smallest period that the last operations have repeated. Not safe for concurrent use.
type Learner struct {
	repeats int
	keys    []uint64        // of the last operations, fewer than 2 * window
	gaps    []time.Duration // before them
	agrees  []int           // see find
	cycle   *Cycle          // in force, or the last one
	locked  bool
	at      int // position in the cycle that comes next
}

// Cycle is a period, read-only.
type Cycle struct {
	ID   uint64 // hash of Keys
	Keys []uint64
	Gaps []time.Duration // before each operation, the shortest of those seen (see lock); below 0: not known
}

// New returns a learner. It predicts once a period has come so many times, at least 2.
func New(repeats int) *Learner {
	repeats = max(repeats, 2)
	return &Learner{repeats: repeats, agrees: make([]int, window/repeats+1)}
}

// Add adds an operation that has ended. gap is the time between the operation before and the request of this one, below
// 0 if it is not known.
func (l *Learner) Add(key uint64, gap time.Duration) Change {
	l.keys, l.gaps = remember(l.keys, key), remember(l.gaps, gap)
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

// remember adds a value to those of the last operations. At twice the window it forgets half of them.
func remember[V any](list []V, v V) []V {
	if list = append(list, v); len(list) < 2*window {
		return list
	}
	return list[:copy(list, list[window:])]
}

// again resumes the last cycle if the last operations are one round of it: after a validation step, say.
func (l *Learner) again() bool {
	if l.cycle == nil {
		return false
	}
	keys := l.cycle.Keys
	n := len(keys)
	round := l.keys[len(l.keys)-n:]
	for at := range n {
		if slices.Equal(round[:n-at], keys[at:]) && slices.Equal(round[n-at:], keys[:at]) {
			l.at = at
			return true
		}
	}
	return false
}

// find finds the smallest period that the last operations have repeated.
func (l *Learner) find() bool {
	recent := l.keys[max(0, len(l.keys)-window):]
	agrees := l.agrees[:len(recent)/l.repeats+1]
	period.Agreement(agrees, recent)
	for p, n := range agrees {
		if p > 0 && n >= p*(l.repeats-1) {
			l.lock(p)
			return true
		}
	}
	return false
}

// lock puts the cycle of the last n operations in force. If no gap before an operation is known, as its tickets went out
// ahead in another cycle, the gap is the shortest between two such operations.
func (l *Learner) lock(n int) {
	first := len(l.keys) - n
	c := &Cycle{Keys: slices.Clone(l.keys[first:]), Gaps: make([]time.Duration, n)}
	for i, key := range c.Keys {
		c.ID = c.ID*0x9e3779b97f4a7c15 + key
		c.Gaps[i] = -1
		for r := range l.repeats {
			if gap := l.gaps[first+i-r*n]; gap >= 0 && (c.Gaps[i] < 0 || gap < c.Gaps[i]) {
				c.Gaps[i] = gap
			}
		}
	}
	if slices.Contains(c.Gaps, -1) {
		between := l.shortest()
		for i, key := range c.Keys {
			if gap, ok := between[[2]uint64{c.Keys[(i+n-1)%n], key}]; ok && c.Gaps[i] < 0 {
				c.Gaps[i] = gap
			}
		}
	}
	l.cycle, l.at = c, 0
}

// shortest returns the shortest known gap between the operations of two keys that followed each other.
func (l *Learner) shortest() map[[2]uint64]time.Duration {
	between := map[[2]uint64]time.Duration{}
	for i := 1; i < len(l.keys); i++ {
		pair := [2]uint64{l.keys[i-1], l.keys[i]}
		if least, ok := between[pair]; l.gaps[i] >= 0 && (!ok || l.gaps[i] < least) {
			between[pair] = l.gaps[i]
		}
	}
	return between
}
