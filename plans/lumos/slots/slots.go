package slots

import (
	"fmt"

	"lightpath/plans/circuit"
	"lightpath/plans/lumos/matrix"
)

// none marks an empty slot.
const none = int32(circuit.Dark)

// Table is the links of n nodes in q slots. Not safe for concurrent use.
type Table struct {
	n, q    int
	out, in []int32        // by node and slot: the other end
	have    *matrix.Matrix // links of every pair, symmetric
	want    *matrix.Matrix // how many of them are needed, symmetric

	// Cost, unless nil, returns the cost of slot c for a new link u -> v: 0 is best, and below 0 the slot is forbidden.
	// Links that make way for others ignore it.
	Cost func(u, v, c int) int
	// Watch, unless nil, is called for every link that is added (by = 1) or removed (by = -1).
	Watch func(u, v, c, by int)
}

// New returns a table without links.
func New(n, q int) *Table {
	t := &Table{n: n, q: q, out: make([]int32, n*q), in: make([]int32, n*q), have: matrix.New(n), want: matrix.New(n)}
	for s := range t.out {
		t.out[s], t.in[s] = none, none
	}
	return t
}

// At returns the node to which slot c of u leads, or [circuit.Dark] if the slot is empty.
func (t *Table) At(u, c int) int { return int(t.out[u*t.q+c]) }

// From returns the node whose link enters slot c of v, or [circuit.Dark] if the slot is empty.
func (t *Table) From(v, c int) int { return int(t.in[v*t.q+c]) }

// Have returns how many links u and v have, in both directions.
func (t *Table) Have(u, v int) int { return t.have.At(u, v) }

// Links returns a copy of slot c of all nodes as a map.
func (t *Table) Links(c int) circuit.Permutation {
	p := circuit.AllDark(t.n)
	for u := range p {
		p[u] = t.At(u, c)
	}
	return p
}

// Put adds the link u -> v in slot c, which must be empty at both ends.
func (t *Table) Put(u, v, c int) {
	t.out[u*t.q+c], t.in[v*t.q+c] = int32(v), int32(u)
	t.count(u, v, c, 1)
}

// drop removes the link that leaves u by slot c. The slot must not be empty.
func (t *Table) drop(u, c int) {
	v := t.At(u, c)
	t.out[u*t.q+c], t.in[v*t.q+c] = none, none
	t.count(u, v, c, -1)
}

func (t *Table) count(u, v, c, by int) {
	t.have.Add(u, v, by)
	t.have.Add(v, u, by)
	if t.Watch != nil {
		t.Watch(u, v, c, by)
	}
}

// surplus reports whether a link of u and v may be removed.
func (t *Table) surplus(u, v int) bool { return t.have.At(u, v) > t.want.At(u, v) }

// openOut reports whether a link may leave u by slot c: the slot is empty, or its link may be removed.
func (t *Table) openOut(u, c int) bool { v := t.At(u, c); return v < 0 || t.surplus(u, v) }

// openIn is openOut for a link that enters v.
func (t *Table) openIn(v, c int) bool { u := t.From(v, c); return u < 0 || t.surplus(u, v) }

// clear empties slot c of u's links out and of v's links in.
func (t *Table) clear(u, v, c int) {
	if t.At(u, c) >= 0 {
		t.drop(u, c)
	}
	if from := t.From(v, c); from >= 0 {
		t.drop(from, c)
	}
}

// Prune removes the links that want does not need; of equal links, those in the last slots. It adds none. It keeps
// want, which must not change later.
func (t *Table) Prune(want *matrix.Matrix) {
	t.want = want
	for u := range t.n {
		for c := t.q - 1; c >= 0; c-- {
			if v := t.At(u, c); v >= 0 && t.surplus(u, v) {
				t.drop(u, c)
			}
		}
	}
}

// Reach adds the links of want that are missing. want must be symmetric with an empty diagonal. Reach keeps
// want, which must not change later. Existing links stay, even those not in want, unless Reach needs their
// slots. A new link takes slots that are empty at both ends, or else slots of links that are not in want.
// Otherwise links move along an alternating path of two slots, or links turn round on a path to a node with
// room. An error names a node with more than 2q links; nothing has changed then.
func (t *Table) Reach(want *matrix.Matrix) error {
	for u := range t.n {
		if sum := want.RowSum(u); sum > 2*t.q {
			return fmt.Errorf("node %d: %d links and %d slots", u, sum, 2*t.q)
		}
	}
	t.want = want
	for u := range t.n {
		for _, cell := range want.Row(u) {
			if cell.Col < u {
				continue
			}
			for t.have.At(u, cell.Col) < cell.Count {
				t.add(u, cell.Col)
			}
		}
	}
	return nil
}

// add adds a link between i and j, in the better direction.
func (t *Table) add(i, j int) {
	if t.direct(i, j, true) {
		return
	}
	for {
		switch {
		case t.canJoin(i, j) && t.shift(i, j), t.canJoin(j, i) && t.shift(j, i):
			return
		case !t.canJoin(i, j) && !t.canJoin(j, i):
			t.turn(i, j)
		}
	}
}

// join makes a link from u to v, whose open slots suffice.
func (t *Table) join(u, v int) {
	if t.direct(u, v, false) {
		return
	}
	for !t.shift(u, v) {
	}
}

// canJoin reports whether a link can leave u and one can enter v.
func (t *Table) canJoin(u, v int) bool {
	return t.first(u, t.openOut) >= 0 && t.first(v, t.openIn) >= 0
}

// first returns the first open slot of u, or -1.
func (t *Table) first(u int, open func(u, c int) bool) int {
	for c := range t.q {
		if open(u, c) {
			return c
		}
	}
	return -1
}

// direct adds a link i -> j, or also j -> i if either is true, in a slot that is open at both ends. It returns false if
// there is no such slot. It takes the slot that costs least and removes the fewest links.
func (t *Table) direct(i, j int, either bool) bool {
	best, bu, bv, bc := -1, 0, 0, 0
	for c := range t.q {
		for way := range 2 {
			u, v := i, j
			if way == 1 {
				u, v = j, i
			}
			if way == 1 && !either || !t.openOut(u, c) || !t.openIn(v, c) {
				continue
			}
			cost := 0
			if t.Cost != nil {
				if cost = t.Cost(u, v, c); cost < 0 {
					continue
				}
			}
			cost *= 3
			if t.At(u, c) >= 0 {
				cost++
			}
			if t.From(v, c) >= 0 {
				cost++
			}
			if best < 0 || cost < best {
				best, bu, bv, bc = cost, u, v, c
			}
		}
		if best == 0 {
			break
		}
	}
	if best < 0 {
		return false
	}
	t.clear(bu, bv, bc)
	t.Put(bu, bv, bc)
	return true
}

// Fits reports whether a new link of u and v would find slots without any link moving.
func (t *Table) Fits(u, v int) bool {
	for c := range t.q {
		if t.openOut(u, c) && t.openIn(v, c) || t.openOut(v, c) && t.openIn(u, c) {
			return true
		}
	}
	return false
}
