package planning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/shim/calls"
	"lightpath/shim/log"
)

// maxIterations bounds the iterations whose plans the book keeps.
const maxIterations = 16

// Step is an operation of an iteration.
type Step struct {
	Shape calls.Shape   // of a collective
	Round bool          // grouped sends and receives: their matrix is known only when ranks have posted it
	Gap   time.Duration // before it; below 0: not known
}

// Iteration has the plans of an iteration on all planes, one after the other: each ends at the maps with which the next
// one begins. nil: the operation has no plan of its own here.
type Iteration struct {
	Plans []*Agreed // by step
	Err   error     // why there are none
}

// iterationKey names an iteration.
type iterationKey struct {
	id     uint64
	planes int
}

// Iteration returns the plans of an iteration with that number on all planes, nil while they are being made. The number
// is a hash of the steps. The first call begins to plan, in the background.
func (b *Book) Iteration(id uint64, steps func() []Step) *Iteration {
	key := iterationKey{id, len(b.site.Planes)}
	b.mu.Lock()
	defer b.mu.Unlock()
	known, begun := b.iterations[key]
	if !begun {
		if b.iterations == nil || len(b.iterations) >= maxIterations {
			b.iterations = map[iterationKey]*Iteration{}
		}
		b.iterations[key] = nil
		go b.planIteration(key, steps())
	}
	return known
}

// planIteration plans an iteration and puts the plans in force.
func (b *Book) planIteration(key iterationKey, steps []Step) {
	began := time.Now()
	own, err := b.ownPlans(steps)
	gain := ""
	if err == nil {
		own, gain, err = b.site.iterate(b.ctx, b.log, steps, own)
	}
	if b.ctx.Err() != nil {
		return
	}
	if err != nil {
		b.log.Info(log.Tuning, "iteration of %d operations: no plan: %v", len(steps), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version++
	b.iterations[key] = &Iteration{own, err}
	for _, p := range own {
		if p != nil {
			b.known.Remember(p)
		}
	}
	if err == nil {
		b.log.Info(log.Tuning, "plan table %d: iteration of %d operations, planned in %v%s", b.version, len(steps),
			time.Since(began).Round(time.Millisecond), gain)
	}
}

// ownPlans returns the plan of each collective by itself, which ends where it begins.
func (b *Book) ownPlans(steps []Step) ([]*Agreed, error) {
	all := make([]*Agreed, len(steps))
	planned := map[calls.Shape]*Agreed{}
	for i := range steps {
		s := ShapeOf(steps[i].Shape)
		if steps[i].Round || steps[i].Shape.Scripted || s.Request != (calls.Shape{}).Request {
			continue
		}
		if p, done := planned[s]; done {
			all[i] = p
			continue
		}
		b.mu.Lock()
		job, err := b.job(Key{Shape: s, Planes: len(b.site.Planes)}, nil)
		b.mu.Unlock()
		if err != nil {
			return nil, err
		}
		planned[s] = nil
		if b.site.OnPackets(s, job.Problem) {
			continue
		}
		if r := job.Run(b.ctx); r.Err == nil {
			planned[s], all[i] = r.Plan, r.Plan
		}
		if b.ctx.Err() != nil {
			return nil, b.ctx.Err()
		}
	}
	return all, nil
}

// iterate returns plans of steps that follow each other, from the plans of single calls. The planner of iterations
// chooses the maps where they meet, with the gaps. A planner that LIGHTPATH_PLANNER names plans call by call.
func (o *Site) iterate(ctx context.Context, out *log.Logger, steps []Step, own []*Agreed) ([]*Agreed, string, error) {
	chained, chainErr := chain(ctx, o, steps, own)
	if o.Cfg.Plan.Planner != planner.Auto {
		return chained, "", chainErr
	}
	ways := [][]*Agreed{own}
	if chainErr == nil {
		ways = append(ways, chained)
	}
	planned, gain, err := o.together(ctx, steps, ways)
	if err != nil {
		out.Info(log.Tuning, "iteration of %d operations: planned call by call: %v", len(steps), err)
		return chained, "", chainErr
	}
	return planned, gain, nil
}

// chain changes plans so that each ends where the next one begins; after the last comes the first. It keeps the maps
// with which each plan begins.
func chain(ctx context.Context, site *Site, steps []Step, own []*Agreed) ([]*Agreed, error) {
	chained := slices.Clone(own)
	type link struct {
		from, to *Agreed
	}
	made := map[link]*Agreed{}
	for i, p := range own {
		next := follower(own, i)
		if p == nil || equalMaps(p.Plan.Initial, next.Plan.Initial) {
			continue
		}
		l := link{p, next}
		if made[l] == nil {
			var err error
			if made[l], err = site.between(ctx, steps[i].Shape, p.Plan.Initial, next.Plan.Initial); err != nil {
				return nil, err
			}
		}
		chained[i] = made[l]
	}
	return chained, nil
}

// follower returns the plan after the one at a position, itself if there is no other.
func follower(own []*Agreed, at int) *Agreed {
	for i := 1; i <= len(own); i++ {
		if next := own[(at+i)%len(own)]; next != nil {
			return next
		}
	}
	return own[at]
}

func equalMaps(a, b []circuit.Permutation) bool {
	return slices.EqualFunc(a, b, circuit.Permutation.Equal)
}

// between plans a call that begins and ends at given maps. If the planner of iterations follows, it begins with this
// plan, and little effort is enough.
func (o *Site) between(ctx context.Context, s calls.Shape, initial, final []circuit.Permutation) (*Agreed, error) {
	j, err := o.chained(s, initial, final)
	if err != nil {
		return nil, err
	}
	solve := search
	if o.Cfg.Plan.Planner == planner.Auto {
		solve = firstPlan
	}
	var own *Agreed
	plan, err := solve(ctx, o.Cfg.Plan.Planner, j.Problem, o.Cfg.Plan.Limit)
	if err == nil {
		own, err = j.sealed(plan)
	}
	if err != nil {
		return nil, fmt.Errorf("%v between the maps of its neighbours: %w", &s, err)
	}
	return own, nil
}

// chained returns the job of a call that begins and ends at given maps. The job is of no shared family.
func (o *Site) chained(s calls.Shape, initial, final []circuit.Permutation) (*Job, error) {
	f, err := o.Family(ShapeOf(s), len(initial), initial)
	if err != nil {
		return nil, err
	}
	f.template.Final = plans.Final{Kind: plans.FinalGiven, Maps: final}
	return f.Job(Key{Shape: ShapeOf(s), Planes: len(initial)})
}

// errMaps reports a plan without a map for each plane.
var errMaps = errors.New("plan without a map for each plane")

// OfChained returns the job that a plan of an iteration solves: it begins and ends where the plan does.
func (o *Site) OfChained(s calls.Shape, p *plans.Plan) (*Job, error) {
	if len(p.Initial) != len(p.Planes) || len(p.Planes) == 0 {
		return nil, errMaps
	}
	final := slices.Clone(p.Initial)
	for j, entries := range p.Planes {
		for i := range entries {
			if entries[i].Kind == plans.Reconfigure {
				final[j] = entries[i].To
			}
		}
	}
	return o.chained(s, p.Initial, final)
}
