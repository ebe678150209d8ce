package planning

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// Asked is a collective call without its communicator and buffers.
type Asked struct {
	Collective schedule.Collective
	Type       datatype.Type
	Count      uint64 // NCCL's, as in [Call]; at least 1
	Root       int    // 0 where the collective has none
}

// Warmed describes the plan of a call after Warm.
type Warmed struct {
	Call  Asked
	Entry *cache.Entry // whose span contains the call's size; nil with Err
	Plan  *plans.Plan  // of the call
	// Cached: the plan was in the cache.
	Cached bool
	// Err wraps [planner.ErrInfeasible]: the call will run on packet planes.
	Err error
}

// Warm fills store with the plans that a communicator of so many ranks, at ports 0 to ranks-1 of fab, needs for calls.
// It uses the keys and problems of the communicator's leader. It makes plans that are missing or unusable, each for up
// to cfg.PlanLimit. If calls differ only in size, it plans a few of them and finds the sizes that share plans (package
// sizes), within cfg.PlanTolerance. Sizes between the requested ones are covered too. After each plan it calls
// progress, if not nil, with the number of plans made.
//
// Of cfg the planner, its limit, the tolerance and the algorithms matter; the job must run with
// the same. Plans that begin at the planes' present maps (LIGHTPATH_PLAN_INITIAL=current) cannot
// be foreseen. The result is in the order of calls. Errors: [errdefs.ErrInvalidArgument], those of
// [schedule.Build] and [cache.Cache.Put], that of ctx.
func Warm(ctx context.Context, cfg *settings.Config, fab *fabric.Fabric, ranks int, calls []Asked, store *cache.Cache,
	progress func(plannings int)) ([]Warmed, error) {
	switch {
	case !fab.Optical():
		return nil, fmt.Errorf("shim: the fabric has no circuits to plan: %w", errdefs.ErrInvalidArgument)
	case ranks < 2 || ranks > fab.Ranks:
		return nil, fmt.Errorf("shim: %d ranks are not 2..%d, the fabric's: %w", ranks, fab.Ranks, errdefs.ErrInvalidArgument)
	case fab.PinnedBy != "":
		return nil, fmt.Errorf("shim: the circuits of the fabric are pinned by %s: plans begin at them, and cannot be "+
			"made ahead: %w",
			fab.PinnedBy, errdefs.ErrInvalidArgument)
	case cfg.Plan.Current:
		return nil, fmt.Errorf("shim: plans that begin at the present circuits (LIGHTPATH_PLAN_INITIAL) cannot be made "+
			"ahead: %w", errdefs.ErrInvalidArgument)
	}
	ports := make([]int, ranks)
	for r := range ports {
		ports[r] = r
	}
	w := &warmer{site: NewSite(cfg, fab, ports), store: store, progress: progress, families: map[cache.Key]*Family{}}
	for _, call := range calls {
		if err := w.add(call); err != nil {
			return nil, err
		}
	}
	for _, f := range w.order {
		if err := w.survey(ctx, f); err != nil {
			return nil, err
		}
	}
	out := make([]Warmed, len(calls))
	for i, j := range w.jobs {
		out[i] = Warmed{Call: calls[i], Cached: w.cached[i]}
		s := j.Run(ctx)
		switch {
		case errors.Is(s.Err, planner.ErrInfeasible):
			out[i].Err = s.Err
		case s.Err != nil:
			return nil, s.Err
		case w.failed != nil:
			return nil, w.failed
		default:
			out[i].Plan = s.Plan.Plan
			out[i].Entry = &cache.Entry{Key: j.CacheKey, Span: j.ladder.Load().Find(j.bytes)}
		}
	}
	return out, nil
}

// warmer is one call of Warm.
type warmer struct {
	site      Site
	store     *cache.Cache
	progress  func(plannings int)
	plannings int
	failed    error // to store a plan
	jobs      []*Job
	cached    []bool // by job
	families  map[cache.Key]*Family
	order     []*Family
}

// add states the job of a call.
func (w *warmer) add(call Asked) error {
	s, err := call.shape(w.site.Ranks)
	if err != nil {
		return err
	}
	f, err := w.site.Family(s, len(w.site.Planes), nil)
	if err != nil {
		return err
	}
	if known := w.families[f.CacheKey]; known != nil {
		f = known
	} else {
		solve := f.survey.Solve
		f.survey.Solve = func(ctx context.Context, p *plans.Problem) (*plans.Plan, error) {
			plan, err := solve(ctx, p)
			if w.plannings++; w.progress != nil {
				w.progress(w.plannings)
			}
			return plan, err
		}
		w.families[f.CacheKey] = f
		w.order = append(w.order, f)
	}
	j, err := f.Job(Key{Shape: s})
	if err != nil {
		return err
	}
	j.Store, j.failed = w.store, func(err error) { w.failed = errors.Join(w.failed, err) }
	j.recall()
	_, known := j.known()
	w.jobs, w.cached = append(w.jobs, j), append(w.cached, known)
	return nil
}

// survey plans the sizes of a family if several of them lack plans.
func (w *warmer) survey(ctx context.Context, f *Family) error {
	var lacking []int64
	var last *Job
	for i, j := range w.jobs {
		if j.Family == f && !w.cached[i] {
			lacking, last = append(lacking, j.bytes), j
		}
	}
	if len(lacking) < 2 {
		return nil
	}
	spans, err := f.survey.Cover(ctx, slices.Min(lacking), slices.Max(lacking), 2*len(lacking)+4)
	last.add(spans)
	if errors.Is(err, planner.ErrInfeasible) || errors.Is(err, sizes.ErrPattern) {
		return nil // the caller plans each call, and reports calls without a plan
	}
	return err
}

// shape returns what a plan for the call depends on.
func (c *Asked) shape(ranks int) (calls.Shape, error) {
	for kind := range calls.Kinds {
		k := &calls.Kinds[kind]
		if calls.Kind(kind).P2P() || k.Collective != c.Collective {
			continue
		}
		switch {
		case c.Type >= datatype.NumTypes:
			return calls.Shape{}, fmt.Errorf("shim: datatype %d is none: %w", c.Type, errdefs.ErrInvalidArgument)
		case c.Root < 0 || c.Root >= ranks || c.Root > 0 && !k.Rooted:
			return calls.Shape{}, fmt.Errorf("shim: %s: root %d: %w", k.Name, c.Root, errdefs.ErrInvalidArgument)
		case c.Count < 1 || c.Count > math.MaxInt64/uint64(8*ranks):
			return calls.Shape{}, fmt.Errorf("shim: %s: count %d: %w", k.Name, c.Count, errdefs.ErrInvalidArgument)
		}
		return ShapeOf(calls.Shape{Kind: calls.Kind(kind), Type: c.Type, Root: int32(c.Root), Count: c.Count}), nil
	}
	return calls.Shape{}, fmt.Errorf("shim: %v is not planned: %w", c.Collective, errdefs.ErrInvalidArgument)
}
