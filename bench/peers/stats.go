package peers

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"

	"lightpath/bench/sampling"
)

// Interval is an estimate with its confidence interval of 95 %.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

const (
	resamples  = 2000
	confidence = 0.95
)

// compare returns how many times as long the best peer takes as the subject, and the index of that peer. It is the
// median over rounds of the quotient of both times in the same round. subject and peers hold a time for each round.
//
// The samples of a round follow each other, so all contenders meet the same state of the machine. Other work, or a
// virtual machine that loses a core, can make a call five times as slow a second later. So medians of single contenders
// may be of different states. The interval is a percentile bootstrap over whole rounds. Each resample chooses the best
// peer again, so a doubtful choice widens the interval.
func compare(subject []float64, peers [][]float64, seed uint64) (ratio Interval, best int) {
	rounds := len(subject)
	quotients := make([][]float64, len(peers))
	for p, times := range peers {
		rounds = min(rounds, len(times))
		for i := range rounds {
			quotients[p] = append(quotients[p], times[i]/subject[i])
		}
	}
	index := make([]int, rounds)
	for i := range index {
		index[i] = i
	}
	scratch := make([]float64, rounds)
	ratio.Value, best = leastMedian(quotients, index, scratch)
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]float64, resamples)
	for b := range all {
		for i := range index {
			index[i] = random.IntN(rounds)
		}
		all[b], _ = leastMedian(quotients, index, scratch)
	}
	slices.Sort(all)
	ratio.Low = stat.Quantile((1-confidence)/2, stat.Empirical, all, nil)
	ratio.High = stat.Quantile((1+confidence)/2, stat.Empirical, all, nil)
	return ratio, best
}

// leastMedian returns the least of the peers' median quotients over the rounds of index, and the index of its peer.
func leastMedian(quotients [][]float64, index []int, scratch []float64) (least float64, best int) {
	least = math.Inf(1)
	for p, q := range quotients {
		for i, k := range index {
			scratch[i] = q[k]
		}
		if m := sampling.Median(scratch); m < least {
			least, best = m, p
		}
	}
	return least, best
}

// Summary summarizes the points of one collective at one number of ranks, or at all numbers of ranks.
type Summary struct {
	Transport  string  `json:"transport"`
	Collective string  `json:"collective"`
	Ranks      int     `json:"ranks"` // 0: all
	Points     int     `json:"points"`
	Geomean    float64 `json:"geomean_ratio"`
	Least      float64 `json:"least_ratio"`
	Below      int     `json:"below"` // points whose interval begins below floor
}

// floor is the least wanted lower end of a point's interval.
const floor = 0.95

// summarize returns a summary for each (transport, collective, ranks), and one over all ranks.
func summarize(points []*Point) []Summary {
	type key struct {
		transport, collective string
		ranks                 int
	}
	var order []key
	ratios, below := map[key][]float64{}, map[key]int{}
	for _, p := range points {
		if p.Ratio == nil {
			continue
		}
		for _, k := range []key{{p.Transport, p.Collective, p.Ranks}, {p.Transport, p.Collective, 0}} {
			if ratios[k] == nil {
				order = append(order, k)
			}
			ratios[k] = append(ratios[k], p.Ratio.Value)
			if p.Ratio.Low < floor {
				below[k]++
			}
		}
	}
	var all []Summary
	for _, k := range order {
		all = append(all, Summary{
			Transport: k.transport, Collective: k.collective, Ranks: k.ranks, Points: len(ratios[k]),
			Geomean: stat.GeometricMean(ratios[k], nil), Least: slices.Min(ratios[k]), Below: below[k],
		})
	}
	return all
}
