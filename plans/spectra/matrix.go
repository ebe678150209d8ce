package spectra

import (
	"cmp"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Matrix is a square demand: [r][s] is how long the circuit r -> s must be held, not
// negative and finite. The functions of this package do not change it.
type Matrix [][]float64

// Decomposition is a sequence of permutations with the time for which each is held.
type Decomposition struct {
	Perms   []circuit.Permutation // Dark where a completion may be arbitrary
	Weights []float64             // same length; not negative
}

// Length returns the time of one switch: a reconfiguration and the weight of every permutation (Eq. 2).
func (d Decomposition) Length(delta float64) float64 {
	sum := 0.0
	for _, w := range d.Weights {
		sum += delta + w
	}
	return sum
}

// Timetable is a decomposition for every switch.
type Timetable []Decomposition

// Makespan returns the time of the switch that takes longest (Eq. 4).
func (t Timetable) Makespan(delta float64) float64 {
	longest := 0.0
	for _, d := range t {
		longest = max(longest, d.Length(delta))
	}
	return longest
}

// network is a demand with the circuits that can serve it. Entries are what must be
// covered; an edge of the matching graph is a circuit (or, on a duplex plane, two) that
// covers one entry while it is held.
type network struct {
	n      int
	kind   plans.CircuitKind
	demand []float64  // per entry, above 0
	row    [][2]int32 // per entry: its two ports
	start  []int32    // the edges of sender u are start[u]..start[u+1]
	from   []int32    // per edge: sender
	to     []int32    // per edge: receiver
	entry  []int32    // per edge: the entry that it covers
	extra  []bool     // per edge: a second way to cover its entry, which nothing relies on; nil: none is
}

// uncovered sets left to the demand of each entry without what holds cover; below 0, they cover more.
func (w *network) uncovered(left []float64, holds []hold) {
	copy(left, w.demand)
	for _, h := range holds {
		for _, e := range h.edges {
			left[w.entry[e]] -= h.weight
		}
	}
}

// newNetwork prepares d for planes of one kind.
//
//   - Simplex: an entry for each positive cell, and its circuit.
//   - Duplex: a circuit comes with the opposite one, so an entry is a pair of ranks, which
//     needs the larger of its two demands.
//   - Interleaved: the other plane of the unit has the inverse, so again an entry is a pair.
//     A circuit in either direction covers it, and both together cover it twice as fast. One of
//     the two lets a rank send as much as it receives ([network.orient]); the other one is extra.
//     A circuit r -> r is on both planes, so that its demand counts half.
func newNetwork(d Matrix, kind plans.CircuitKind) *network {
	w := &network{n: len(d), kind: kind}
	for r, cells := range d {
		for s, x := range cells {
			if kind != plans.Simplex {
				x = max(x, d[s][r])
			}
			if x <= 0 || kind != plans.Simplex && s < r {
				continue
			}
			if kind == plans.Interleaved && r == s {
				x /= 2
			}
			w.demand, w.row = append(w.demand, x), append(w.row, [2]int32{int32(r), int32(s)})
		}
	}
	back := make([]bool, len(w.demand))
	if kind == plans.Interleaved {
		w.orient(back)
	}
	w.connect(back)
	return w
}

// connect lists the edges by sender: an entry's from its first port to its second, or back, and on
// interleaved planes the opposite one as an extra.
func (w *network) connect(back []bool) {
	type edge struct {
		u, v, entry int32
		extra       bool
	}
	edges := make([]edge, 0, len(w.row))
	for i, pair := range w.row {
		e := edge{pair[0], pair[1], int32(i), false}
		if back[i] {
			e.u, e.v = e.v, e.u
		}
		if edges = append(edges, e); w.kind == plans.Interleaved && e.u != e.v {
			edges = append(edges, edge{e.v, e.u, e.entry, true})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.u, b.u) })
	m := len(edges)
	w.start, w.from, w.to, w.entry = make([]int32, w.n+1), make([]int32, m), make([]int32, m), make([]int32, m)
	if w.kind == plans.Interleaved {
		w.extra = make([]bool, m)
	}
	for i, e := range edges {
		w.start[e.u+1]++
		w.from[i], w.to[i], w.entry[i] = e.u, e.v, e.entry
		if w.extra != nil {
			w.extra[i] = e.extra
		}
	}
	for u := range w.n {
		w.start[u+1] += w.start[u]
	}
}

// isExtra reports whether an edge is a second way to cover its entry.
func (w *network) isExtra(edge int32) bool { return w.extra != nil && w.extra[edge] }

// orient chooses directions of the entries, true for backwards. Of a rank's entries, sorted by falling demand, the
// first and second go in opposite directions, the third and fourth too, and so on. The paths and cycles that these
// pairs form always allow this. So sent and received entries are as many, and of similar demands.
func (w *network) orient(back []bool) {
	byRank := make([][]int32, w.n)
	for i, pair := range w.row {
		if pair[0] != pair[1] {
			byRank[pair[0]], byRank[pair[1]] = append(byRank[pair[0]], int32(i)), append(byRank[pair[1]], int32(i))
		}
	}
	partner := [2][]int32{make([]int32, len(w.row)), make([]int32, len(w.row))} // at each end
	for end := range partner {
		for i := range partner[end] {
			partner[end][i] = -1
		}
	}
	end := func(i int32, r int) int {
		if int(w.row[i][0]) == r {
			return 0
		}
		return 1
	}
	for r, list := range byRank {
		slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(w.demand[b], w.demand[a]) })
		for k := 0; k+1 < len(list); k += 2 {
			a, b := list[k], list[k+1]
			partner[end(a, r)][a], partner[end(b, r)][b] = b, a
		}
	}
	done := make([]bool, len(w.row))
	for i := range w.row {
		if done[i] || w.row[i][0] == w.row[i][1] {
			continue
		}
		done[i] = true
		for first := range 2 { // from either end of i, to the end of the path or round the cycle
			at, side := int32(i), first
			for {
				r := int(w.row[at][side])
				next := partner[side][at]
				if next < 0 || done[next] {
					break
				}
				// One of the two leaves r, the other arrives.
				leaves := (side == 0) != back[at]
				near := end(next, r)
				back[next] = (near == 0) == leaves
				done[next] = true
				at, side = next, 1-near
			}
		}
	}
}

// permutation returns the circuits of edges, those of the first plane of a unit.
func (w *network) permutation(edges []int32) circuit.Permutation {
	p := circuit.AllDark(w.n)
	for _, e := range edges {
		u, v := int(w.from[e]), int(w.to[e])
		p[u] = v
		if w.kind == plans.Duplex {
			p[v] = u
		}
	}
	return p
}

// changes counts the circuits that a permutation with these edges makes.
func (w *network) changes(edges []int32) int {
	if w.kind != plans.Duplex {
		return len(edges)
	}
	count := 0
	for _, e := range edges {
		count += 2
		if w.from[e] == w.to[e] {
			count--
		}
	}
	return count
}

// scale returns the largest demand of a port, the reference for tolerances.
func (w *network) scale() float64 {
	sum := make([]float64, 2*w.n)
	for i, x := range w.demand {
		a, b := w.row[i][0], w.row[i][1]
		sum[a] += x
		if w.kind == plans.Simplex {
			b += int32(w.n)
		} else if a == b {
			continue
		}
		sum[b] += x
	}
	return slices.Max(append(sum, 0))
}
