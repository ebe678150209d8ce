package bench

import (
	"fmt"
	"slices"
)

// Result is one size of one collective, over all ranks. It is the record of the JSON
// output; GB are 1e9 bytes.
type Result struct {
	Collective  string  `json:"collective"`
	Bytes       int64   `json:"bytes"`
	Count       int64   `json:"count"`
	Type        string  `json:"type"`
	Op          string  `json:"op"`
	Root        int     `json:"root"`
	InPlace     bool    `json:"in_place"`
	TimeUS      float64 `json:"time_us"`
	AlgBW       float64 `json:"algbw_gbs"`
	BusBW       float64 `json:"busbw_gbs"`
	Wrong       int64   `json:"wrong"`
	Algorithm   string  `json:"algorithm"`
	Planner     string  `json:"planner"`
	PredictedUS float64 `json:"predicted_us"`
	MinUS       float64 `json:"min_us,omitempty"` // sync runs
	MaxUS       float64 `json:"max_us,omitempty"`
}

// Document is what --json writes.
type Document struct {
	Ranks     int      `json:"ranks"`
	Transport string   `json:"transport"`
	Results   []Result `json:"results"`
}

// collect merges the reports of all ranks, in the order of points; ranks that somebody
// else's launcher started have none here. The time of a
// back-to-back run is the mean over ranks, as in nccl-tests; of a sync run it is the median
// over iterations of the completion time of the slowest rank, counted from the first start.
func collect(s *Spec, ranks int, points []point, reports [][]Report) ([]Result, error) {
	var results []Result
	for i, pt := range points {
		res := Result{
			Collective: s.Collective.String(), Bytes: pt.bytes, Count: pt.count, Type: s.Type.String(), Op: s.Op.String(),
			Root: s.Root, InPlace: pt.inPlace,
		}
		perRank, err := reportsOf(s, i, pt, reports)
		if err != nil {
			return nil, err
		}
		for _, r := range perRank {
			res.Wrong += r.Wrong
			res.TimeUS += r.TimeUS / float64(len(perRank))
		}
		if s.Sync {
			times := Completions(perRank)
			slices.Sort(times)
			res.MinUS, res.MaxUS = times[0], times[len(times)-1]
			res.TimeUS = Median(times)
		}
		res.AlgBW, res.BusBW = Bandwidths(s.Collective, pt.count, s.Type, ranks, res.TimeUS)
		results = append(results, res)
	}
	return results, nil
}

// reportsOf picks the reports of run i. A rank that reported anything must have reported this.
func reportsOf(s *Spec, i int, pt point, reports [][]Report) ([]Report, error) {
	var perRank []Report
	for rank, all := range reports {
		if len(all) == 0 {
			continue
		}
		if i >= len(all) {
			return nil, fmt.Errorf("bench: rank %d did not report %s of %d bytes", rank, s.Collective, pt.bytes)
		}
		r := all[i]
		if r.Collective != s.Collective.String() || r.Bytes != pt.bytes || r.InPlace != b2i(pt.inPlace) {
			return nil, fmt.Errorf("bench: rank %d reported %s of %d bytes (in place %d) as its run %d, which is %s of %d (%d)",
				rank, r.Collective, r.Bytes, r.InPlace, i, s.Collective, pt.bytes, b2i(pt.inPlace))
		}
		if s.Sync && len(r.Iters) != s.Iters {
			return nil, fmt.Errorf("bench: rank %d reported %d iterations of %s of %d bytes, not %d", rank, len(r.Iters), s.Collective, pt.bytes, s.Iters)
		}
		perRank = append(perRank, r)
	}
	if len(perRank) == 0 {
		return nil, fmt.Errorf("bench: no rank reported %s of %d bytes", s.Collective, pt.bytes)
	}
	return perRank, nil
}

// Completions returns the completion time in microseconds of every iteration of a sync
// run: last end less first start over the ranks, which share a clock.
func Completions(perRank []Report) []float64 {
	iters := len(perRank[0].Iters)
	for _, r := range perRank {
		iters = min(iters, len(r.Iters))
	}
	times := make([]float64, iters)
	for i := range times {
		first, last := perRank[0].Iters[i][0], perRank[0].Iters[i][1]
		for _, r := range perRank {
			first, last = min(first, r.Iters[i][0]), max(last, r.Iters[i][1])
		}
		times[i] = float64(last-first) / 1e3
	}
	return times
}

// Median of a sorted, non-empty list.
func Median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
