package planning

import (
	"context"
	"fmt"
	"math"
	"strings"
	"syscall"
	"time"

	"lightpath/bench/figure"
	"lightpath/collectives/traced"
	"lightpath/plans"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/plans/iteration/play"
	"lightpath/plans/iteration/trace"
)

// iterationWays are the lines of the report's charts.
var iterationWays = []figure.Line{
	{Name: iteration.PerCall, Colour: 1}, {Name: iteration.Greedy, Colour: 3}, {Name: iteration.Static, Colour: 4},
	{Name: iteration.Iteration, Colour: 0}, {Name: iteration.Free, Colour: 2, Dashed: true},
}

// iterationPoint is one job at one switching time.
type iterationPoint struct {
	*iteration.Comparison
	job      int
	reconfig float64
	took     time.Duration
}

func iterationFabric(ranks int, reconfig float64) *plans.Problem {
	return &plans.Problem{Version: plans.Version, Ranks: ranks, Planes: 8, BandwidthGbps: 50, AlphaUS: 5, HopUS: 0.5,
		ReconfigUS: reconfig, Forwarding: true, Circuits: plans.Simplex}
}

// iterationReport plans every job at every switching time, checks and plays the plans, and draws what is exposed.
func iterationReport(ctx context.Context, o figure.Options) (*figure.Figure, error) {
	jobs, err := iterationJobs(o.Quick)
	if err != nil {
		return nil, err
	}
	delays := []float64{10, 100, 1e3, 5e3, 25e3, 100e3}
	if o.Quick {
		delays = []float64{10, 1e3, 25e3}
	}
	var points []iterationPoint
	for j := range jobs {
		for _, reconfig := range delays {
			point, err := planIteration(ctx, jobs[j], reconfig, o.Seed)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", jobs[j].Name, err)
			}
			point.job = j
			points = append(points, point)
			if o.Progress != nil {
				o.Progress(len(points), len(jobs)*len(delays))
			}
		}
	}
	f := &figure.Figure{Columns: 3, Title: "Communication that an iteration waits for: 8 planes, 400 Gb/s per rank, " +
		"alpha 5 us, hop 0.5 us"}
	drawIterations(f, jobs, points)
	f.Notes = append(f.Notes, iterationNotes(points, jobs)...)
	large, err := largeIteration(ctx, o)
	if err != nil {
		return nil, err
	}
	f.Notes = append(f.Notes, large)
	return f, nil
}

// planIteration plans one job. The checker and the player must agree with the plan.
func planIteration(
	ctx context.Context, t *trace.Trace, reconfig float64, seed int64,
) (point iterationPoint, err error) {
	began := time.Now()
	p, err := iteration.Pose(iterationFabric(t.Ranks, reconfig), "", t, traced.Steps)
	if err != nil {
		return point, err
	}
	// Operations end these searches, so that the figure is the same on a machine that is busy.
	o := iteration.Options{Seed: seed, TimeLimit: time.Minute, Effort: 10 * time.Millisecond}
	c, err := iteration.Compare(ctx, p, o)
	if err != nil {
		return point, err
	}
	point = iterationPoint{Comparison: c, reconfig: reconfig, took: time.Since(began)}
	if _, err := check.Check(p, c.Plan); err != nil {
		return point, err
	}
	const iterations = 6
	played, err := play.Run(p, c.Plan, iterations)
	if err == nil && !plans.SameUS(played, c.Plan.IterationUS) {
		err = fmt.Errorf("the plan states %v us, playing it takes %v us", c.Plan.IterationUS, played)
	}
	return point, err
}

// drawIterations adds a chart for each job and a row for each way.
func drawIterations(f *figure.Figure, jobs []*trace.Trace, points []iterationPoint) {
	f.Table.Columns = []string{"job", "ranks", "calls", "reconfig_us", "way", "iteration_us", "compute_us", "exposed_us",
		"switching_us", "exposed_switching_us", "hidden"}
	for j, t := range jobs {
		chart := &figure.Chart{Title: jobTitle(t), X: figure.Axis{Label: "switching time", Log: true, Name: figure.Micros},
			Y: figure.Axis{Label: "exposed communication", Log: true, Name: figure.Micros}}
		low, high := math.Inf(1), 0.0
		for _, way := range iterationWays {
			line := way
			for i := range points {
				if points[i].job != j {
					continue
				}
				line.X = append(line.X, points[i].reconfig)
				y := math.NaN()
				if o := points[i].Of(way.Name); o != nil && o.ExposedUS > 0 {
					y = o.ExposedUS
				}
				line.Y = append(line.Y, y)
			}
			for _, y := range line.Y {
				if !math.IsNaN(y) { // a job whose lines are all equal needs an axis, too
					low, high = math.Min(low, y), math.Max(high, y)
				}
			}
			chart.Lines = append(chart.Lines, line)
		}
		if high < low*2 {
			chart.Y.Min, chart.Y.Max = low/2, high*2
		}
		f.Panels = append(f.Panels, chart)
	}
	for i := range points {
		p := &points[i]
		t := jobs[p.job]
		for k := range p.Outcomes {
			o := &p.Outcomes[k]
			f.Table.Add(t.Name, t.Ranks, len(t.Calls), p.reconfig, o.Name, o.IterationUS, p.Plan.ComputeUS, o.ExposedUS,
				o.SwitchingUS, o.ExposedSwitchingUS, o.Hidden())
		}
	}
}

// iterationNotes say, for each job, up to which switching time the plan is within 1 % of packet planes, and the times
// of planning.
func iterationNotes(points []iterationPoint, jobs []*trace.Trace) []string {
	var notes []string
	longest, sum := time.Duration(0), time.Duration(0)
	for j, t := range jobs {
		var parts []string
		for i := range points {
			p := &points[i]
			if p.job != j {
				continue
			}
			longest, sum = max(longest, p.took), sum+p.took
			o, packet := p.Of(iteration.Iteration), p.Of(iteration.Packet)
			hidden := "no switching"
			if o.SwitchingUS > 0 {
				hidden = fmt.Sprintf("%.0f %% hidden", 100*o.Hidden())
			}
			parts = append(parts, fmt.Sprintf("%s %+.2f %% (%s)", iteration.Millis(p.reconfig),
				100*(o.IterationUS/packet.IterationUS-1), hidden))
		}
		notes = append(notes, fmt.Sprintf("%s, iteration against packet planes: %s.", t.Name, strings.Join(parts, ", ")))
	}
	return append(notes, fmt.Sprintf("Planning took %v on average, %v at most. Every plan was checked and played.",
		(sum/time.Duration(len(points))).Round(time.Millisecond), longest.Round(time.Millisecond)))
}

// largeIteration plans 500 calls of 6 shapes on 512 ranks and 16 planes.
func largeIteration(ctx context.Context, o figure.Options) (string, error) {
	j := newJob("large", 512)
	all := j.communicator("all", 512, 1)
	kinds := []struct {
		collective, algorithm string
		bytes                 float64
	}{
		{"allreduce", "rabenseifner", 64 << 20}, {"allgather", "recursive-doubling", 16 << 20},
		{"reducescatter", "rabenseifner", 16 << 20}, {"alltoall", "bruck:4", 32 << 20},
		{"allreduce", "swing", 8 << 20}, {"allreduce", "ring:2", 8 << 20},
	}
	for i := range 500 {
		k := kinds[i%len(kinds)]
		j.call("", all, k.collective, k.algorithm, k.bytes, float64(300*(i%7)))
	}
	f := iterationFabric(512, 1e3)
	f.Planes = 16
	p, err := iteration.Pose(f, "", j.Trace, traced.Steps)
	if err != nil {
		return "", err
	}
	began, used := time.Now(), processorTime()
	c, err := iteration.Compare(ctx, p, iteration.Options{Seed: o.Seed})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("500 calls of %d shapes on 512 ranks and 16 planes, 1 ms per switch, time limit %v: planned in "+
		"%.2f s of processor time (%.2f s on the clock) with %d plans of calls; iteration %s, percall %s.", c.Shapes,
		iteration.DefaultTimeLimit, (processorTime() - used).Seconds(), time.Since(began).Seconds(), c.Tried,
		iteration.Millis(c.Plan.IterationUS), iteration.Millis(c.Of(iteration.PerCall).IterationUS)), nil
}

// processorTime returns the time that all threads of this process have run.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
