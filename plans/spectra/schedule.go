package spectra

import (
	"cmp"
	"slices"
)

// Schedule puts each permutation, longest first, on the switch that is least loaded then
// (Algorithm 3, LPT); s is at least 1.
func Schedule(d Decomposition, s int, delta float64) Timetable {
	order := make([]int, len(d.Perms))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(d.Weights[b], d.Weights[a]) })
	t := make(Timetable, s)
	load := make([]float64, s)
	for _, i := range order {
		h := extreme(load, -1)
		t[h].Perms = append(t[h].Perms, d.Perms[i])
		t[h].Weights = append(t[h].Weights, d.Weights[i])
		load[h] += delta + d.Weights[i]
	}
	return t
}

// extreme returns the first index of the largest of sign*load.
func extreme(load []float64, sign float64) int {
	at := 0
	for h := range load {
		if sign*load[h] > sign*load[at] {
			at = h
		}
	}
	return at
}

// Equalize moves parts of the longest permutation of the most loaded switch to the least
// loaded one while that helps (Algorithm 4). It returns a new timetable that shares the
// permutations of t.
func Equalize(t Timetable, delta float64) Timetable {
	out := make(Timetable, len(t))
	load := make([]float64, len(t))
	for h, d := range t {
		out[h] = Decomposition{slices.Clone(d.Perms), slices.Clone(d.Weights)}
		load[h] = d.Length(delta)
	}
	for {
		top, low := extreme(load, 1), extreme(load, -1)
		if load[top]-load[low] <= delta || len(out[top].Weights) == 0 {
			return out
		}
		target := (load[top] + load[low] + delta) / 2
		z := extreme(out[top].Weights, 1)
		part := load[top] - target
		// A part too small for the loads to show could go on for ever where delta is 0.
		if out[top].Weights[z] <= part || part <= 1e-9*load[top] {
			return out
		}
		out[top].Weights[z] -= part
		out[low].Perms = append(out[low].Perms, out[top].Perms[z])
		out[low].Weights = append(out[low].Weights, part)
		load[top] -= part
		load[low] += delta + part
	}
}

// Spectra is the paper's algorithm as a whole: DECOMPOSE with greedy REFINE, SCHEDULE and
// EQUALIZE on s switches.
func Spectra(d Matrix, s int, delta float64) Timetable {
	return Equalize(Schedule(Decompose(d, Greedy), s, delta), delta)
}
