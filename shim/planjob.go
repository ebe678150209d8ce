package shim

import (
	"encoding/binary"
	"errors"
	"time"

	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
)

// plannerVersion is part of the keys of cached plans: raised when planners change what
// they answer, so that old plans are not mistaken for theirs.
const plannerVersion = 1

// planJob makes one plan, or finds it in the cache. It uses nothing that changes, so it
// can run on any goroutine.
type planJob struct {
	cfg     *Config
	log     *logger
	cache   *cache.Cache // nil without a directory
	key     planKey
	file    cache.Key
	problem *plans.Problem
	stepOf  []int
}

// job states the job of a shape whose plans begin at initial (nil: where they like).
func (o *planSite) job(key planKey, initial []circuit.Permutation) (*planJob, error) {
	s := &key.shape
	sched, problem, stepOf, err := o.pose(*s, initial)
	if err != nil {
		return nil, err
	}
	elem := s.typ.Size()
	j := &planJob{cfg: o.cfg, key: key, problem: problem, stepOf: stepOf}
	j.file = cache.Key{
		Collective: kinds[s.kind].collective.String(), Algorithm: sched.Algorithm, Root: int(s.root), Ranks: o.ranks,
		ElemBytes: elem, MinBytes: int64(s.count) * int64(elem), MaxBytes: int64(s.count) * int64(elem),
		Fabric: cache.Sum([]byte(o.fabric)), Members: hashInts(o.ports), Planes: o.mask(), Loop: true,
		Planner: o.cfg.Planner, PlannerVersion: plannerVersion, TimeLimit: o.cfg.PlanLimit,
	}
	if problem.Initial != nil {
		j.file.Maps = hashMaps(problem.Initial)
	}
	return j, nil
}

// run returns the plan; it may take as long as LIGHTPATH_PLAN_LIMIT allows.
func (j *planJob) run() solution {
	if j.cfg.Fault.PlanDelay > 0 {
		time.Sleep(j.cfg.Fault.PlanDelay)
	}
	if s, ok := j.cached(); ok {
		return s
	}
	plan, id, err := j.solve()
	if err != nil {
		return solution{key: j.key, err: err}
	}
	if j.cache != nil {
		if _, err := j.cache.Put(j.file, j.problem, plan); err != nil {
			j.log.warn("plan cache: %v", err) // the plan serves this process all the same
		}
	}
	return solution{key: j.key, plan: &agreedPlan{id, plan, j.problem, j.stepOf}}
}

// solve makes the plan.
func (j *planJob) solve() (*plans.Plan, planID, error) {
	return solve(j.cfg.Planner, j.problem, planner.Options{TimeLimit: j.cfg.PlanLimit})
}

// cached looks the plan up. A file that is unusable, or answers another problem, is
// reported and left alone.
func (j *planJob) cached() (solution, bool) {
	if j.cache == nil {
		return solution{}, false
	}
	e, err := j.load()
	var id planID
	if err == nil {
		id, err = idOf(e.Plan)
	}
	if err != nil {
		if !errors.Is(err, cache.ErrMiss) {
			j.log.warn("plan cache: refused: %v", err)
		}
		return solution{}, false
	}
	return solution{key: j.key, plan: &agreedPlan{id, e.Plan, j.problem, j.stepOf}}, true
}

// load returns what the cache has for the job: [cache.ErrMiss] where that is nothing.
func (j *planJob) load() (*cache.Entry, error) {
	e, err := j.cache.Get(j.file)
	if err == nil {
		err = plans.VerifyDigest(j.problem, e.Plan)
	}
	return e, err
}

func hashMaps(maps []circuit.Permutation) cache.Hash {
	var b []byte
	for _, m := range maps {
		b = appendInts(b, m)
	}
	return cache.Sum(b)
}

func hashInts(v []int) cache.Hash { return cache.Sum(appendInts(nil, v)) }

func appendInts(b []byte, v []int) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(x)))
	}
	return b
}
