package iteration

import (
	"context"
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/plans/spectra"
)

const (
	maxSettings = 32 // on which plans of every shape are made
	maxPerShape = 40 // candidates of a shape
	maxPairs    = 8  // pairs of shapes that get settings for both
)

// heavyWork is the product of ranks, ranks and planes above which planners that search graphs are left out, since they
// take seconds.
const heavyWork = 1 << 18

// solver holds the candidates of a problem.
type solver struct {
	p        *Problem
	o        Options
	deadline time.Time
	settings settings
	all      []*candidate
	byShape  [][]int
	lags     [][]lag
	asked    map[request]bool
	best     []int     // by shape: the fastest candidate with free circuits
	bound    []float64 // by shape: proven
}

// request is a plan that was asked for.
type request struct {
	shape, initial, final int
	planner               string
}

const anySetting = -1

// reserve is the time limit over the part of it that is kept for the dynamic program and the digest.
const reserve = 6

// left reports whether the part of the time limit up to now is less than the given share of it.
func (s *solver) left(share float64) bool {
	return time.Until(s.deadline) > time.Duration((1-share)*float64(s.o.TimeLimit))
}

// light reports whether all planners are fast enough for the shapes.
func (s *solver) light() bool {
	f := s.p.Fabric
	return !f.Forwarding || f.Ranks*f.Ranks*f.Planes <= heavyWork
}

// ask plans requests on all processors and adds the plans, in the order of the requests. A planner that has none is no
// error.
func (s *solver) ask(ctx context.Context, requests []request, effort time.Duration, share float64) []error {
	found, errs := make([]*plans.Plan, len(requests)), make([]error, len(requests))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, r := range requests {
		if s.asked[r] {
			continue
		}
		s.asked[r] = true
		group.Go(func() error {
			first := r.planner == "perstep" || r.planner == spectra.Name // without it, a shape may have no plan
			if ctx.Err() == nil && (s.left(share) || first) {
				found[i], errs[i] = s.solve(ctx, r, effort)
			}
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	for i, plan := range found {
		if plan == nil {
			continue
		}
		at := s.add(s.newCandidate(requests[i].shape, plan))
		if r := requests[i]; r.initial == anySetting && r.final == anySetting {
			s.bound[r.shape] = math.Max(s.bound[r.shape], plan.LowerBoundUS)
			if b := s.best[r.shape]; b < 0 || s.all[at].us < s.all[b].us {
				s.best[r.shape] = at
			}
		}
	}
	return errs
}

func (s *solver) solve(ctx context.Context, r request, effort time.Duration) (*plans.Plan, error) {
	p := *s.p.Shapes[r.shape]
	if r.initial != anySetting {
		p.Initial = s.settings.all[r.initial]
	}
	if r.final != anySetting {
		p.Final = plans.Final{Kind: plans.FinalGiven, Maps: s.settings.all[r.final]}
	}
	limit := max(time.Until(s.deadline)-s.o.TimeLimit/reserve, effort) // the rest is for choosing among the plans
	return planner.Solve(ctx, r.planner, &p, planner.Options{TimeLimit: limit, Effort: effort, SinglePlane: true,
		Seed: s.o.Seed})
}

// add stores a candidate, unless its shape has one between the same settings that is as fast. It returns the number of
// the one that is kept.
func (s *solver) add(c *candidate) int {
	for _, i := range s.byShape[c.shape] {
		if o := s.all[i]; o.first == c.first && o.last == c.last && o.us <= c.us+plans.Tolerance(o.us, c.us) {
			return i
		}
	}
	s.all = append(s.all, c)
	s.byShape[c.shape] = append(s.byShape[c.shape], len(s.all)-1)
	for i := range s.lags {
		s.lags[i] = append(s.lags[i], lag{})
	}
	s.lags = append(s.lags, make([]lag, len(s.all)))
	return len(s.all) - 1
}

// effort returns the effort of one of n plans.
func (s *solver) effort(n int) time.Duration {
	if s.o.Effort > 0 {
		return s.o.Effort
	}
	return max(time.Millisecond, s.o.TimeLimit/time.Duration(n))
}

// ways adds the plans of the known ways, and returns their choices.
func (s *solver) ways() [][]int {
	type use struct {
		shape int
		plan  *plans.Plan
	}
	known := map[use]int{}
	choices := make([][]int, len(s.o.Ways))
	for w, way := range s.o.Ways {
		choices[w] = make([]int, len(way))
		for i, plan := range way {
			u := use{s.p.Of[i], plan}
			at, ok := known[u]
			if !ok {
				at = s.add(s.newCandidate(u.shape, plan))
				known[u] = at
				if b := s.best[u.shape]; b < 0 || s.all[at].us < s.all[b].us {
					s.best[u.shape] = at
				}
			}
			choices[w][i] = at
		}
	}
	return choices
}

// generate fills the candidates.
func (s *solver) generate(ctx context.Context) error {
	n := len(s.p.Shapes)
	effort := s.effort(16 * max(4, n))
	names := []string{"perstep", "swot", "static"}
	if s.light() {
		names = append(names, "weave")
	} else {
		names = names[:2]
	}
	var requests []request
	for _, name := range names {
		for _, shape := range s.withSteps() {
			requests = append(requests, request{shape, anySetting, anySetting, name})
		}
	}
	for shape, p := range s.p.Shapes {
		if p.Demand != nil {
			requests = append(requests, request{shape, anySetting, anySetting, spectra.Name})
		}
	}
	errs := s.ask(ctx, requests, effort, 0.5)
	for shape := range n {
		if s.best[shape] < 0 {
			at := slices.IndexFunc(requests, func(r request) bool { return r.shape == shape })
			return s.noPlan(ctx, shape, errs[at])
		}
	}
	pool := s.pool(ctx, effort)
	requests = nil
	for _, name := range []string{"static", "swot"} {
		for _, setting := range pool {
			for _, shape := range s.withSteps() {
				requests = append(requests, request{shape, setting, anySetting, name})
			}
		}
		if len(requests)*s.p.Fabric.Ranks > 1<<16 {
			break
		}
	}
	s.ask(ctx, requests, effort, 0.75)
	s.prune()
	return ctx.Err()
}

// withSteps returns the shapes of collectives, and of flows of one size.
func (s *solver) withSteps() (list []int) {
	for shape, p := range s.p.Shapes {
		if p.Demand == nil {
			list = append(list, shape)
		}
	}
	return list
}

// noPlan returns the error of a shape without a plan, naming its first call.
func (s *solver) noPlan(ctx context.Context, shape int, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.p.bad(slices.Index(s.p.Of, shape), err)
}

// pool returns the settings on which every shape gets plans. The fastest plans begin and end on some of them; others
// divide the planes among several shapes.
func (s *solver) pool(ctx context.Context, effort time.Duration) []int {
	var pool []int
	add := func(setting int) {
		if len(pool) < maxSettings && setting != anySetting && !slices.Contains(pool, setting) {
			pool = append(pool, setting)
		}
	}
	if maps := s.divided(s.withSteps(), nil); maps != nil {
		add(s.settings.add(maps))
	}
	if maps := s.staticForAll(ctx, effort); maps != nil {
		add(s.settings.add(maps))
	}
	for shape := range s.p.Shapes {
		add(s.all[s.best[shape]].first)
		add(s.all[s.best[shape]].last)
	}
	pairs := s.neighbours()
	for _, pair := range pairs {
		if maps := s.divided(pair[:], nil); maps != nil {
			add(s.settings.add(maps))
		}
	}
	if s.light() {
		s.splits(pairs, add)
	}
	for _, c := range s.all {
		add(c.first)
		add(c.last)
	}
	return pool
}

// neighbours returns the pairs of different shapes of which one follows the other.
func (s *solver) neighbours() [][2]int {
	var pairs [][2]int
	n := len(s.p.Of)
	for i, a := range s.p.Of {
		b := s.p.Of[(i+1)%n]
		pair := [2]int{min(a, b), max(a, b)}
		apart := a != b && s.p.Shapes[a].Demand == nil && s.p.Shapes[b].Demand == nil
		if apart && len(pairs) < maxPairs && !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

// splits adds settings that give one shape of a pair 1, 2, 4, ... units of planes, and the other one the rest.
func (s *solver) splits(pairs [][2]int, add func(setting int)) {
	units := s.p.Fabric.Planes / s.p.Fabric.Circuits.UnitPlanes()
	for few := 1; few <= units/2; few *= 2 {
		for _, pair := range pairs {
			for _, share := range [][]int{{few, units - few}, {units - few, few}} {
				add(s.settings.add(s.divided(pair[:], share)))
			}
		}
	}
}

// staticForAll returns the circuits that the static planner chooses for the steps of all shapes together.
func (s *solver) staticForAll(ctx context.Context, effort time.Duration) []circuit.Permutation {
	const maxSteps = 4096
	all := *s.p.Fabric
	count := s.counts()
	for i, shape := range s.p.Shapes {
		for _, st := range shape.Steps {
			st.Bytes *= float64(count[i])
			all.Steps = append(all.Steps, st)
		}
	}
	if !s.light() || len(all.Steps) > maxSteps || !s.left(0.5) {
		return nil
	}
	plan, err := planner.Solve(ctx, "static", &all, planner.Options{TimeLimit: max(time.Until(s.deadline)/4, effort),
		Effort: effort, SinglePlane: true, Seed: s.o.Seed})
	if err != nil {
		return nil
	}
	return plan.Initial
}

// counts returns how many calls have each shape.
func (s *solver) counts() []int {
	count := make([]int, len(s.p.Shapes))
	for _, shape := range s.p.Of {
		count[shape]++
	}
	return count
}

// divided returns a setting whose planes are divided among shapes, or nil if there are too few. Calls come one after
// the other. So the sum of V/k over shapes is least if k is in proportion to the root of V, the bytes of all calls.
// share, if not nil, are other numbers of units of planes.
func (s *solver) divided(shapes, share []int) []circuit.Permutation {
	unit := s.p.Fabric.Circuits.UnitPlanes()
	units := s.p.Fabric.Planes / unit
	if units < len(shapes) || len(shapes) < 2 {
		return nil
	}
	if share == nil {
		share = s.shares(shapes, units)
	}
	maps := make([]circuit.Permutation, 0, s.p.Fabric.Planes)
	for i, shape := range shapes {
		own := unitMaps(s.all[s.best[shape]].plan, unit)
		for k := range share[i] {
			maps = append(maps, own[k%len(own)]...)
		}
	}
	return maps
}

// shares divides units of planes among shapes, in proportion to the roots of their bytes.
func (s *solver) shares(shapes []int, units int) []int {
	count := s.counts()
	weight := make([]float64, len(shapes))
	for i, shape := range shapes {
		volume := 0.0
		for _, st := range s.p.Shapes[shape].Steps {
			volume += st.Bytes
		}
		weight[i] = math.Sqrt(volume * float64(count[shape]))
	}
	share := make([]int, len(shapes))
	for i := range share {
		share[i] = 1
	}
	for range units - len(shapes) { // to the shape that is furthest below its part
		at := 0
		for i := range shapes {
			if weight[i]*float64(share[at]) > weight[at]*float64(share[i]) {
				at = i
			}
		}
		share[at]++
	}
	return share
}

// unitMaps returns the different circuits that units of planes have in a plan, in the order of planes and of use. The
// circuits on which units begin come first.
func unitMaps(plan *plans.Plan, unit int) [][]circuit.Permutation {
	var own [][]circuit.Permutation
	var index circuit.Index
	add := func(maps []circuit.Permutation) {
		if _, fresh := index.Add(maps[0]); fresh {
			own = append(own, maps)
		}
	}
	for j := 0; j < len(plan.Planes); j += unit {
		add(plan.Initial[j : j+unit])
	}
	for j := 0; j < len(plan.Planes); j += unit {
		for i := range plan.Planes[j] {
			if e := &plan.Planes[j][i]; e.Kind == plans.Reconfigure && unit == 1 {
				add([]circuit.Permutation{e.To})
			} else if e.Kind == plans.Reconfigure {
				add([]circuit.Permutation{e.To, e.To.Inverse()})
			}
		}
	}
	return own
}

// prune keeps the fastest candidates of each shape, and all on which another shape can stay.
func (s *solver) prune() {
	begins := map[int]int{} // setting -> shapes with a candidate that begins there
	for _, list := range s.byShape {
		seen := map[int]bool{}
		for _, i := range list {
			if first := s.all[i].first; !seen[first] {
				seen[first] = true
				begins[first]++
			}
		}
	}
	for shape, list := range s.byShape {
		if len(list) <= maxPerShape {
			continue
		}
		best := s.best[shape]
		slices.SortStableFunc(list, func(a, b int) int {
			x, y := s.all[a], s.all[b]
			switch {
			case a == best || b == best:
				return btoi(b == best) - btoi(a == best)
			case begins[x.first] != begins[y.first]:
				return begins[y.first] - begins[x.first]
			case x.us < y.us:
				return -1
			}
			return btoi(x.us > y.us)
		})
		s.byShape[shape] = list[:maxPerShape]
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
