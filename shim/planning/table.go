package planning

import (
	"sync"

	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
	"lightpath/shim/calls"
)

// maxFamilies bounds the table of the process.
const maxFamilies = 256

// table has the families of all communicators of this process, so that a communicator uses the plans of another one on
// the same fabric. It exists as long as a communicator uses it.
var table struct {
	mu       sync.Mutex
	users    int
	families map[tableKey]*Family
}

// tableKey is what a family depends on, and the directory that keeps its plans.
type tableKey struct {
	cache.Key
	dir string
}

// Retain keeps the process's table of plans until the matching [Release].
func Retain() {
	table.mu.Lock()
	defer table.mu.Unlock()
	table.users++
}

// Release ends the use of the process's table. The last Release drops all plans.
func Release() {
	table.mu.Lock()
	defer table.mu.Unlock()
	if table.users--; table.users == 0 {
		table.families = nil
	}
}

// Share returns the family of the process's table that has the key of f. That is f itself if the key is new.
func (f *Family) Share(dir string) *Family {
	table.mu.Lock()
	defer table.mu.Unlock()
	key := tableKey{f.CacheKey, dir}
	if known := table.families[key]; known != nil || table.users == 0 {
		if known == nil {
			return f
		}
		return known
	}
	if table.families == nil || len(table.families) >= maxFamilies {
		table.families = map[tableKey]*Family{}
	}
	table.families[key] = f
	return f
}

// Learn adds the leader's plan of a shape to the process's table. So a new communicator of the same size, with its
// leader in this process, need not plan the shape again. initial are the maps that the plan begins with, nil if the
// planner chose them. Learn does not wait for a planner; it drops the plan if one is working on the family.
func (o *Site) Learn(s calls.Shape, planes int, initial []circuit.Permutation, problem *plans.Problem, plan *plans.Plan) {
	if s.Request.Plan.Digits > 0 || o.Cfg.Planner != planner.Auto && o.Cfg.Planner != plan.Planner {
		return // the call, or another setting, has chosen this plan
	}
	f, err := o.Family(s, planes, initial)
	if err != nil {
		return
	}
	f = f.Share(o.Cfg.PlanDir)
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	bytes := int64(s.Count) * int64(s.Type.Size())
	if f.ladder.Load().Find(bytes) == nil {
		span := sizes.Point(bytes, problem, plan)
		f.survey.Known(span)
		f.learn(span)
	}
}
