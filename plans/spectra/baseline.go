package spectra

import (
	"cmp"
	"slices"

	"lightpath/plans"
)

// Baseline returns the timetable of the paper's baseline: split divides the demand into one matrix for each switch,
// and each is decomposed and served separately.
func Baseline(d Matrix, s int) Timetable {
	t := make(Timetable, s)
	for h, part := range split(d, s) {
		t[h] = Decompose(part)
	}
	return t
}

// split divides d into s matrices that sum to it, in the way of LESS (Liu, Xu, Singh): it divides as few entries as
// balance allows. No code of LESS is public and the SPECTRA paper describes it in one sentence; this is our reading of
// it. A matrix may take a share of 1/s of the busiest port's demand at each of its ports. split places entries whole,
// the largest first, in the matrix in which the fuller one of their two ports has the least. It divides an entry that
// fits nowhere over the matrices with the most room. The rest goes to the matrix with the least at its ports.
func split(d Matrix, s int) []Matrix {
	w := newNetwork(d, plans.Simplex)
	parts := make([]Matrix, s)
	for h := range parts {
		parts[h] = make(Matrix, len(d))
		for r := range d {
			parts[h][r] = make([]float64, len(d))
		}
	}
	ports := make([][]float64, s) // load of senders, then receivers
	for h := range ports {
		ports[h] = make([]float64, 2*w.n)
	}
	share := w.scale() / float64(s)
	order := make([]int, len(w.demand))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(w.demand[b], w.demand[a]) })
	for _, i := range order {
		r, c := int(w.row[i][0]), int(w.row[i][1])
		load := func(h int) float64 { return max(ports[h][r], ports[h][w.n+c]) }
		put := func(h int, x float64) {
			parts[h][r][c] += x
			ports[h][r] += x
			ports[h][w.n+c] += x
		}
		left := w.demand[i]
		emptiest := func() int {
			h := 0
			for k := range s {
				if load(k) < load(h) {
					h = k
				}
			}
			return h
		}
		for range s {
			h := emptiest()
			room := share - load(h)
			if left <= room*(1+1e-12) || room <= 1e-9*share {
				put(h, left)
				left = 0
				break
			}
			put(h, room)
			left -= room
		}
		if left > 0 {
			put(emptiest(), left)
		}
	}
	return parts
}
