package spectra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"lightpath/plans"
)

// Name is the planner's name in plans of this package.
const Name = "spectra"

// ErrNoDemand is wrapped by [Solve]'s error for a problem with steps.
var ErrNoDemand = errors.New("the problem has steps: spectra plans demand matrices")

// ErrTooLong is wrapped by [Solve]'s error if a schedule may take longer than [longestUS].
var ErrTooLong = errors.New("a schedule of the demand takes longer than 1e150 us")

// longestUS is the longest time with which the search computes. On longer ones matchings overflow and do not end.
const longestUS = 1e150

// Mode is how much [Solve] does.
type Mode int

// The modes.
const (
	// Anytime begins with Fast and searches on, within Options.Work and TimeLimit.
	Anytime Mode = iota
	// Fast is Faithful with the weights of all switches set by one linear program.
	Fast
	// Faithful is the paper's algorithm.
	Faithful
)

// DefaultWork is the search of Anytime where Options states none: about a second.
const DefaultWork = int64(3e8)

// Options tune [Solve]. The zero value is usable.
type Options struct {
	Mode Mode
	// Work is how many elementary operations (of the order of 4 ns) a search may take; 0
	// is DefaultWork. Equal problems, options and seeds give equal plans, unless TimeLimit
	// comes first.
	Work int64
	// TimeLimit caps the time; 0 is no cap.
	TimeLimit time.Duration
	Seed      int64
}

// Solve plans a demand problem. The plan begins dark; every hold follows a reconfiguration
// to its circuits, those of a unit as close together as they can be; circuits that serve
// nothing are dark, or stay where they were. Duplex planes get involutions, interleaved
// pairs inverse permutations that switch together. The lower bound holds for every plan of
// the problem, and BoundProof says why.
//
// Errors: [plans.ErrProblem], [ErrNoDemand], [ErrTooLong]. A cancelled or expired search
// returns its best. It is safe for concurrent use and does not keep p.
func Solve(ctx context.Context, p *plans.Problem, o Options) (*plans.Plan, error) {
	d, err := demandOf(p)
	if err != nil {
		return nil, err
	}
	lim, cancel := o.begin(ctx)
	defer cancel()
	w := newNetwork(d, p.Circuits)
	units := p.Planes / p.Circuits.UnitPlanes()
	plan := &plans.Plan{Version: plans.Version, Planner: Name, Planes: make([][]plans.Entry, p.Planes),
		BoundProof: "there is nothing to serve"}
	if len(w.demand) == 0 {
		return plan, nil
	}
	reconfigure := plans.ReconfigPortsUS(p, p.Ranks) * float64(len(w.demand))
	if reconfigure+sum(w.demand)*float64(2*w.n) > longestUS {
		return nil, fmt.Errorf("spectra: demand: %w", ErrTooLong)
	}
	served := w // the bound is that of the demand as it is
	if raise(d) {
		served = newNetwork(d, p.Circuits)
	}
	s := newSearcher(served, units, p.ReconfigUS, p.ReconfigPerPort, o.Seed)
	plan.LowerBoundUS, plan.BoundProof = w.bound(p.Planes, p.ReconfigUS, p.ReconfigPerPort, o.rows())
	lim.floor = plan.LowerBoundUS
	s.write(p, plan, s.layout(o.Mode, lim))
	plan.LowerBoundUS = min(plan.LowerBoundUS, plan.CCTUS) // rounding, at an optimum
	return plan, nil
}

// demandOf validates a demand problem and returns its [wireTimes].
func demandOf(p *plans.Problem) (Matrix, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.Demand == nil {
		return nil, ErrNoDemand
	}
	return wireTimes(p), nil
}

// wireTimes is the demand as time on one circuit.
func wireTimes(p *plans.Problem) Matrix {
	d := make(Matrix, p.Ranks)
	for r, row := range p.Demand {
		d[r] = make([]float64, p.Ranks)
		for s, bytes := range row {
			d[r][s] = plans.WireUS(p, bytes)
		}
	}
	return d
}

// raise raises the small entries of d to a part of the largest one that sums in float64 do not lose. A plan may serve
// more than asked. It reports whether there are such entries.
func raise(d Matrix) bool {
	const part = 1e-12
	least, raised := 0.0, false
	for _, row := range d {
		least = max(least, part*slices.Max(row))
	}
	for _, row := range d {
		for s, v := range row {
			if v > 0 && v < least {
				row[s], raised = least, true
			}
		}
	}
	return raised
}

// begin returns the limits of a search, and what ends its context.
func (o Options) begin(ctx context.Context) (*limits, context.CancelFunc) {
	lim := &limits{ctx: ctx, work: o.Work}
	if lim.work <= 0 {
		lim.work = DefaultWork
	}
	cancel := func() {}
	if o.TimeLimit > 0 {
		lim.ctx, cancel = context.WithTimeout(ctx, o.TimeLimit)
	}
	return lim, cancel
}

// rows is for how many ports there is time to find the exact bound, which takes a few
// milliseconds each at most.
func (o Options) rows() int {
	switch {
	case o.Mode != Anytime:
		return 0
	case o.TimeLimit > 0:
		return int(min(exactRows, o.TimeLimit/(10*time.Millisecond)))
	}
	return exactRows
}

// layout schedules the network as the mode says.
func (s *searcher) layout(mode Mode, lim *limits) *layout {
	even, plain := s.construct(s.decompose(mode, newBare(s.w, 0), lim))
	if mode == Faithful {
		return even
	}
	s.settle(even)
	if mode == Fast || len(even.holds) > mostHolds {
		return even
	}
	starts := []*layout{even}
	if s.settle(plain); len(plain.holds) < len(even.holds) {
		starts = append(starts, plain)
	}
	if holds := s.layered(lim); holds != nil && len(holds) <= mostHolds {
		other, _ := s.construct(holds)
		s.settle(other)
		starts = append(starts, other)
	}
	best := s.search(starts, lim)
	s.merge(best)
	return best
}

// construct applies REFINE, SCHEDULE and, for even, EQUALIZE.
func (s *searcher) construct(holds []hold) (even, plain *layout) {
	refineGreedy(s.w, holds)
	weights, setup := make([]float64, len(holds)), make([]float64, len(holds))
	for i := range holds {
		weights[i], setup[i] = holds[i].weight, s.setup(&holds[i])
	}
	parts := lpt(weights, setup, s.units)
	plain = s.assemble(holds, parts)
	equalize(parts, setup)
	return s.assemble(holds, parts), plain
}

// settle sets a layout's weights by the linear program where that is better.
func (s *searcher) settle(l *layout) {
	if s.merge(l); len(l.holds) > mostHolds {
		return
	}
	greedy := l.clone()
	if s.weigh(l); greedy.span < l.span {
		*l = *greedy
	}
}

// mostHolds is beyond what the linear program is for.
const mostHolds = 300

// assemble makes a layout of parts of holds, and measures it.
func (s *searcher) assemble(holds []hold, parts [][]part) *layout {
	l := &layout{}
	for u := range parts {
		for _, p := range parts[u] {
			l.holds = append(l.holds, hold{holds[p.item].edges, p.weight})
			l.unit = append(l.unit, int32(u))
		}
	}
	s.time(l)
	return l
}

// time sets the makespan of a layout from its weights.
func (s *searcher) time(l *layout) {
	s.measure(l)
	l.span = s.load[extreme(s.load, 1)]
}

// decompose is Algorithm 1. Outside Faithful it gives up choosing heavy matchings, which takes long on large dense
// demands, and colours what is left.
func (s *searcher) decompose(mode Mode, b *bare, lim *limits) []hold {
	var late func() bool
	if mode != Faithful {
		late = func() bool { return s.work() > decomposeWork && s.over(lim, lim.work/2) }
	}
	return decompose(lim.ctx, s.w, s.m, b, late, s.delta)
}

// layered decomposes the large entries before the small ones, where the demands have a gap that parts them. Algorithm 1
// lets a large entry wait as long as its ports have many others. A large entry that is left over makes a permutation
// long that otherwise has small ones. It may take more permutations. The gap is the one for which the least total is
// reached; nil where there is none.
func (s *searcher) layered(lim *limits) []hold {
	var best []hold
	least := math.Inf(1)
	for _, cut := range gaps(s.w.demand) {
		if s.over(lim, lim.work/4) {
			break
		}
		b := newBare(s.w, cut)
		holds := s.decompose(Anytime, b, lim)
		b.reopen(0)
		holds = append(holds, s.decompose(Anytime, b, lim)...)
		refineGreedy(s.w, holds)
		total := 0.0
		for i := range holds {
			total += holds[i].weight + s.setup(&holds[i])
			holds[i].weight = 0 // for REFINE to begin anew
		}
		if total < least {
			best, least = holds, total
		}
	}
	return best
}

// gaps returns the demands above the widest gaps, as ratios, at most three.
func gaps(demand []float64) []float64 {
	sorted := slices.Clone(demand)
	slices.Sort(sorted)
	type gap struct{ above, ratio float64 }
	var all []gap
	for i := 1; i < len(sorted); i++ {
		if r := sorted[i] / sorted[i-1]; r > 1.3 {
			all = append(all, gap{sorted[i], r})
		}
	}
	slices.SortStableFunc(all, func(a, b gap) int { return cmp.Compare(b.ratio, a.ratio) })
	var cuts []float64
	for _, g := range all[:min(3, len(all))] {
		cuts = append(cuts, g.above)
	}
	return cuts
}

// decomposeWork is what Algorithm 1 may take however short the time: some tens of
// milliseconds, enough for sparse demands of hundreds of ranks.
const decomposeWork = 1e7
