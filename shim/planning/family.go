package planning

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
)

const (
	// spanReach is the largest ratio of sizes to which a plan is widened: three doublings each way.
	spanReach = 8
	// spanPlannings bounds the plans that one widening makes.
	spanPlannings = 6
	// fewSizes is how many sizes of a collective get plans of their own. Most programs do not have more.
	fewSizes = 8
)

// Family is the set of calls of a communicator that differ only in their bytes, with their known plans. Sizes count the
// bytes of a block: a rank's part for one other rank, or of the result.
type Family struct {
	CacheKey cache.Key
	sched    *schedule.Schedule
	template plans.Problem
	ladder   atomic.Pointer[sizes.Ladder]

	mu     sync.Mutex // held while planning
	survey sizes.Survey
}

// Family returns a new family, without plans, of a shape on a number of the fabric's planes. Its plans begin at the
// maps initial; nil lets planners choose. Planes are alike, so only their number matters.
func (o *Site) Family(s calls.Shape, planes int, initial []circuit.Permutation) (*Family, error) {
	col, err := dispatch.BuildSchedule(&s, o.Ranks, dispatch.Circuits, o.Cfg, o.Pods)
	if err != nil {
		return nil, err
	}
	how := &o.Cfg.Plan
	f := &Family{sched: col.Steps, template: *o.Template}
	f.template.Planes, f.template.Initial = planes, initial
	f.CacheKey = cache.Key{
		Collective: col.Steps.Collective.String(), Algorithm: col.Algorithm, Root: int(s.Root), Ranks: o.Ranks,
		Fabric: cache.Sum([]byte(o.fabric)), FabricName: o.name, Members: hashMaps(o.Pods),
		Planes: uint64(planeset.All(planes)), Loop: true,
		Planner: how.Planner, PlannerVersion: planner.Version, TimeLimit: how.Limit, Tolerance: how.Tolerance,
	}
	if initial != nil {
		f.CacheKey.Maps = hashMaps(initial)
	}
	f.ladder.Store(&sizes.Ladder{})
	f.survey = sizes.Survey{
		Tolerance: how.Tolerance,
		Pose:      func(bytes int64) (*plans.Problem, error) { p, _, err := f.pose(bytes); return p, err },
		Solve: func(ctx context.Context, p *plans.Problem) (*plans.Plan, error) {
			return search(ctx, how.Planner, p, how.Limit)
		},
	}
	if how.Tolerance == 0 {
		f.survey.Tolerance = -1
	}
	return f, nil
}

// pose returns the planning problem of a call with blocks of the given bytes.
func (f *Family) pose(bytes int64) (*plans.Problem, []int, error) {
	size := float64(bytes) / f.sched.Collective.BlockBytes(1, f.sched.Ranks)
	return schedule.Problem(f.sched, size, &f.template)
}

// add adds new spans, and stores them if there is a directory. If storing fails, this process still uses them.
func (j *Job) add(spans sizes.Ladder) {
	for _, s := range spans {
		if j.Store != nil {
			if e, err := j.Store.Put(j.CacheKey, s); err == nil {
				s = e.Span
			} else if j.failed != nil {
				j.failed(err)
			} else {
				j.Log.Warn("plan cache: %v", err)
			}
		}
		j.learn(s)
	}
}

// learn adds a span to the known ones.
func (f *Family) learn(s *sizes.Span) {
	ladder := f.ladder.Load().With(s)
	f.ladder.Store(&ladder)
}

// recall adds plans of the cache that are not known yet. It reports unusable plans and plans of other problems, and
// does not delete them.
func (j *Job) recall() {
	f := j.Family
	if j.Store == nil {
		return
	}
	found, err := j.Store.Ladder(&f.CacheKey)
	if err != nil {
		j.Log.Warn("plan cache: refused: %v", err)
	}
	known := *f.ladder.Load()
	for _, s := range found {
		if slices.ContainsFunc(known, func(k *sizes.Span) bool { return k.Min <= s.Min && k.Max >= s.Max }) {
			continue
		}
		problem, _, err := f.pose(s.Max)
		if err == nil {
			err = plans.VerifyDigest(problem, s.High.Plan)
		}
		if err != nil {
			j.Log.Warn("plan cache: refused: %d..%d bytes: %v", s.Min, s.Max, err)
			continue
		}
		f.survey.Known(s)
		f.learn(s)
	}
}

// Job makes the plan of one call shape, or finds it in the cache. It may run on any goroutine.
type Job struct {
	*Family
	Store   *cache.Cache  // nil without a directory
	Log     *log.Logger   // nil outside communicators
	failed  func(error)   // gets the error of a span that cannot be stored; nil: it is logged
	delay   time.Duration // fault injection
	made    *atomic.Int64 // counts plans
	Key     Key
	bytes   int64
	Problem *plans.Problem
	StepOf  []int
}

// Job returns the job of a shape of this family.
func (f *Family) Job(key Key) (*Job, error) {
	j := &Job{Family: f, made: new(atomic.Int64), Key: key, bytes: int64(key.Shape.Count) * int64(key.Shape.Type.Size())}
	var err error
	j.Problem, j.StepOf, err = f.pose(j.bytes)
	return j, err
}

// Job returns the job of a shape on a number of planes, in a family of its own. See [Site.Family].
func (o *Site) Job(s calls.Shape, planes int, initial []circuit.Permutation) (*Job, error) {
	f, err := o.Family(s, planes, initial)
	if err != nil {
		return nil, err
	}
	return f.Job(Key{Shape: s, Planes: planes})
}

// Verified checks the digest of a plan for the job, and returns the plan as ranks use it.
func (j *Job) Verified(plan *plans.Plan) (*Agreed, error) {
	if err := plans.VerifyDigest(j.Problem, plan); err != nil {
		return nil, err
	}
	return j.agreed(plan)
}

// sealed gives a plan for the job its digest, and returns the plan as ranks use it.
func (j *Job) sealed(plan *plans.Plan) (*Agreed, error) {
	if err := plans.Seal(j.Problem, plan); err != nil {
		return nil, err
	}
	return j.agreed(plan)
}

func (j *Job) agreed(plan *plans.Plan) (*Agreed, error) {
	id, err := IDOf(plan)
	if err != nil {
		return nil, err
	}
	return &Agreed{id, plan, j.Problem, j.StepOf}, nil
}

// planOf returns the plan of a span for the job.
func (j *Job) planOf(s *sizes.Span) (*Agreed, error) {
	plan, err := s.At(j.bytes, j.Problem)
	if err != nil {
		return nil, err
	}
	if plan.Digest == "" {
		own := *plan
		return j.sealed(&own)
	}
	return j.Verified(plan)
}

// known returns the plan if it is known in this process: no planning, no files.
func (j *Job) known() (Solution, bool) {
	s := j.ladder.Load().Find(j.bytes)
	if s == nil {
		return Solution{}, false
	}
	plan, err := j.planOf(s)
	if err != nil {
		j.Log.Warn("plan for %d..%d bytes at %d: %v", s.Min, s.Max, j.bytes, err)
		return Solution{}, false
	}
	return Solution{Key: j.Key, Plan: plan}, true
}

// stored returns the plans for the job in the cache, of all planners.
func (j *Job) stored(c *cache.Cache) (found []*plans.Plan) {
	if c == nil {
		return nil
	}
	files, err := c.List()
	if err != nil {
		j.Log.Warn("plan cache: %v", err)
	}
	for i := range files {
		if files[i].Err != nil || files[i].Entry == nil {
			continue
		}
		s := files[i].Entry.Span
		if j.bytes < s.Min || j.bytes > s.Max {
			continue
		}
		if a, err := j.planOf(s); err == nil {
			found = append(found, a.Plan)
		}
	}
	return found
}

// Run returns the plan. It takes at most LIGHTPATH_PLAN_LIMIT, and first waits for other plans of the family in
// progress.
func (j *Job) Run(ctx context.Context) Solution {
	if j.delay > 0 {
		time.Sleep(j.delay)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s, ok := j.known(); ok {
		return s
	}
	j.recall()
	if s, ok := j.known(); ok {
		return s
	}
	j.made.Add(1)
	span, err := j.survey.Plan(ctx, j.bytes)
	if err != nil {
		return Solution{Key: j.Key, Err: err}
	}
	j.add(sizes.Ladder{span})
	plan, err := j.planOf(j.ladder.Load().Find(j.bytes))
	return Solution{Key: j.Key, Plan: plan, Fresh: err == nil, Err: err}
}

// widen finds sizes near the job's that can share plans, one planning at a time, so that a call without a plan goes
// first. It does nothing while the family has few sizes.
func (j *Job) widen(ctx context.Context) {
	j.mu.Lock()
	few := j.survey.Plannings <= fewSizes
	j.mu.Unlock()
	if few || j.survey.Tolerance < 0 {
		return
	}
	for range spanPlannings {
		j.mu.Lock()
		lo, hi := j.survey.Reach(j.bytes, spanReach)
		before := j.survey.Plannings
		spans, err := j.survey.Cover(ctx, lo, hi, 1)
		j.add(spans)
		idle := j.survey.Plannings == before
		j.made.Add(int64(j.survey.Plannings - before))
		j.mu.Unlock()
		for _, s := range spans {
			j.Log.Info(log.Tuning, "plan table: %s %s: blocks of %d..%d bytes share a plan of %s", j.CacheKey.Collective,
				j.CacheKey.Algorithm, s.Min, s.Max, s.Low.Plan.Planner)
		}
		if err != nil || idle {
			return
		}
	}
}

// hashMaps hashes maps, or the pods of ranks.
func hashMaps[M ~[]int](maps []M) cache.Hash {
	var b []byte
	for _, m := range maps {
		b = appendInts(b, []int{len(m)})
		b = appendInts(b, m)
	}
	return cache.Sum(b)
}

func appendInts(b []byte, v []int) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(x)))
	}
	return b
}

// Key holds all facts of a communicator on which a plan depends.
type Key struct {
	Shape  calls.Shape
	Planes int
	Maps   uint64 // where plans begin at the present maps
}

// Solution is the result of a background planner.
type Solution struct {
	Key   Key
	Plan  *Agreed
	Fresh bool // made just now, not remembered
	Err   error
}
