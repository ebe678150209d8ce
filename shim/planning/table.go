package planning

import (
	"sync"

	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
	"lightpath/shim/settings"
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

// tableKey holds all facts on which a family depends, and the directory that keeps its plans.
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

// Learn adds the leader's plan of the job to the process's table. So a new communicator of the same size, with its
// leader in this process, need not plan the shape again. Learn does not wait for a planner; it drops the plan if one is
// working on the family.
func (j *Job) Learn(cfg *settings.Config, plan *plans.Plan) {
	if j.Key.Shape.Request.Plan.Digits > 0 || cfg.Plan.Planner != planner.Auto && cfg.Plan.Planner != plan.Planner {
		return // the call, or another setting, has chosen this plan
	}
	f := j.Share(cfg.Plan.Dir)
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if f.ladder.Load().Find(j.bytes) == nil {
		span := sizes.Point(j.bytes, j.Problem, plan)
		f.survey.Known(span)
		f.learn(span)
	}
}
