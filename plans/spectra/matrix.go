package spectra

import (
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Matrix is a square demand: [r][s] is how long the circuit r -> s must be held, not
// negative and finite. The functions of this package do not change it.
type Matrix [][]float64

// Decomposition is a sequence of permutations and how long each is held.
type Decomposition struct {
	Perms   []circuit.Permutation // Dark where a completion may be arbitrary
	Weights []float64             // same length; not negative
}

// Length is how long one switch takes: a reconfiguration and the weight of every
// permutation (Eq. 2).
func (d Decomposition) Length(delta float64) float64 {
	sum := 0.0
	for _, w := range d.Weights {
		sum += delta + w
	}
	return sum
}

// Timetable is a decomposition for every switch.
type Timetable []Decomposition

// Makespan is the length of the longest switch (Eq. 4).
func (t Timetable) Makespan(delta float64) float64 {
	longest := 0.0
	for _, d := range t {
		longest = max(longest, d.Length(delta))
	}
	return longest
}

// Permutations counts the reconfigurations of all switches.
func (t Timetable) Permutations() int {
	count := 0
	for _, d := range t {
		count += len(d.Perms)
	}
	return count
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
	entry  []int32    // per edge: what it covers
}

// newNetwork prepares d for planes of one kind.
//
//   - Simplex: an entry for each positive cell, and its circuit.
//   - Duplex: a circuit comes with the opposite one, so an entry is a pair of ranks, which
//     needs the larger of its two demands, and edges run from the smaller rank.
//   - Interleaved: the other plane of the unit has the inverse, so again an entry is a pair.
//     Either direction covers it, both together twice; so does a circuit r -> r, which is why
//     its demand counts half.
func newNetwork(d Matrix, kind plans.CircuitKind) *network {
	w := &network{n: len(d), kind: kind, start: make([]int32, 1, len(d)+1)}
	id := make(map[[2]int32]int32) // pair -> entry, on other planes than simplex
	for r, cells := range d {
		for s, x := range cells {
			if kind != plans.Simplex {
				x = max(x, d[s][r])
			}
			if x <= 0 || kind == plans.Duplex && s < r {
				continue
			}
			pair := [2]int32{int32(r), int32(s)}
			entry, known := int32(len(w.demand)), false
			if kind == plans.Interleaved {
				if s < r {
					entry, known = id[[2]int32{int32(s), int32(r)}], true
				} else {
					id[pair] = entry
				}
				if r == s {
					x /= 2
				}
			}
			if !known {
				w.demand, w.row = append(w.demand, x), append(w.row, pair)
			}
			w.from, w.to, w.entry = append(w.from, int32(r)), append(w.to, int32(s)), append(w.entry, entry)
		}
		w.start = append(w.start, int32(len(w.to)))
	}
	return w
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

// scale is the largest demand of a port: what numbers are compared with.
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
