package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"lightpath/bench"
	"lightpath/plans/fabric"
)

// Options of a calibration.
type Options struct {
	Fabric    string // file of a fabric that is up
	Lightpath string // path of the command, which serves the switches where nobody does
	Worker    string // path of lightpath-rank
	Ranks     int    // of the jobs; 0: all of the fabric
	Iters     int    // timed iterations of each run; 0: [DefaultIters]
	Rounds    int    // how often each run is made; 0: [DefaultRounds]
	// Progress says in words what runs now; it may be nil.
	Progress func(format string, args ...any)
}

// Where the caller says nothing, every run is made so often, and timed so often each time: rounds
// keep what disturbs the host for a while from one run's samples alone.
const (
	DefaultRounds = 3
	DefaultIters  = 5
)

// Estimate is a cost: what fits the medians of all runs, and the quartiles of what fits the medians of
// as many iterations drawn from them with replacement (the bootstrap).
type Estimate struct {
	Value   float64 `json:"value"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Samples int     `json:"samples"` // iterations of each run
}

// Line is a run: what it took, in us, and what the cost model makes of the estimates.
type Line struct {
	Name        string  `json:"name"`
	Bytes       int64   `json:"bytes"` // data size, as nccl-tests has it
	MeasuredUS  float64 `json:"measured_us"`
	LowUS       float64 `json:"low_us"` // quartiles
	HighUS      float64 `json:"high_us"`
	PredictedUS float64 `json:"predicted_us"`
}

// Error is the measurement over the prediction, less one.
func (l *Line) Error() float64 { return l.MeasuredUS/l.PredictedUS - 1 }

// Result is what a fabric costs. Costs that it has no use for are nil.
type Result struct {
	Ranks         int       `json:"ranks"`
	Planes        int       `json:"planes"`
	CallUS        *Estimate `json:"call_us"` // of a call, beside its plan: the model has no place for it
	AlphaUS       *Estimate `json:"alpha_us"`
	HopUS         *Estimate `json:"hop_us,omitempty"` // where ranks forward
	BandwidthGbps *Estimate `json:"bandwidth_gbps"`   // of payload, per plane, port and direction
	// ReconfigUS is from the last byte on the old circuits to the first on the new ones: the drain
	// that is left, the barrier, the switch, and the waking up.
	ReconfigUS *Estimate `json:"reconfig_us,omitempty"`
	R2         float64   `json:"r2"`
	Lines      []Line    `json:"lines"`
	// Check is an AllReduce that is not among the lines: what the estimates predict for it.
	Check Line `json:"check"`
}

// Run measures. The fabric is up and quiet; its controller runs, or is one of emulated switches: then
// it runs as long as this does. An error of the ranks wraps [bench.ErrRankFailed].
func Run(ctx context.Context, o Options) (*Result, error) {
	f, err := o.complete()
	if err != nil {
		return nil, err
	}
	stop, err := bench.EnsureOCS(ctx, o.Fabric, o.Lightpath)
	if err != nil {
		return nil, err
	}
	defer stop()
	var runs []run
	for round := range o.Rounds {
		again, err := o.round(ctx, f, round)
		if err != nil {
			return nil, err
		}
		if round == 0 {
			runs = again
			continue
		}
		for i := range runs {
			runs[i].us = append(runs[i].us, again[i].us...)
		}
	}
	r := &Result{Ranks: o.Ranks, Planes: len(f.Planes)}
	last := len(runs) - 1
	return r, r.estimate(runs[:last], &runs[last], f.Forwarding && o.Ranks > 2)
}

// round makes every run once, the fresh one last.
func (o *Options) round(ctx context.Context, f *fabric.Fabric, n int) ([]run, error) {
	var runs []run
	all := workloads(f, o.Ranks)
	for i := range all {
		o.Progress("round %d of %d: %s", n+1, o.Rounds, all[i].name)
		some, err := o.measure(ctx, f, &all[i], wireTimes)
		if err != nil {
			return nil, err
		}
		runs = append(runs, some...)
	}
	o.Progress("round %d of %d: a fresh %s", n+1, o.Rounds, all[0].name)
	fresh, err := o.measure(ctx, f, &all[0], []float64{freshTime})
	return append(runs, fresh...), err
}

func (o *Options) complete() (*fabric.Fabric, error) {
	f, err := fabric.Load(o.Fabric)
	if err != nil {
		return nil, err
	}
	if o.Ranks == 0 {
		o.Ranks = f.Ranks
	}
	if o.Iters == 0 {
		o.Iters = DefaultIters
	}
	if o.Rounds == 0 {
		o.Rounds = DefaultRounds
	}
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	switch {
	case !f.Optical():
		return nil, errors.New("calibrate: the fabric has no circuits")
	case o.Ranks < 2 || o.Ranks > f.Ranks:
		return nil, fmt.Errorf("calibrate: %d ranks, want 2..%d", o.Ranks, f.Ranks)
	case o.Iters < 1 || o.Rounds < 1 || o.Iters*o.Rounds < 3:
		return nil, fmt.Errorf("calibrate: %d iterations in %d rounds, want 3 at least", o.Iters, o.Rounds)
	}
	return f, nil
}

// estimate fits the costs to the runs and predicts the fresh one.
func (r *Result) estimate(runs []run, fresh *run, hops bool) error {
	which := [costs]bool{perCall: true, perTransmit: true, perHop: hops, perByte: true, perMove: true}
	middle := samples(runs, (*run).median)
	cost, err := fit(middle, which)
	if err != nil {
		return err
	}
	if cost[perByte] <= 0 {
		return fmt.Errorf("%w: larger messages take no longer", errFit)
	}
	drawn := bootstrap(runs, which)
	about := func(at int, unit func(float64) float64) *Estimate {
		e := &Estimate{Value: unit(cost[at]), Low: unit(cost[at]), High: unit(cost[at]), Samples: len(runs[0].us)}
		var all []float64
		for _, c := range drawn {
			all = append(all, unit(c[at]))
		}
		if len(all) > 0 {
			e.Low, e.High = quartiles(all)
		}
		return e
	}
	us := func(v float64) float64 { return v }
	r.CallUS, r.AlphaUS = about(perCall, us), about(perTransmit, us)
	r.BandwidthGbps = about(perByte, func(v float64) float64 { return 8e-3 / v })
	if hops {
		r.HopUS = about(perHop, us)
	}
	if meanTimes(middle, perMove) > 0 {
		r.ReconfigUS = about(perMove, us)
	}
	r.R2 = determination(middle, cost)
	for i := range runs {
		r.Lines = append(r.Lines, runs[i].line(cost))
	}
	r.Check = fresh.line(cost)
	return nil
}

func samples(runs []run, us func(*run) float64) []sample {
	var all []sample
	for i := range runs {
		all = append(all, sample{runs[i].terms, us(&runs[i])})
	}
	return all
}

// draws is how often iterations are drawn.
const draws = 200

// bootstrap fits the costs to iterations drawn with replacement. It draws the same every time.
func bootstrap(runs []run, which [costs]bool) [][costs]float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	var all [][costs]float64
	for range draws {
		drawn := samples(runs, func(r *run) float64 {
			us := make([]float64, len(r.us))
			for i := range us {
				us[i] = r.us[rng.IntN(len(r.us))]
			}
			return bench.Median(sorted(us))
		})
		if c, err := fit(drawn, which); err == nil && c[perByte] > 0 {
			all = append(all, c)
		}
	}
	return all
}

func (r *run) median() float64 { return bench.Median(sorted(r.us)) }

func (r *run) line(cost [costs]float64) Line {
	low, high := quartiles(r.us)
	return Line{r.name, r.bytes, r.median(), low, high, r.terms.at(cost)}
}

func sorted(v []float64) []float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v
}

// quartiles returns the values below which a quarter and three quarters of a list lie, which is not
// empty.
func quartiles(v []float64) (low, high float64) {
	v = sorted(v)
	return v[len(v)/4], v[len(v)-1-len(v)/4]
}
