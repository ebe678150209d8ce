package bench

import (
	"fmt"
	"slices"

	"lightpath/bench/sampling"
)

// Result is one size of one collective, over all ranks. It is the record of the JSON output; GB are 1e9 bytes.
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
	Wrong       *int64  `json:"wrong"` // elements; nil (null): not checked
	Algorithm   string  `json:"algorithm"`
	Planner     string  `json:"planner"`
	PredictedUS float64 `json:"predicted_us"`
	MinUS       float64 `json:"min_us,omitempty"` // sync runs
	MaxUS       float64 `json:"max_us,omitempty"`
}

// Document is the JSON output.
type Document struct {
	Ranks     int      `json:"ranks"`
	Transport string   `json:"transport"`
	Results   []Result `json:"results"`
}

// Wrong returns the first result with wrong elements, nil if there is none.
func (d *Document) Wrong() *Result {
	for i := range d.Results {
		if r := &d.Results[i]; r.Wrong != nil && *r.Wrong > 0 {
			return r
		}
	}
	return nil
}

// collector merges the reports of ranks as they arrive: into a result for each point, in order.
type collector struct {
	points   []point
	here     int          // ranks whose reports arrive here: all, or one of a launcher's job
	onResult func(Result) // may be nil
	reports  [][]Report   // by rank
	results  []Result
	err      error // the first reports that do not fit; nothing is merged after them
}

// add takes a report, and makes a result if the report is the last of its run.
func (c *collector) add(r Report) {
	c.reports[r.Rank] = append(c.reports[r.Rank], r)
	i := len(c.results)
	if c.err != nil || i == len(c.points) || len(c.reporters(i)) < c.here {
		return
	}
	var res Result
	if res, c.err = c.merge(i); c.err != nil {
		return
	}
	c.results = append(c.results, res)
	if c.onResult != nil {
		c.onResult(res)
	}
}

// end returns the results of all points. Call it when all ranks have ended.
func (c *collector) end() ([]Result, error) {
	i := len(c.results)
	if c.err != nil || i == len(c.points) {
		return c.results, c.err
	}
	pt := c.points[i]
	return nil, fmt.Errorf("bench: ranks that reported %s of %d bytes: %d of %d", pt.spec.Collective, pt.bytes,
		len(c.reporters(i)), c.here)
}

// reporters returns the reports of run i, by rank.
func (c *collector) reporters(i int) (all []Report) {
	for _, of := range c.reports {
		if i < len(of) {
			all = append(all, of[i])
		}
	}
	return all
}

// merge makes the result of run i. The time of a back-to-back run is the mean over ranks, as in nccl-tests. The time of
// a sync run is the median over iterations of the slowest rank's completion, counted from the first start.
func (c *collector) merge(i int) (Result, error) {
	pt, perRank := c.points[i], c.reporters(i)
	s := pt.spec
	res := Result{
		Collective: s.Collective.String(), Bytes: pt.bytes, Count: pt.count, Type: s.Type.String(),
		Op: s.Op.String(), Root: s.Root, InPlace: pt.inPlace,
	}
	var wrong int64
	for _, r := range perRank {
		if err := pt.accepts(i, r); err != nil {
			return res, err
		}
		wrong += r.Wrong
		res.TimeUS += r.TimeUS / float64(len(perRank))
	}
	if s.Check {
		res.Wrong = &wrong
	}
	if s.Sync {
		times := Completions(perRank)
		res.MinUS, res.MaxUS, res.TimeUS = slices.Min(times), slices.Max(times), sampling.Median(times)
	}
	res.AlgBW, res.BusBW = Bandwidths(s.Collective, pt.count, s.Type, len(c.reports), res.TimeUS)
	return res, nil
}

// accepts returns an error if r is not a report of this point, which is run i.
func (pt *point) accepts(i int, r Report) error {
	s := pt.spec
	what := fmt.Sprintf("%s of %d bytes", s.Collective, pt.bytes)
	switch {
	case r.Collective != s.Collective.String() || r.Bytes != pt.bytes || r.InPlace != b2i(pt.inPlace):
		return fmt.Errorf("bench: rank %d reported %s of %d bytes (in place %d) as run %d, which is %s (%d)",
			r.Rank, r.Collective, r.Bytes, r.InPlace, i, what, b2i(pt.inPlace))
	case s.Sync && len(r.Iters) != s.Iters:
		return fmt.Errorf("bench: rank %d reported %d iterations of %s, not %d", r.Rank, len(r.Iters), what, s.Iters)
	}
	return nil
}

// EveryRank returns run i of every rank. It fails if a rank did not report the run.
func EveryRank(reports [][]Report, i int) ([]Report, error) {
	perRank := make([]Report, len(reports))
	for rank, all := range reports {
		if i >= len(all) {
			return nil, fmt.Errorf("bench: rank %d reported %d runs", rank, len(all))
		}
		perRank[rank] = all[i]
	}
	return perRank, nil
}

// Spans returns the first start and the last end over the ranks, which share a clock, of every iteration of a sync run.
// perRank must not be empty.
func Spans(perRank []Report) [][2]int64 {
	spans := slices.Clone(perRank[0].Iters)
	for _, r := range perRank {
		spans = spans[:min(len(spans), len(r.Iters))]
		for i := range spans {
			spans[i] = [2]int64{min(spans[i][0], r.Iters[i][0]), max(spans[i][1], r.Iters[i][1])}
		}
	}
	return spans
}

// Completions returns the length of the [Spans] in microseconds.
func Completions(perRank []Report) []float64 {
	spans := Spans(perRank)
	times := make([]float64, len(spans))
	for i, s := range spans {
		times[i] = float64(s[1]-s[0]) / 1e3
	}
	return times
}

// Longest returns the time of the rank whose call took longest, for each iteration, in us. Unlike [Completions] it
// compares no clocks of different hosts; the time includes how much earlier that rank left the barrier before the call.
func Longest(perRank []Report) []float64 {
	var times []float64
	for _, r := range perRank {
		for i, at := range r.Iters {
			if i == len(times) {
				times = append(times, 0)
			}
			times[i] = max(times[i], float64(at[1]-at[0])/1e3)
		}
	}
	return times
}
