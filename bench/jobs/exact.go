package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lightpath/plans/delta"
	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/milp"
	"lightpath/plans/delta/train"
	"lightpath/plans/mip/solver"
)

// ExactOptions configure a comparison with DELTA's models, which a solver solves.
type ExactOptions struct {
	Options
	Solver    *solver.Solver
	TimeLimit time.Duration // of the solver, for each model
	Margin    int
	Extra     int
	Ports     bool
}

// Exact compares one model of a job with the search under the same rule. Topo corresponds to fair shares, Joint to
// critical transfers first.
type Exact struct {
	Model        string  `json:"model"`
	MicroBatches int     `json:"micro_batches"`
	Kind         string  `json:"kind"`
	Transfers    int     `json:"transfers"`
	Intervals    int     `json:"intervals"`
	Integers     int     `json:"integers"`
	Rows         int     `json:"rows"`
	LowerBoundUS float64 `json:"lower_bound_us"`

	FastUS      float64   `json:"fast_us"`
	FastNCT     delta.NCT `json:"fast_nct"`
	FastPorts   int       `json:"fast_ports"`
	FastSeconds float64   `json:"fast_seconds"`

	Solver  string    `json:"solver"`
	Status  string    `json:"status"`
	Hot     bool      `json:"hot"`
	US      float64   `json:"us"` // of the model's schedule
	NCT     delta.NCT `json:"nct"`
	BoundUS float64   `json:"bound_us"`
	// RunUS is the time of an iteration on the model's circuits if the network shares its rates by the rule. It does
	// not use the model's own starts and rates.
	RunUS      float64 `json:"run_us"`
	Ports      int     `json:"ports"`
	PortsBound float64 `json:"ports_bound"`
	PortsSaid  string  `json:"ports_status,omitempty"`
	Seconds    float64 `json:"seconds"`
}

// CompareExact solves both models of a job. The solver begins with the result of the search. Every schedule has passed
// the validator.
func CompareExact(ctx context.Context, c train.Config, o ExactOptions) ([]*Exact, error) {
	g, err := train.Generate(c)
	if err != nil {
		return nil, err
	}
	p, err := delta.NewPlanner(g)
	if err != nil {
		return nil, err
	}
	var all []*Exact
	for _, kind := range []milp.Kind{milp.Topo, milp.Joint} {
		e := &Exact{Model: c.Model.Name, MicroBatches: c.MicroBatches, Kind: kind.String(), Solver: o.Solver.Name(),
			LowerBoundUS: p.LowerBound()}
		if err := e.run(ctx, p, kind, o); err != nil {
			return nil, fmt.Errorf("%s, %v: %w", c.Model.Name, kind, err)
		}
		all = append(all, e)
	}
	return all, nil
}

func (e *Exact) run(ctx context.Context, p *delta.Planner, kind milp.Kind, o ExactOptions) error {
	sharing := delta.Fair
	if kind == milp.Joint {
		sharing = delta.Critical
	}
	begin := time.Now()
	found, err := p.Fast(ctx, delta.Options{Sharing: sharing, Seed: o.Seed, Workers: o.Workers})
	if err != nil {
		return err
	}
	e.FastSeconds = time.Since(begin).Seconds()
	e.FastUS, e.FastNCT = found.Makespan, p.Ideal().NCT(found.Makespan)
	e.FastPorts, _ = p.Graph().TotalPorts(found.Circuits)
	start, err := p.Schedule(found.Plan)
	if err != nil {
		return err
	}
	if err := check.Check(p.Graph(), start); err != nil {
		return err
	}
	m, err := milp.NewJob(p.Graph(), milp.Options{Kind: kind, Start: start, Upper: dag.Circuits(found.Bounds),
		Margin: o.Margin, Extra: o.Extra})
	if err != nil {
		return err
	}
	for i := range p.Graph().Tasks {
		if p.Graph().Tasks[i].Transfer() {
			e.Transfers++
		}
	}
	size := m.Size()
	e.Intervals, e.Integers, e.Rows = m.Intervals(), size.Integers, size.Rows
	ctx, cancel := context.WithTimeout(ctx, o.TimeLimit)
	defer cancel()
	r, err := m.Solve(ctx, milp.SolveOptions{Solver: o.Solver, Threads: o.Workers, Ports: o.Ports})
	if err != nil {
		return err
	}
	e.Status, e.Hot, e.BoundUS, e.Seconds = r.Status.String(), r.Hot, r.BoundUS, r.Wall.Seconds()
	if r.Schedule == nil {
		return nil
	}
	if err := check.Check(p.Graph(), r.Schedule); err != nil {
		return err
	}
	e.US, e.NCT = r.Schedule.Makespan, p.Ideal().NCT(r.Schedule.Makespan)
	e.Ports, _ = p.Graph().TotalPorts(r.Schedule.Circuits)
	if o.Ports {
		e.PortsBound, e.PortsSaid = r.PortsBound, r.PortsStatus.String()
	}
	run, err := p.Evaluate(r.Schedule.Circuits, sharing)
	if err != nil {
		return err
	}
	e.RunUS = run.Makespan
	return nil
}

// ExactTable is rows in Markdown.
func ExactTable(rows []*Exact) string {
	var b strings.Builder
	b.WriteString("| model, micro-batches | | transfers, intervals, integers | Fast [ms] | NCT | ports | s | solved " +
		"[ms] | NCT | bound [ms] | said | its circuits, run [ms] | ports | s |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, e := range rows {
		solved, nct, run, ports := "-", "-", "-", "-"
		if e.US > 0 {
			solved, nct, run, ports = fmt.Sprintf("%.3f", e.US/1e3), e.NCT.String(), fmt.Sprintf("%.3f", e.RunUS/1e3),
				fmt.Sprint(e.Ports)
			if e.PortsSaid == solver.Optimal.String() {
				ports += " (fewest)"
			} else if e.PortsSaid != "" {
				ports += fmt.Sprintf(" (>= %.0f)", e.PortsBound)
			}
		}
		fmt.Fprintf(&b, "| %s, %d | %s | %d, %d, %d | %.3f | %s | %d | %.2f | %s | %s | %.3f | %s | %s | %s | %.1f |\n",
			e.Model, e.MicroBatches, e.Kind,
			e.Transfers, e.Intervals, e.Integers, e.FastUS/1e3, e.FastNCT, e.FastPorts, e.FastSeconds, solved, nct,
			e.BoundUS/1e3, e.Status, run, ports, e.Seconds)
	}
	return b.String()
}
