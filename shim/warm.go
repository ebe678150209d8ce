package shim

import (
	"fmt"
	"math"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
)

// CallShape is a collective call without its communicator and buffers.
type CallShape struct {
	Collective schedule.Collective
	Type       datatype.Type
	Count      uint64 // NCCL's, as in [Call]; at least 1
	Root       int    // 0 where the collective has none
}

// Warm sees to it that store holds the plan that a communicator of so many ranks, at ports
// 0 .. ranks-1 of fab in their order, looks up for a call: under the same key and for the
// same problem as its leader does. It returns the cached entry, and whether it was there
// before. Where it was not, or the file there is unusable, it plans, for up to
// cfg.PlanLimit, and stores the plan.
//
// Of cfg the planner, its limit and the algorithms matter; the job must run with the same.
// Plans that begin at the planes' present maps (LIGHTPATH_PLAN_INITIAL=current) cannot be
// foreseen. Errors: [ErrInvalidArgument], [planner.ErrInfeasible] where the call will run
// on packet planes, those of [schedule.Build] and [cache.Cache.Put].
func Warm(cfg *Config, fab *fabric.Fabric, ranks int, call CallShape, store *cache.Cache) (e *cache.Entry, hit bool, err error) {
	s, err := call.shape(ranks)
	if err != nil {
		return nil, false, err
	}
	switch {
	case !fab.Optical():
		return nil, false, fmt.Errorf("shim: the fabric has no circuits to plan: %w", ErrInvalidArgument)
	case ranks < 2 || ranks > fab.Ranks:
		return nil, false, fmt.Errorf("shim: %d ranks are not 2..%d, the fabric's: %w", ranks, fab.Ranks, ErrInvalidArgument)
	case cfg.PlanCurrent:
		return nil, false, fmt.Errorf("shim: plans that begin at the present circuits (LIGHTPATH_PLAN_INITIAL) cannot be made ahead: %w", ErrInvalidArgument)
	}
	ports := make([]int, ranks)
	for r := range ports {
		ports[r] = r
	}
	site := newPlanSite(cfg, fab, ports)
	j, err := site.job(planKey{shape: s}, nil)
	if err != nil {
		return nil, false, err
	}
	j.cache = store
	if e, err = j.load(); err == nil {
		return e, true, nil
	}
	plan, _, err := j.solve()
	if err != nil {
		return nil, false, err
	}
	e, err = store.Put(j.file, j.problem, plan)
	return e, false, err
}

// shape returns what a plan for the call depends on.
func (c *CallShape) shape(ranks int) (shape, error) {
	for kind := range kinds {
		k := &kinds[kind]
		if CallKind(kind).p2p() || k.collective != c.Collective {
			continue
		}
		switch {
		case c.Type >= datatype.NumTypes:
			return shape{}, fmt.Errorf("shim: datatype %d is none: %w", c.Type, ErrInvalidArgument)
		case c.Root < 0 || c.Root >= ranks || c.Root > 0 && !k.rooted:
			return shape{}, fmt.Errorf("shim: %s: root %d: %w", k.name, c.Root, ErrInvalidArgument)
		case c.Count < 1 || c.Count > math.MaxInt64/uint64(8*ranks):
			return shape{}, fmt.Errorf("shim: %s: count %d: %w", k.name, c.Count, ErrInvalidArgument)
		}
		return planShape(shape{kind: CallKind(kind), typ: c.Type, root: int32(c.Root), count: c.Count}), nil
	}
	return shape{}, fmt.Errorf("shim: %v is not planned: %w", c.Collective, ErrInvalidArgument)
}
