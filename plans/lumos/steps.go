package lumos

import (
	"cmp"
	"fmt"
	"slices"

	"lightpath/plans/circuit"
	"lightpath/plans/lumos/matrix"
)

// Move gives a pair of OCSes new maps.
type Move struct {
	Group int                 `json:"group"`
	Pair  int                 `json:"pair"`
	Even  circuit.Permutation `json:"even"` // of OCS 2 x Pair; the other's is the inverse
}

// Maps returns the new maps of both OCSes of the pair, the even one's first.
func (m Move) Maps() [2]circuit.Permutation {
	return [2]circuit.Permutation{m.Even, m.Even.Inverse()}
}

// Moves lists the pairs of OCSes whose maps differ, with those of to.
func Moves(from, to *Configuration) []Move {
	var all []Move
	for h := range to.Even {
		for k, p := range to.Even[h] {
			if !p.Equal(from.Even[h][k]) {
				all = append(all, Move{h, k, p})
			}
		}
	}
	return all
}

// Step is a set of concurrent moves. Their changed circuits are dark until all have ended.
type Step struct {
	Moves []Move `json:"moves"`
	// Leaf is the leaf with the largest share of dark links during the step, and Affected this share, 0 to 1. Links
	// that earlier steps have left dark count.
	Leaf     int     `json:"leaf"`
	Affected float64 `json:"affected"`
}

// Continuing returns the part of a logical topology that stays in use when its requirement becomes r. If a pair of
// leaves has too many links, those by the last spines end.
func (l *Logical) Continuing(r *Requirement) *Logical {
	left := r.links.Clone()
	run := newLogical(l.Fabric)
	for h, share := range l.Share {
		for a := range share.Size() {
			for _, c := range share.Row(a) {
				if n := min(c.Count, left.At(a, c.Col)); a < c.Col && n > 0 {
					run.add(h, a, c.Col, n)
					left.Add(a, c.Col, -n)
				}
			}
		}
	}
	return run
}

// Steps orders the moves from one configuration to another into few steps. Each step affects at most iota of
// the links that any leaf has in running. A link is affected if its pods have fewer circuits in its group
// than links there, because of this step or of earlier ones. Steps merges groups as far as iota allows, and
// divides a group that exceeds it. A step may exceed iota only if it is a single pair of OCSes. No other
// group then has dark links. Each step states what it affects.
func Steps(from, to *Configuration, running *Logical, iota float64) ([]Step, error) {
	switch {
	case from.Fabric != to.Fabric || running.Fabric != to.Fabric:
		return nil, fmt.Errorf("%w: the configurations and the topology are of different fabrics", ErrInput)
	case !(iota > 0 && iota <= 1):
		return nil, fmt.Errorf("%w: iota: %v is not above 0 and at most 1", ErrInput, iota)
	}
	for _, c := range []*Configuration{from, to} {
		if err := c.Validate(); err != nil {
			return nil, err
		}
	}
	m := newMerger(running, iota)
	for h := range from.Even {
		m.stays(h, from.Even[h], to.Even[h])
		m.divide(h, from.Even[h], to.Even[h])
	}
	return m.steps(m.merge()), nil
}

// item is a set of concurrent moves of one group.
type item struct {
	moves []Move
	hit   map[int]int // links that are dark during the item, by leaf
	rest  map[int]int // links of hit that stay dark until the next item of the group
	after int         // index of the item of the group that must be in an earlier step; -1 for none
}

type merger struct {
	iota    float64
	running *Logical
	links   []int // by leaf, over all spines
	items   []item
	lasting *matrix.Matrix // of the group that is being divided: links of pods that it carries before and afterwards
}

func newMerger(running *Logical, iota float64) *merger {
	m := &merger{iota: iota, running: running, links: make([]int, running.Fabric.Leaves())}
	for _, share := range running.Share {
		for a := range m.links {
			m.links[a] += share.RowSum(a)
		}
	}
	return m
}

// divide divides the changes of group h into items: one, or several in order if one affects too many links.
func (m *merger) divide(h int, from, to []circuit.Permutation) {
	var left []int
	for k := range from {
		if !from[k].Equal(to[k]) {
			left = append(left, k)
		}
	}
	state := slices.Clone(from)
	after := -1
	for len(left) > 0 {
		taken := left
		hit := m.affected(h, state, to, taken)
		if !m.fits(nil, hit) {
			taken, hit = m.some(h, state, to, left)
		}
		it := item{hit: hit, after: after}
		for _, k := range taken {
			it.moves = append(it.moves, Move{h, k, to[k]})
			state[k] = to[k]
		}
		it.rest = m.affected(h, state, to, nil)
		after = len(m.items)
		m.items = append(m.items, it)
		left = slices.DeleteFunc(slices.Clone(left), func(k int) bool { return slices.Contains(taken, k) })
	}
}

// some returns as many of the pairs left as can move at once; if not even one can, the pair that affects the fewest
// links.
func (m *merger) some(h int, state, to []circuit.Permutation, left []int) (taken []int, hit map[int]int) {
	type single struct {
		k     int
		worst float64
	}
	order := make([]single, len(left))
	for i, k := range left {
		_, worst := m.worst(m.affected(h, state, to, []int{k}))
		order[i] = single{k, worst}
	}
	slices.SortStableFunc(order, func(x, y single) int { return cmp.Compare(x.worst, y.worst) })
	for _, s := range order {
		more := append(slices.Clone(taken), s.k)
		moreHit := m.affected(h, state, to, more)
		if len(taken) == 0 || m.fits(nil, moreHit) {
			taken, hit = more, moreHit
		}
	}
	return taken, hit
}

// circuits counts the circuits of pairs of pods, both ways.
func circuits(pods int, maps []circuit.Permutation) *matrix.Matrix {
	n := matrix.New(pods)
	for _, p := range maps {
		for i, j := range p {
			if j != circuit.Dark {
				n.Add(i, j, 1)
				n.Add(j, i, 1)
			}
		}
	}
	return n
}

// stays records which links of pods group h carries before and afterwards. The others end, or get another group's
// circuits.
func (m *merger) stays(h int, from, to []circuit.Permutation) {
	before, after := circuits(m.running.Fabric.Pods, from), circuits(m.running.Fabric.Pods, to)
	m.lasting = matrix.New(m.running.Fabric.Pods)
	for i := range m.lasting.Size() {
		for _, c := range m.running.Core[h].Row(i) {
			m.lasting.Add(i, c.Col, min(c.Count, before.At(i, c.Col), after.At(i, c.Col)))
		}
	}
}

// affected counts the links, by leaf, that may be dark while the given pairs of group h move. A link counts
// if it loses its circuit now, or if it has lost one before and gets another circuit of the group later.
func (m *merger) affected(h int, state, to []circuit.Permutation, pairs []int) map[int]int {
	now := circuits(m.running.Fabric.Pods, state)
	stay := now.Clone()
	for _, k := range pairs {
		for i, j := range state[k] {
			if j != circuit.Dark && to[k][i] != j {
				stay.Add(i, j, -1)
				stay.Add(j, i, -1)
			}
		}
	}
	hit := map[int]int{}
	f, share := m.running.Fabric, m.running.Share[h]
	for a := range share.Size() {
		by := map[int]int{} // links by pod at the other end
		for _, c := range share.Row(a) {
			by[f.Pod(c.Col)] += c.Count
		}
		for j, links := range by {
			i := f.Pod(a)
			loses := max(0, min(m.running.Core[h].At(i, j), now.At(i, j))-stay.At(i, j))
			lost := max(0, m.lasting.At(i, j)-now.At(i, j))
			if dark := min(loses+lost, links); dark > 0 {
				hit[a] += dark
			}
		}
	}
	return hit
}

// worst returns a leaf that loses the largest share of its links, the first of several.
func (m *merger) worst(hit map[int]int) (leaf int, share float64) {
	for a, n := range hit {
		if s := float64(n) / float64(m.links[a]); s > share || s == share && a < leaf {
			leaf, share = a, s
		}
	}
	return leaf, share
}

// within reports whether n links are at most iota of those of leaf a.
func (m *merger) within(a, n int) bool { return float64(n) <= m.iota*float64(m.links[a])*(1+1e-12) }
