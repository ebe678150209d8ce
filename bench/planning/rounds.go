package planning

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"lightpath/bench/figure"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/spectra"
)

// roundsReport compares what rounds of experts take whose matrix changes from round to round: by the circuits that
// their planes begin with. Times are in a port's whole demand on one plane.
//
//	dark       a switch to the first circuits of each plane, after ranks have posted
//	standing   SPECTRA's plan begins with the circuits that the round before has left, where it has a use for them
//	spread     the same for circuits that do not depend on the matrix
//	chosen     the faster of these two in each round, as at run time
//	predicted  chosen, if planes have moved to the first circuits of SPECTRA's plan of the mean matrix meanwhile
//	known      planes are at the first circuits of SPECTRA's plan: no prediction is better
func roundsReport(ctx context.Context, o figure.Options) (*figure.Figure, error) {
	ranks, rounds := []int{4, 8, 16, 64}, 40
	if o.Quick {
		ranks, rounds = []int{4, 8}, 8
	}
	f := &figure.Figure{Title: fmt.Sprintf("rounds of experts: means of %d rounds", rounds)}
	f.Table.Columns = []string{"ranks", "planes", "matrices", "delta", "dark", "standing", "spread", "chosen", "predicted",
		"known"}
	type point struct {
		n, planes int
		drift     drift
		delta     float64
	}
	var points []point
	for _, n := range ranks {
		for _, planes := range []int{1, 4, 16} {
			for _, d := range drifts {
				for _, delta := range []float64{0.001, 0.01, 0.1} {
					points = append(points, point{n, planes, d, delta})
				}
			}
		}
	}
	found := make([]roundTimes, len(points))
	err := figure.Each(ctx, len(points), o.Progress, func(i int) (err error) {
		at := points[i]
		found[i], err = timeRounds(ctx, at.n, at.planes, rounds, at.drift, at.delta, o.Seed)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, at := range points {
		t := found[i]
		f.Table.Add(at.n, at.planes, at.drift.name, at.delta, t.dark, t.standing, t.spread, t.chosen, t.predicted, t.known)
	}
	return f, nil
}

// drift is how popular experts are: their logarithms have this deviation, and keep this part of it from round to round.
type drift struct {
	name       string
	skew, keep float64
}

var drifts = []drift{{"drifting", 1, 0.98}, {"changing", 1, 0.5}}

// expertMatrices returns the demand of rounds, a port's greatest demand of all is 1. A rank's tokens choose experts by
// popularity; the counts have the deviation of as many independent choices.
func expertMatrices(n, rounds int, d drift, seed int64) [][][]float64 {
	const tokens = 4096 // of a rank, times the experts of a token
	r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	log := make([]float64, n)
	for e := range log {
		log[e] = d.skew * r.NormFloat64()
	}
	all := make([][][]float64, rounds)
	for t := range all {
		share, sum := make([]float64, n), 0.0
		for e := range log {
			log[e] = d.keep*log[e] + d.skew*math.Sqrt(1-d.keep*d.keep)*r.NormFloat64()
			share[e] = math.Exp(log[e])
			sum += share[e]
		}
		m := make([][]float64, n)
		for i := range m {
			m[i] = make([]float64, n)
			for e := range m[i] {
				mean := tokens * share[e] / sum
				if i != e {
					m[i][e] = math.Max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
				}
			}
		}
		scale := 1 / plans.Busiest(m)
		for i := range m {
			for e := range m[i] {
				m[i][e] *= scale
			}
		}
		all[t] = m
	}
	return all
}

// roundTimes are mean times of a round.
type roundTimes struct{ dark, standing, spread, chosen, predicted, known float64 }

// timeRounds plans rounds one after the other. The mean matrix is the exponential mean of those before, by a fifth.
func timeRounds(ctx context.Context, n, planes, rounds int, d drift, delta float64, seed int64) (roundTimes, error) {
	const weight = 0.2
	var t roundTimes
	mean := make([][]float64, n)
	for i := range mean {
		mean[i] = make([]float64, n)
	}
	standing := make([]circuit.Permutation, planes)
	for j := range standing {
		standing[j] = circuit.AllDark(n)
	}
	left := [2][]circuit.Permutation{standing, standing} // by SPECTRA and by spread circuits alone
	solve := func(m [][]float64) (*plans.Problem, *plans.Plan, error) {
		p := figure.DemandProblem(m, planes, delta)
		plan, err := spectra.Solve(ctx, p, spectra.Options{Work: 1e6, Seed: seed})
		return p, plan, err
	}
	for at, m := range expertMatrices(n, rounds, d, seed) {
		p, plan, err := solve(m)
		if err != nil {
			return t, err
		}
		order, settled, err := spectra.Spread(p)
		if err != nil {
			return t, err
		}
		faster := func(standing []circuit.Permutation) (*plans.Plan, float64) {
			next, us := spectra.From(p, plan, standing)
			if settled < us {
				return spectra.From(p, order, standing)
			}
			return next, us
		}
		alone, us := spectra.From(p, plan, left[0])
		aloneOrder, orderUS := spectra.From(p, order, left[1])
		next, chosenUS := faster(standing)
		if at > 0 {
			_, guess, err := solve(mean)
			if err != nil {
				return t, err
			}
			_, predicted := faster(firstMaps(guess, standing))
			_, known := spectra.From(p, plan, firstMaps(plan, standing))
			t.dark, t.standing, t.spread = t.dark+plan.CCTUS, t.standing+us, t.spread+orderUS
			t.chosen, t.predicted, t.known = t.chosen+chosenUS, t.predicted+predicted, t.known+known
		}
		left[0], left[1] = spectra.Left(alone, left[0]), spectra.Left(aloneOrder, left[1])
		standing = spectra.Left(next, standing)
		if at == 0 {
			follow(mean, m, 1)
		} else {
			follow(mean, m, weight)
		}
	}
	for _, v := range []*float64{&t.dark, &t.standing, &t.spread, &t.chosen, &t.predicted, &t.known} {
		*v /= float64(rounds-1) * figure.DemandUS
	}
	return t, nil
}

// follow moves mean towards m by a part of the difference.
func follow(mean, m [][]float64, part float64) {
	for i := range mean {
		for e := range mean[i] {
			mean[i][e] += part * (m[i][e] - mean[i][e])
		}
	}
}

// firstMaps returns the maps of the first hold of each plane; of a plane without one, that which stands.
func firstMaps(plan *plans.Plan, standing []circuit.Permutation) []circuit.Permutation {
	maps := slices.Clone(standing)
	for j, entries := range plan.Planes {
		if len(entries) > 0 {
			maps[j] = entries[0].To
		}
	}
	return maps
}
