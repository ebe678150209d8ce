package spectra

import (
	"cmp"
	"slices"

	"lightpath/plans/circuit"
)

// Schedule puts each permutation, longest first, on the switch that is least loaded then
// (Algorithm 3, LPT); s is at least 1.
func Schedule(d Decomposition, s int, delta float64) Timetable {
	return timetable(lpt(d.Weights, constant(delta, len(d.Perms)), s), d.Perms)
}

// Equalize moves parts of the longest permutation of the most loaded switch to the least
// loaded one while that helps (Algorithm 4). It returns a new timetable that shares the
// permutations of t.
func Equalize(t Timetable, delta float64) Timetable {
	var perms []circuit.Permutation
	parts := make([][]part, len(t))
	for h, d := range t {
		for i, p := range d.Perms {
			parts[h] = append(parts[h], part{len(perms), d.Weights[i]})
			perms = append(perms, p)
		}
	}
	equalize(parts, constant(delta, len(perms)))
	return timetable(parts, perms)
}

// part is some time of one of a list of permutations.
type part struct {
	item   int
	weight float64
}

func timetable(parts [][]part, perms []circuit.Permutation) Timetable {
	t := make(Timetable, len(parts))
	for h := range parts {
		for _, p := range parts[h] {
			t[h].Perms = append(t[h].Perms, perms[p.item])
			t[h].Weights = append(t[h].Weights, p.weight)
		}
	}
	return t
}

func constant(x float64, n int) []float64 {
	s := slices.Repeat([]float64{x}, n)
	return s
}

// lpt is SCHEDULE; setup is what each item costs beside its weight.
func lpt(weights, setup []float64, s int) [][]part {
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	parts := make([][]part, s)
	load := make([]float64, s)
	for _, i := range order {
		h := extreme(load, -1)
		parts[h] = append(parts[h], part{i, weights[i]})
		load[h] += setup[i] + weights[i]
	}
	return parts
}

// equalize is EQUALIZE, in place.
func equalize(parts [][]part, setup []float64) {
	load := make([]float64, len(parts))
	for h := range parts {
		for _, p := range parts[h] {
			load[h] += setup[p.item] + p.weight
		}
	}
	for {
		top, low := extreme(load, 1), extreme(load, -1)
		if len(parts[top]) == 0 {
			return
		}
		z := &parts[top][0]
		for i := range parts[top] {
			if parts[top][i].weight > z.weight {
				z = &parts[top][i]
			}
		}
		delta := setup[z.item]
		if load[top]-load[low] <= delta {
			return
		}
		move := load[top] - (load[top]+load[low]+delta)/2
		// A part too small for the loads to show could go on for ever where delta is 0.
		if z.weight <= move || move <= 1e-9*load[top] {
			return
		}
		z.weight -= move
		parts[low] = append(parts[low], part{z.item, move})
		load[top] -= move
		load[low] += delta + move
	}
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
