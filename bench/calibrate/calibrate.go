package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"lightpath/bench"
	"lightpath/bench/sampling"
	"lightpath/plans/fabric"
)

// Options of a calibration.
type Options struct {
	Fabric    string // file of a fabric that is up
	Lightpath string // path of the command; it serves emulated switches that no process serves yet
	Worker    string // path of lightpath-rank
	// Launch is a command, in words, that starts a process on another host; {host} is the host's name in the fabric file.
	// A fabric of several hosts needs it. Run then runs on the first host of the file, and the paths above and the
	// fabric file are those of all hosts.
	Launch []string
	Ranks  int // of the jobs; 0: all of the fabric
	Iters  int // timed iterations of each run
	Rounds int // how often each run is made
	// Progress is called with what runs now.
	Progress func(format string, args ...any)
}

// The usual options. Several rounds keep a disturbance of the host from all samples of one run.
const (
	DefaultRounds = 3
	DefaultIters  = 5
)

// Estimate is a cost. Value fits the medians of all runs. Low and High are the quartiles of what fits the medians of
// iterations drawn with replacement (the bootstrap).
type Estimate struct {
	Value   float64 `json:"value"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Samples int     `json:"samples"` // iterations of each run
}

// Line is a run: its measured time in us, and the prediction of the cost model with the estimates.
type Line struct {
	Name        string  `json:"name"`
	Bytes       int64   `json:"bytes"` // data size as in nccl-tests
	MeasuredUS  float64 `json:"measured_us"`
	LowUS       float64 `json:"low_us"` // quartiles
	HighUS      float64 `json:"high_us"`
	PredictedUS float64 `json:"predicted_us"`
}

// Error returns the measurement over the prediction, less one.
func (l *Line) Error() float64 { return l.MeasuredUS/l.PredictedUS - 1 }

// Result holds the costs of a fabric. A cost that does not occur on the fabric is nil.
type Result struct {
	Ranks         int       `json:"ranks"`
	Planes        int       `json:"planes"`
	CallUS        *Estimate `json:"call_us"` // of a call besides its plan; not part of the cost model
	AlphaUS       *Estimate `json:"alpha_us"`
	HopUS         *Estimate `json:"hop_us,omitempty"` // if ranks forward
	BandwidthGbps *Estimate `json:"bandwidth_gbps"`   // of payload, per plane, port and direction
	// ReconfigUS is the time from the last byte on the old circuits to the first on the new ones. It includes the rest
	// of the drain, the barrier, the switch and waking the ranks.
	ReconfigUS *Estimate `json:"reconfig_us,omitempty"`
	R2         float64   `json:"r2"`
	Lines      []Line    `json:"lines"`
	// Check is an AllReduce that is not among the lines, predicted with the estimates.
	Check Line `json:"check"`
}

// Run measures a fabric that is up and carries no other traffic. Run starts the controller of emulated switches that
// have none, and ends it. An error of the ranks wraps [bench.ErrRankFailed].
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
	check := runs[checkRun]
	return r, r.estimate(slices.Delete(runs, checkRun, checkRun+1), &check, f.Forwarding && o.Ranks > 2)
}

// round makes every run once, in their order: each workload relies on the circuits that the one before has left.
func (o *Options) round(ctx context.Context, f *fabric.Fabric, n int) ([]run, error) {
	var runs []run
	all := workloads(f, o.Ranks)
	for i := range all {
		o.Progress("round %d of %d: %s", n+1, o.Rounds, all[i].name)
		times := wireTimes
		if i == 0 {
			times = slices.Insert(slices.Clone(wireTimes), checkRun, checkTime)
		}
		some, err := o.measure(ctx, f, &all[i], times)
		if err != nil {
			return nil, err
		}
		runs = append(runs, some...)
	}
	return runs, nil
}

// complete fills in the ranks and checks the options.
func (o *Options) complete() (*fabric.Fabric, error) {
	f, err := fabric.Load(o.Fabric)
	if err != nil {
		return nil, err
	}
	o.Ranks = cmp.Or(o.Ranks, f.Ranks)
	switch {
	case !f.Optical():
		return nil, errors.New("calibrate: the fabric has no circuits")
	case o.Ranks < 2 || o.Ranks > f.Ranks:
		return nil, fmt.Errorf("calibrate: %d ranks, want 2..%d", o.Ranks, f.Ranks)
	case o.Iters < 1 || o.Rounds < 1 || o.Iters*o.Rounds < 3:
		return nil, fmt.Errorf("calibrate: %d iterations in %d rounds, want 3 at least", o.Iters, o.Rounds)
	}
	return f, o.CheckLaunch(f)
}

// CheckLaunch returns an error that says why Launch does not fit f.
func (o *Options) CheckLaunch(f *fabric.Fabric) error {
	switch {
	case len(f.Hosts) > 1 && len(o.Launch) == 0:
		return fmt.Errorf("launch: missing; the fabric has %d hosts", len(f.Hosts))
	case len(f.Hosts) < 2 && len(o.Launch) > 0:
		return errors.New("launch: the fabric has one host")
	case len(o.Launch) > 0 && !strings.Contains(strings.Join(o.Launch, " "), hostWord):
		return fmt.Errorf("launch: %q has no %s", strings.Join(o.Launch, " "), hostWord)
	}
	return nil
}

// hostWord stands for the name of a host in [Options.Launch].
const hostWord = "{host}"

// launcher returns how the ranks of several hosts are started; nil if the fabric has one.
func (o *Options) launcher(f *fabric.Fabric) func(rank int) []string {
	if len(f.Hosts) < 2 {
		return nil
	}
	return func(rank int) []string {
		host := f.Host(rank).Name
		if host == f.Hosts[0].Name {
			return nil
		}
		words := slices.Clone(o.Launch)
		for i, w := range words {
			words[i] = strings.ReplaceAll(w, hostWord, host)
		}
		return words
	}
}

// estimate fits the costs to the runs and predicts check.
func (r *Result) estimate(runs []run, check *run, hops bool) error {
	which := [costs]bool{perCall: true, perTransmit: true, perHop: hops, perByte: true, perMove: true}
	middle := samples(runs, (*run).median)
	cost, err := fit(middle, which)
	if err != nil {
		return err
	}
	drawn := bootstrap(runs, which)
	about := func(at int, unit func(float64) float64) *Estimate {
		e := &Estimate{Value: unit(cost[at]), Low: unit(cost[at]), High: unit(cost[at]), Samples: len(runs[0].us)}
		var all []float64
		for _, c := range drawn {
			all = append(all, unit(c[at]))
		}
		if len(all) > 0 {
			e.Low, e.High = sampling.Quartiles(all)
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
	r.Check = check.line(cost)
	return nil
}

func samples(runs []run, us func(*run) float64) []sample {
	var all []sample
	for i := range runs {
		all = append(all, sample{runs[i].terms, us(&runs[i])})
	}
	return all
}

// draws is how often the bootstrap draws iterations.
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
			return sampling.Median(us)
		})
		if c, err := fit(drawn, which); err == nil {
			all = append(all, c)
		}
	}
	return all
}

func (r *run) median() float64 { return sampling.Median(r.us) }

func (r *run) line(cost [costs]float64) Line {
	low, high := sampling.Quartiles(r.us)
	return Line{r.name, r.bytes, r.median(), low, high, r.terms.at(cost)}
}
