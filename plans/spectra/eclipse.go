package spectra

import (
	"slices"

	"lightpath/plans"
)

// Eclipse decomposes d greedily as ECLIPSE does (Bojja Venkatakrishnan, Alizadeh, Viswanath, "Costly circuits,
// submodular schedules and approximate Caratheodory theorems"). Each permutation and duration a maximize the demand
// served per time, sum of min(a, remaining) over a+delta. That paper fills a window. Here the greedy goes on until d is
// covered, as the SPECTRA paper uses it in place of DECOMPOSE. A ternary search finds durations among the remaining
// demands. After six permutations for each one of Algorithm 1, Algorithm 1 decomposes the rest.
func Eclipse(d Matrix, delta float64) Decomposition {
	w := newNetwork(d, plans.Simplex)
	m := newMatcher(w)
	left := slices.Clone(w.demand)
	least := 1e-9 * w.scale() // smaller values are rounding errors
	var holds []hold
	for range 6 * int(newBare(w, 0).degree()) {
		values := remaining(left, least)
		if len(values) == 0 {
			break
		}
		h := densest(w, m, left, values, delta)
		for _, e := range h.edges {
			left[w.entry[e]] -= h.weight
		}
		holds = append(holds, h)
	}
	if len(remaining(left, least)) > 0 {
		rest := make(Matrix, len(d))
		for r := range d {
			rest[r] = make([]float64, len(d))
		}
		for i, x := range left {
			rest[w.row[i][0]][w.row[i][1]] = max(0, x)
		}
		tail := Decompose(rest)
		first := w.decomposition(holds)
		return Decomposition{append(first.Perms, tail.Perms...), append(first.Weights, tail.Weights...)}
	}
	refineGreedy(w, holds) // rounding only
	return w.decomposition(holds)
}

// remaining returns the distinct demands above least, in rising order.
func remaining(left []float64, least float64) []float64 {
	var values []float64
	for _, x := range left {
		if x > least {
			values = append(values, x)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// densest returns the permutation and duration, one of values, that serve the most demand
// per time; among equals the longest that the ternary search meets.
func densest(w *network, m *matcher, left, values []float64, delta float64) hold {
	var best hold
	top := -1.0
	tried := make(map[int]float64)
	density := func(i int) float64 {
		if f, ok := tried[i]; ok {
			return f
		}
		for e, entry := range w.entry {
			m.weight[e] = max(0, min(values[i], left[entry]))
		}
		edges := m.heaviest()
		served := 0.0
		for _, e := range edges {
			served += m.weight[e]
		}
		f := served / (values[i] + delta)
		tried[i] = f
		if f > top || f == top && values[i] > best.weight {
			top, best = f, hold{edges, values[i]}
		}
		return f
	}
	low, high := 0, len(values)-1
	for high-low > 2 {
		third := (high - low) / 3
		if density(low+third) < density(high-third) {
			low += third + 1
		} else {
			high -= third
		}
	}
	for i := low; i <= high; i++ {
		density(i)
	}
	return best
}
