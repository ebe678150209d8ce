package jobs

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"lightpath/plans/delta"
	"lightpath/plans/delta/check"
	"lightpath/plans/delta/train"
)

// Outcome is the result of one method.
type Outcome struct {
	Algorithm  string        `json:"algorithm"`
	Sharing    delta.Sharing `json:"sharing"`
	MakespanUS float64       `json:"makespan_us"`
	NCT        delta.NCT     `json:"nct"`
	NCTOfLeast delta.NCT     `json:"nct_of_least"`
	PortsUsed  int           `json:"ports_used"`
	Ports      int           `json:"ports"`
	Circuits   []int         `json:"circuits"`
	Seconds    float64       `json:"seconds"` // bounds, search, and ports given back
}

// Row is one job with the results of all methods.
type Row struct {
	Model           string    `json:"model"`
	Gbps            float64   `json:"bandwidth_gbps"`
	Sequence        int       `json:"sequence"`
	MicroBatches    int       `json:"micro_batches"`
	IdealUS         float64   `json:"ideal_us"`
	CommunicationUS float64   `json:"communication_us"`
	LeastUS         float64   `json:"least_communication_us"`
	LowerBoundUS    float64   `json:"lower_bound_us"`
	LowerBoundNCT   delta.NCT `json:"lower_bound_nct"`
	PrepareSeconds  float64   `json:"prepare_seconds"` // from the graph to the planner
	Outcomes        []Outcome `json:"outcomes"`        // baselines, then the search by fair and by critical shares
	// Reallocated has the search by both rules for a copy of the job. The copy gets the ports that the first result by
	// the same rule leaves.
	Reallocated []Outcome `json:"reallocated,omitempty"`
}

// Options of a comparison.
type Options struct {
	Seed       uint64
	Workers    int
	Reallocate bool
}

const fast = "fast"

// Compare runs all methods on a job.
func Compare(ctx context.Context, c train.Config, o Options) (*Row, error) {
	g, err := train.Generate(c)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	p, err := delta.NewPlanner(g)
	if err != nil {
		return nil, err
	}
	ideal := p.Ideal()
	row := &Row{
		Model: c.Model.Name, Gbps: c.Gbps, Sequence: c.Sequence, MicroBatches: c.MicroBatches,
		IdealUS: ideal.Makespan, CommunicationUS: ideal.Communication, LeastUS: ideal.LeastCommunication,
		PrepareSeconds: time.Since(begin).Seconds(),
	}
	row.LowerBoundUS, row.LowerBoundNCT = p.LowerBound(), ideal.NCT(p.LowerBound())
	for _, name := range delta.Baselines() {
		begin := time.Now()
		circuits, err := p.Baseline(name)
		if err != nil {
			return nil, err
		}
		plan, err := p.Evaluate(circuits, delta.Fair)
		if err != nil {
			return nil, err
		}
		if err := row.add(&row.Outcomes, p, name, plan, time.Since(begin)); err != nil {
			return nil, err
		}
	}
	for _, sharing := range []delta.Sharing{delta.Fair, delta.Critical} {
		plan, err := row.search(ctx, &row.Outcomes, p, sharing, o)
		if err != nil {
			return nil, err
		}
		if !o.Reallocate {
			continue
		}
		more, err := delta.NewPlanner(delta.Reallocate(g, plan.Circuits))
		if err != nil {
			return nil, err
		}
		if _, err := row.search(ctx, &row.Reallocated, more, sharing, o); err != nil {
			return nil, err
		}
	}
	return row, ctx.Err()
}

func (r *Row) search(
	ctx context.Context, list *[]Outcome, p *delta.Planner, sharing delta.Sharing, o Options,
) (*delta.Plan, error) {
	begin := time.Now()
	found, err := p.Fast(ctx, delta.Options{Sharing: sharing, Seed: o.Seed, Workers: o.Workers})
	if err != nil {
		return nil, err
	}
	return found.Plan, r.add(list, p, fast, found.Plan, time.Since(begin))
}

// add states a plan whose schedule the validator has passed.
func (r *Row) add(list *[]Outcome, p *delta.Planner, algorithm string, plan *delta.Plan, took time.Duration) error {
	s, err := p.Schedule(plan)
	if err != nil {
		return err
	}
	if err := check.Check(p.Graph(), s); err != nil {
		return fmt.Errorf("%s, %s: %w", r.Model, algorithm, err)
	}
	o := Outcome{
		Algorithm: algorithm, Sharing: plan.Sharing, MakespanUS: plan.Makespan, Circuits: plan.Circuits,
		NCT: p.Ideal().NCT(plan.Makespan), NCTOfLeast: p.Ideal().NCTOfLeast(plan.Makespan), Seconds: took.Seconds(),
	}
	o.PortsUsed, o.Ports = p.Graph().TotalPorts(plan.Circuits)
	*list = append(*list, o)
	return nil
}

// Best returns the baseline with the shortest iteration.
func (r *Row) Best() *Outcome {
	best := &r.Outcomes[0]
	for k := range delta.Baselines() {
		if r.Outcomes[k].MakespanUS < best.MakespanUS {
			best = &r.Outcomes[k]
		}
	}
	return best
}

// Find returns the search's outcome by a rule.
func (r *Row) Find(sharing delta.Sharing) *Outcome {
	for k := range r.Outcomes {
		if o := &r.Outcomes[k]; o.Algorithm == fast && o.Sharing == sharing {
			return o
		}
	}
	return nil
}

// Table writes rows as text. The NCT is below the name of each algorithm. "saved" is the part of the best
// baseline's NCT that the search saves, with fair shares and with critical transfers first. "at most" is the
// part that the lower bound allows: no circuits and no rates save more.
func Table(rows []*Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%32s  %50s  %23s  %13s  %13s\n", "", "NCT", "saved", "ports", "seconds")
	fmt.Fprintf(&b, "%-14s %5s %6s %4s  %10s %10s %10s %8s %8s  %7s %7s %7s  %6s %6s  %6s %6s\n",
		"model", "Gb/s", "tokens", "MBs", delta.PropAlloc, delta.SqrtAlloc, delta.IterHalve, fast, "critical",
		fast, "crit.", "at most", fast, "crit.", fast, "crit.")
	for _, r := range rows {
		fair, critical := r.Find(delta.Fair), r.Find(delta.Critical)
		fmt.Fprintf(&b, "%-14s %5.0f %6d %4d  %10s %10s %10s %8s %8s  %7s %7s %7s  %5.1f%% %5.1f%%  %6.2f %6.2f\n",
			r.Model, r.Gbps, r.Sequence, r.MicroBatches, r.Outcomes[0].NCT, r.Outcomes[1].NCT, r.Outcomes[2].NCT, fair.NCT,
			critical.NCT,
			saved(r, fair.NCT), saved(r, critical.NCT), saved(r, r.LowerBoundNCT), used(fair), used(critical),
			fair.Seconds, critical.Seconds)
	}
	return b.String()
}

// saved returns the part of the best baseline's NCT that v saves.
func saved(r *Row, nct delta.NCT) string {
	if math.IsInf(float64(r.Best().NCT), 1) {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*(1-nct/r.Best().NCT))
}

func used(o *Outcome) float64 { return 100 * float64(o.PortsUsed) / float64(o.Ports) }

// TieTable writes NCTs by the other reference for the jobs that have several critical paths on the ideal network; ""
// where no job has. Times are in milliseconds.
func TieTable(rows []*Row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.LeastUS >= r.CommunicationUS*(1-1e-6) {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("Several critical paths on the ideal network: the most and the least communication of one, and " +
				"NCTs by the least.\n")
			fmt.Fprintf(&b, "%-14s %5s %6s %4s  %9s %9s  %10s %8s %8s\n",
				"model", "Gb/s", "tokens", "MBs", "most", "least", "best", fast, "critical")
		}
		fmt.Fprintf(&b, "%-14s %5.0f %6d %4d  %9.3f %9.3f  %10s %8s %8s\n", r.Model, r.Gbps, r.Sequence, r.MicroBatches,
			r.CommunicationUS/1e3, r.LeastUS/1e3, r.Best().NCTOfLeast, r.Find(delta.Fair).NCTOfLeast,
			r.Find(delta.Critical).NCTOfLeast)
	}
	return b.String()
}

// ReallocationTable writes how a reversed copy of a job gains from the ports that the job leaves.
func ReallocationTable(rows []*Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %5s %6s  %10s %12s  %10s %12s\n", "model", "Gb/s", "tokens", fast, "reallocated", "critical",
		"reallocated")
	for _, r := range rows {
		if len(r.Reallocated) == 2 {
			fmt.Fprintf(&b, "%-14s %5.0f %6d  %10s %12s  %10s %12s\n", r.Model, r.Gbps, r.Sequence,
				r.Find(delta.Fair).NCT, r.Reallocated[0].NCT, r.Find(delta.Critical).NCT, r.Reallocated[1].NCT)
		}
	}
	return b.String()
}
