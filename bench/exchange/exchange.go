// Package exchange times grouped sends and receives of unequal sizes over planes with circuits:
// demand matrices, scheduled by SPECTRA and in plain order of distance, by turns on the same planes.
package exchange

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lightpath/bench"
	"lightpath/bench/workload"
	"lightpath/collectives/transport/ebpf"
	"lightpath/collectives/wire"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/spectra"
)

// Options is one comparison.
type Options struct {
	Lightpath, Worker string // the commands
	Ranks, Planes     int
	Rate              fabric.Rate // of a port of a plane
	Reconfig          time.Duration
	// Alpha is what a transmission costs before its first byte, for plans to reckon with.
	Alpha  time.Duration
	Bytes  int64 // what the busiest port sends or receives in one exchange
	Kernel bool  // planes in the kernel, which needs root, instead of in memory
	// Rounds is how often every matrix is run in either way, by turns; Iters how many exchanges each
	// time.
	Rounds, Iters int
	Matrices      []Matrix
	Progress      func(format string, args ...any)
}

// Matrix is a demand, of any scale.
type Matrix struct {
	Name string
	// Demand returns the matrix of one iteration; Fresh says that no two are the same, so that the
	// ranks have never seen what they are asked.
	Demand func(iteration int) [][]float64
	Fresh  bool
}

// Orders are the two ways, as LIGHTPATH_DEMAND names them.
var Orders = []string{"plain", "spectra"}

// Result is one matrix in one order; times in microseconds.
type Result struct {
	Matrix      string  `json:"matrix"`
	Order       string  `json:"order"`
	BusiestPort int64   `json:"busiest_port_bytes"`
	PredictedUS float64 `json:"predicted_us"` // mean over the iterations' plans
	BoundUS     float64 `json:"lower_bound_us"`
	MedianUS    float64 `json:"median_us"` // of all iterations of all rounds
	MinUS       float64 `json:"min_us"`
	MaxUS       float64 `json:"max_us"`
	Wrong       int64   `json:"wrong"`

	times     []float64
	predicted []float64
}

// Run runs o. Every element that arrives is compared with what was sent; wrong ones are counted.
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
		m := &o.Matrices[i]
		counts, busiest := o.counts(m)
		bound, err := o.bound(counts)
		if err != nil {
			return all, err
		}
		pair := make([]*Result, len(Orders))
		for k, order := range Orders {
			pair[k] = &Result{Matrix: m.Name, Order: order, BusiestPort: busiest, BoundUS: bound}
		}
		for round := range o.Rounds {
			for _, r := range pair {
				o.Progress("%s, %s, %d of %d", m.Name, r.Order, round+1, o.Rounds)
				if err := o.job(ctx, dir, m, counts, r); err != nil {
					return all, fmt.Errorf("%s, %s: %w", m.Name, r.Order, err)
				}
			}
		}
		for _, r := range pair {
			r.summarize()
		}
		all = append(all, pair...)
	}
	return all, nil
}

// serve writes the files of the fabric and of its controller, and starts it.
func (o *Options) serve(ctx context.Context, dir string) (stop func(), err error) {
	socket := filepath.Join(dir, "ocs.sock")
	f := &fabric.Fabric{
		Version: fabric.Version, Name: "exchange", Ranks: o.Ranks, Circuits: plans.Simplex,
		OCS:   []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + socket, Reconfig: o.Reconfig}},
		Costs: fabric.Costs{Alpha: o.Alpha},
	}
	for p := range o.Planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: o.Rate, OCS: "ocs0"})
	}
	if o.Kernel {
		f.Name = fmt.Sprintf("exchange%d", os.Getpid())
		for p := range f.Planes {
			f.Planes[p].Interface = f.Planes[p].Name
		}
	}
	file, config := filepath.Join(dir, "fabric.yaml"), filepath.Join(dir, "ocsd.yaml")
	sw := fabric.OCSD{Version: fabric.Version, Fabric: file, Socket: socket}
	if !o.Kernel {
		sw.MTU = frameBytes + wire.HeaderSize
	}
	if err := errors.Join(os.WriteFile(file, f.Encode(), 0o600), os.WriteFile(config, sw.Encode(), 0o600)); err != nil {
		return nil, err
	}
	down := func() {}
	if o.Kernel {
		if f, err = fabric.Load(file); err != nil {
			return nil, err
		}
		_, remove, err := kernel.Temporary(f, kernel.Options{
			MTU: frameBytes + ebpf.FrameOverhead - ethernetHeader, Overhead: ebpf.FrameOverhead,
		})
		if err != nil {
			return nil, err
		}
		down = func() { _ = remove() } // a fabric that stays is listed, and removed by the next run
	}
	ocs, err := bench.StartOCS(ctx, o.Lightpath, config, socket)
	if err != nil {
		down()
		return nil, err
	}
	return func() {
		_ = ocs.Stop() // nothing depends on it any more
		down()
	}, nil
}

const (
	// frameBytes is what a frame carries: short beside what a hold does, since a circuit delivers
	// whole frames.
	frameBytes     = 8 << 10
	ethernetHeader = 14 // which an MTU does not count
	elemBytes      = 4
	// postWait is LIGHTPATH_DEMAND_WAIT: the ranks start behind a barrier, and what the system does
	// to one of them then must not send the others over the packet planes, whose rate is another.
	postWait = "10s"
)

// counts are the element counts of one call or, where every iteration has its own, of each; and
// what the busiest port has in bytes, the mean over them.
func (o *Options) counts(m *Matrix) (all [][][]int64, busiest int64) {
	n := 1
	if m.Fresh {
		n = o.Iters
	}
	for i := range n {
		d := workload.Noisy(m.Demand(i), 0, 0) // a copy
		for r := range d {
			d[r][r] = 0 // stays where it is
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
		busiest += largestPort(c) * elemBytes / int64(n)
	}
	return all, busiest
}

// largestPort is the largest sum of a row or column.
func largestPort(c [][]int64) int64 {
	var most int64
	for r := range c {
		var row, column int64
		for s := range c {
			row += c[r][s]
			column += c[s][r]
		}
		most = max(most, row, column)
	}
	return most
}

// bound is the mean lower bound of the matrices, for planes that begin dark.
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

// job runs one round and adds its times to r.
func (o *Options) job(ctx context.Context, dir string, m *Matrix, all [][][]int64, r *Result) error {
	trace := filepath.Join(dir, "trace")
	_ = os.Remove(trace)
	warmup, iters := 3, o.Iters
	if m.Fresh {
		warmup, iters = 0, 1
	}
	var lines []string
	for i, c := range all {
		path := filepath.Join(dir, fmt.Sprintf("matrix-%d", i))
		if err := os.WriteFile(path, matrixText(c), 0o600); err != nil {
			return err
		}
		most := largestPort(c)
		lines = append(lines, fmt.Sprintf("run collective=alltoallv type=float op=sum bytes=%d count=%d warmup=%d iters=%d check=1 mode=sync matrix=%s",
			most*elemBytes, most, warmup, iters, path))
	}
	job := bench.Ranks{
		N: o.Ranks, Worker: o.Worker, Transport: "shm", Deadline: 5 * time.Minute,
		Env: []string{
			"LIGHTPATH_FABRIC=" + filepath.Join(dir, "fabric.yaml"), "LIGHTPATH_DEMAND=" + r.Order, "LIGHTPATH_DEMAND_WAIT=" + postWait,
			"LIGHTPATH_TIMEOUT=60s", "LIGHTPATH_TRACE=" + trace,
		},
	}
	if !m.Fresh { // one plan for all iterations: the one that the search in the background would bring
		job.Env = append(job.Env, "LIGHTPATH_PLAN_WAIT=1")
	}
	reports, err := job.Run(ctx, lines)
	if err != nil {
		return err
	}
	for i := range lines {
		perRank := make([]bench.Report, o.Ranks)
		for rank := range perRank {
			if len(reports[rank]) != len(lines) {
				return fmt.Errorf("rank %d reported %d runs of %d", rank, len(reports[rank]), len(lines))
			}
			perRank[rank] = reports[rank][i]
			r.Wrong += perRank[rank].Wrong
		}
		r.times = append(r.times, bench.Completions(perRank)...)
	}
	predicted, err := predictions(trace)
	switch {
	case err != nil:
		return err
	case len(predicted) < len(lines):
		return fmt.Errorf("%d of %d matrices went by circuits", len(predicted), len(lines))
	case m.Fresh && len(predicted) > len(lines):
		return fmt.Errorf("%d matrices, but %d plans", len(lines), len(predicted))
	case !m.Fresh: // the last program is the one of the loop
		predicted = predicted[len(predicted)-1:]
	}
	r.predicted = append(r.predicted, predicted...)
	return nil
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

// predictions reads from a trace how long rank 0's programs were to take, in order.
func predictions(trace string) ([]float64, error) {
	f, err := os.Open(trace)
	if err != nil {
		return nil, fmt.Errorf("no exchange went by circuits: %w", err)
	}
	defer f.Close()
	var all []float64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var line struct {
			Collective  string  `json:"collective"`
			Rank        int     `json:"rank"`
			PredictedUS float64 `json:"predicted_us"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, err
		}
		if line.Collective == "alltoallv" && line.Rank == 0 {
			all = append(all, line.PredictedUS)
		}
	}
	return all, lines.Err()
}

func (r *Result) summarize() {
	slices.Sort(r.times)
	r.MedianUS, r.MinUS, r.MaxUS = bench.Median(r.times), r.times[0], r.times[len(r.times)-1]
	for _, us := range r.predicted {
		r.PredictedUS += us / float64(len(r.predicted))
	}
}
