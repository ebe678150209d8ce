package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lightpath/bench"
	"lightpath/bench/sampling"
	"lightpath/bench/workload"
	"lightpath/collectives/wire"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/spectra"
)

// Options is one comparison.
type Options struct {
	Lightpath, Worker string // paths of the commands
	Ranks, Planes     int
	Rate              fabric.Rate // of a port of a plane
	Reconfig          time.Duration
	Alpha             time.Duration // latency of a transmission in the cost model of plans
	Bytes             int64         // sent or received by the busiest port in one exchange
	Kernel            bool          // planes in the kernel, which needs root, instead of in memory
	Rounds            int           // turns of every matrix in each order
	Iters             int           // exchanges of a turn
	Matrices          []Matrix
	Progress          func(format string, args ...any)
}

// Matrix is a demand, of any scale.
type Matrix struct {
	Name string
	// Demand returns the matrix of one iteration.
	Demand func(iteration int) [][]float64
	Fresh  bool // every iteration has another matrix, which ranks see for the first time
}

// orders are the two orders, as LIGHTPATH_DEMAND names them.
var orders = []string{"plain", "spectra"}

// Result is one matrix in one order; times are in microseconds.
type Result struct {
	Matrix      string  `json:"matrix"`
	Order       string  `json:"order"`
	BusiestPort int64   `json:"busiest_port_bytes"`
	PredictedUS float64 `json:"predicted_us"` // mean over the plans of the iterations
	BoundUS     float64 `json:"lower_bound_us"`
	MedianUS    float64 `json:"median_us"` // of all iterations of all rounds
	MinUS       float64 `json:"min_us"`
	MaxUS       float64 `json:"max_us"`
	Wrong       int64   `json:"wrong"`

	times     []float64
	predicted []float64
}

// Run measures all matrices. Ranks check every element that arrives; Result.Wrong counts the wrong ones. With an error
// Run returns the earlier results.
func Run(ctx context.Context, o *Options) ([]*Result, error) {
	dir, err := os.MkdirTemp("", "lightpath-exchange-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	stop, err := o.serve(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	var all []*Result
	for i := range o.Matrices {
		pair, err := o.matrix(ctx, dir, &o.Matrices[i])
		if err != nil {
			return all, err
		}
		all = append(all, pair...)
	}
	return all, nil
}

// matrix measures a matrix in both orders by turns.
func (o *Options) matrix(ctx context.Context, dir string, m *Matrix) ([]*Result, error) {
	counts, busiest := o.counts(m)
	bound, err := o.bound(counts)
	if err != nil {
		return nil, err
	}
	var results []*Result
	for _, order := range orders {
		results = append(results, &Result{Matrix: m.Name, Order: order, BusiestPort: busiest, BoundUS: bound})
	}
	for round := range o.Rounds {
		for k := range sampling.Turns(round, len(results)) {
			r := results[k]
			o.Progress("%s, %s, %d of %d", m.Name, r.Order, round+1, o.Rounds)
			if err := o.turn(ctx, dir, m, counts, r); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", m.Name, r.Order, err)
			}
		}
	}
	for _, r := range results {
		r.summarize()
	}
	return results, nil
}

// serve makes the planes, and starts their controller.
func (o *Options) serve(ctx context.Context, dir string) (stop func(), err error) {
	socket := filepath.Join(dir, "ocs.sock")
	f := bench.EmulatedFabric("exchange", socket, o.Ranks, o.Planes, o.Rate, o.Reconfig)
	f.Costs.Alpha = o.Alpha
	sw := &fabric.OCSD{Socket: socket, MTU: frameBytes + wire.HeaderSize}
	if o.Kernel {
		bench.OnKernel(f)
		sw.MTU = 0
	}
	path, config, err := bench.WriteFabric(dir, f, sw)
	if err != nil {
		return nil, err
	}
	down := func() error { return nil }
	if o.Kernel {
		if f, err = fabric.Load(path); err != nil {
			return nil, err
		}
		if _, down, err = bench.KernelPlanes(f, frameBytes); err != nil {
			return nil, err
		}
	}
	ocs, err := bench.StartOCS(ctx, o.Lightpath, config, socket)
	if err != nil {
		return nil, errors.Join(err, down())
	}
	return func() { _, _ = ocs.Stop(), down() }, nil // no process depends on them any more
}

const (
	// frameBytes is the payload of a frame. A circuit delivers whole frames, so a frame is short beside the bytes that
	// a circuit carries between two reconfigurations.
	frameBytes = 8 << 10
	elemBytes  = 4
	// postWait is LIGHTPATH_DEMAND_WAIT. Ranks start together behind a barrier, so a rank that is late was delayed by
	// the system. Its peers must not take the packet planes then, which have another rate.
	postWait = "10s"
)

// counts returns the element counts of a call, or those of each iteration if the matrix is fresh. busiest is the mean
// number of bytes of the busiest port.
func (o *Options) counts(m *Matrix) (all [][][]int64, busiest int64) {
	n := 1
	if m.Fresh {
		n = o.Iters
	}
	for i := range n {
		d := workload.Noisy(m.Demand(i), 0, 0) // a copy
		for r := range d {
			d[r][r] = 0 // a rank keeps its own block
		}
		workload.Normalise(d)
		c := make([][]int64, len(d))
		for r := range d {
			c[r] = make([]int64, len(d))
			for s, v := range d[r] {
				c[r][s] = int64(math.Round(v * float64(o.Bytes) / elemBytes))
			}
		}
		all = append(all, c)
		busiest += plans.Busiest(c) * elemBytes / int64(n)
	}
	return all, busiest
}

// bound returns the mean lower bound of the matrices, for planes that begin dark.
func (o *Options) bound(all [][][]int64) (float64, error) {
	sum := 0.0
	for _, c := range all {
		p := &plans.Problem{
			Version: plans.Version, Ranks: o.Ranks, Planes: o.Planes, BandwidthGbps: float64(o.Rate) / 1e9,
			ReconfigUS: float64(o.Reconfig+o.Alpha) / 1e3, Circuits: plans.Simplex, Demand: make([][]float64, o.Ranks),
		}
		for r := range c {
			p.Demand[r] = make([]float64, o.Ranks)
			for s, v := range c[r] {
				p.Demand[r][s] = float64(v * elemBytes)
			}
		}
		plan, err := spectra.Solve(context.Background(), p, spectra.Options{Mode: spectra.Fast})
		if err != nil {
			return 0, err
		}
		sum += plan.LowerBoundUS
	}
	return sum / float64(len(all)), nil
}

// turn runs the exchanges of one turn and adds their times to r.
func (o *Options) turn(ctx context.Context, dir string, m *Matrix, all [][][]int64, r *Result) error {
	trace := filepath.Join(dir, "trace")
	_ = os.Remove(trace)
	lines, err := o.runLines(dir, m, all)
	if err != nil {
		return err
	}
	job := bench.Ranks{
		N: o.Ranks, Worker: o.Worker, Transport: "shm", Deadline: 5 * time.Minute,
		Env: []string{
			"LIGHTPATH_FABRIC=" + filepath.Join(dir, "fabric.yaml"), "LIGHTPATH_DEMAND=" + r.Order,
			"LIGHTPATH_DEMAND_WAIT=" + postWait, "LIGHTPATH_TIMEOUT=60s", "LIGHTPATH_TRACE=" + trace,
		},
	}
	if !m.Fresh { // all iterations share one plan: wait for it
		job.Env = append(job.Env, "LIGHTPATH_PLAN_WAIT=1")
	}
	reports, err := job.Run(ctx, lines)
	if err != nil {
		return err
	}
	for i := range lines {
		perRank, err := bench.EveryRank(reports, i)
		if err != nil {
			return err
		}
		for _, p := range perRank {
			r.Wrong += p.Wrong
		}
		r.times = append(r.times, bench.Completions(perRank)...)
	}
	return r.predict(trace, len(lines), m.Fresh)
}

// runLines writes the matrices into dir and returns the runs of a turn.
func (o *Options) runLines(dir string, m *Matrix, all [][][]int64) (lines []string, err error) {
	warmup, iters := 3, o.Iters
	if m.Fresh {
		warmup, iters = 0, 1
	}
	for i, c := range all {
		path := filepath.Join(dir, fmt.Sprintf("matrix-%d", i))
		if err := os.WriteFile(path, matrixText(c), 0o600); err != nil {
			return nil, err
		}
		most := plans.Busiest(c)
		lines = append(lines, fmt.Sprintf(
			"run collective=alltoallv type=float op=sum bytes=%d count=%d warmup=%d iters=%d check=1 mode=sync matrix=%s",
			most*elemBytes, most, warmup, iters, path))
	}
	return lines, nil
}

func matrixText(c [][]int64) []byte {
	var b bytes.Buffer
	for _, row := range c {
		for _, v := range row {
			fmt.Fprintf(&b, "%d ", v)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// predict adds the planned times of rank 0's programs for the exchanges of a turn. It fails if an exchange took the
// packet planes.
func (r *Result) predict(trace string, exchanges int, fresh bool) error {
	programs, err := bench.ReadTrace(trace, 0)
	if err != nil {
		return err
	}
	var planned []float64
	for _, p := range programs {
		if p.Collective == "alltoallv" && p.Rank == 0 {
			planned = append(planned, p.PredictedUS)
		}
	}
	switch {
	case len(planned) < exchanges:
		return fmt.Errorf("%d of %d matrices used circuits", len(planned), exchanges)
	case fresh && len(planned) > exchanges:
		return fmt.Errorf("%d matrices, but %d plans", exchanges, len(planned))
	case !fresh: // the timed iterations ran the last program
		planned = planned[len(planned)-1:]
	}
	r.predicted = append(r.predicted, planned...)
	return nil
}

func (r *Result) summarize() {
	r.MedianUS, r.MinUS, r.MaxUS = sampling.Median(r.times), slices.Min(r.times), slices.Max(r.times)
	for _, us := range r.predicted {
		r.PredictedUS += us / float64(len(r.predicted))
	}
}
