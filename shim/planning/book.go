package planning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
)

const maxRows = 1024 // of the table of plans

// Book is the leader's plans of a communicator: a table by shape, and plans of demand matrices. It plans in the
// background. Safe for concurrent use.
type Book struct {
	site     *Site
	known    *Known
	log      *log.Logger
	store    *cache.Cache // nil without a directory
	ctx      context.Context
	cancel   context.CancelFunc // of planning in the background
	widen    chan struct{}      // holds a token while a family is being widened
	demands  demands
	hopeless sync.Once    // warns of the first call without a plan
	made     atomic.Int64 // plans

	mu         sync.Mutex
	rows       map[Key]*Row
	version    uint32
	iterations map[iterationKey]*Iteration // nil for an iteration that is being planned
}

// Row is the book's entry for a shape.
type Row struct {
	Best     *Agreed // nil: there is none yet
	Interim  *Agreed // serves until then; nil: none
	Hopeless bool    // no planner has a plan
	Packets  bool    // the call uses packet planes: see [Site.OnPackets]
}

// OpenBook returns an empty book. Its plans are added to known, so that ranks can ask for them.
func OpenBook(site *Site, known *Known, out *log.Logger) (*Book, error) {
	b := &Book{
		site: site, known: known, log: out, widen: make(chan struct{}, 1), rows: map[Key]*Row{},
		demands: demands{plans: map[demandKey]*plannedDemand{}},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if dir := site.Cfg.Plan.Dir; dir != "" {
		var err error
		if b.store, err = cache.Open(dir); err != nil {
			return nil, fmt.Errorf("shim: environment variable LIGHTPATH_PLAN_DIR: %w", err)
		}
	}
	Retain()
	return b, nil
}

// Close ends planning in the background. The caller closes a book once.
func (b *Book) Close() {
	b.cancel()
	Release()
}

// Store returns the cache of plans, nil if there is none.
func (b *Book) Store() *cache.Cache { return b.store }

// Version counts changes of the table.
func (b *Book) Version() uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// Plannings returns how many plans the book has made.
func (b *Book) Plannings() int { return int(b.made.Load()) }

// Row returns the entry of a shape on some planes. For a new shape it begins to plan, and waits for the plan if
// LIGHTPATH_PLAN_WAIT is set. maps are the planes' present maps if plans begin there, else nil. Only a call that names
// its plan can get an error.
func (b *Book) Row(s calls.Shape, use planeset.Set, maps []circuit.Permutation) (Row, error) {
	key := Key{Shape: ShapeOf(s), Planes: use.Len(), Maps: standing(maps)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.rows[key]; r != nil {
		return *r, nil
	}
	job, err := b.job(key, maps)
	if key.Shape.Request.Plan.Digits > 0 {
		if err != nil {
			return Row{}, err
		}
		return b.named(job)
	}
	if len(b.rows) >= maxRows {
		clear(b.rows) // families and the cache keep the plans
	}
	r := &Row{}
	b.rows[key] = r
	if err != nil {
		b.adopt(Solution{Key: key, Err: err})
		return *r, nil
	}
	if r.Packets = b.site.OnPackets(key.Shape, job.Problem); r.Packets {
		b.log.Info(log.Tuning, "%v runs on packet planes, which are faster", &key.Shape)
		return *r, nil
	}
	if known, ok := job.known(); ok {
		b.adopt(known)
		return *r, nil
	}
	if b.site.Cfg.Plan.Wait {
		b.mu.Unlock()
		result := job.Run(b.ctx)
		b.mu.Lock()
		b.adopt(result)
		if result.Fresh {
			go b.widenFrom(job)
		}
		return *r, nil
	}
	if r.Interim, err = b.site.Interim(job); err == nil {
		b.known.Remember(r.Interim)
	}
	go b.plan(job)
	return *r, nil
}

// plan runs a job in the background.
func (b *Book) plan(job *Job) {
	result := job.Run(b.ctx)
	if b.ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	b.adopt(result)
	b.mu.Unlock()
	if result.Fresh {
		b.widenFrom(job)
	}
}

// standing hashes maps; 0 for none.
func standing(maps []circuit.Permutation) (h uint64) {
	for _, m := range maps {
		h = h*0x9e3779b97f4a7c15 + m.Digest()
	}
	return h
}

// job returns the job of a shape, in its family of calls. The caller holds mu.
func (b *Book) job(key Key, maps []circuit.Permutation) (*Job, error) {
	f, err := b.site.Family(key.Shape, key.Planes, maps)
	if err != nil {
		return nil, err
	}
	j, err := f.Share(b.site.Cfg.Plan.Dir).Job(key)
	if err == nil {
		j.Store, j.Log, j.made, j.delay = b.store, b.log, &b.made, b.site.Cfg.Fault.PlanDelay
	}
	return j, err
}

// widenFrom lets a plan serve more sizes, one family at a time. It skips plans that begin at the present circuits,
// because they hardly recur.
func (b *Book) widenFrom(j *Job) {
	if b.site.Cfg.Plan.Current {
		return
	}
	select {
	case b.widen <- struct{}{}:
		j.widen(b.ctx)
		<-b.widen
	case <-b.ctx.Done():
	}
}

// adopt puts a finished plan, or its failure, in force from the next ticket on. The caller holds mu.
func (b *Book) adopt(s Solution) {
	r := b.rows[s.Key]
	if r == nil {
		return // forgotten meanwhile
	}
	b.version++
	switch {
	case s.Err == nil:
		r.Best = s.Plan
		b.known.Remember(s.Plan)
		p := s.Plan.Plan
		b.log.Info(log.Tuning, "plan table %d: %v: planner %s, predicted %.1f us, lower bound %.1f us, digest %.12s",
			b.version, &s.Key.Shape, p.Planner, p.CCTUS, p.LowerBoundUS, p.Digest)
	case r.Interim != nil && !errors.Is(s.Err, planner.ErrInfeasible):
		b.log.Warn("%v keeps its interim plan: %v", &s.Key.Shape, s.Err)
	default:
		r.Hopeless, r.Interim = true, nil
		b.hopeless.Do(func() {
			b.log.Notice("%v runs on packet planes, since planner %s has no plan for it: %v (LIGHTPATH_PLANNER=auto may "+
				"have one; "+
				"NCCL_DEBUG_SUBSYS=TUNING lists all such calls)", &s.Key.Shape, b.site.Cfg.Plan.Planner, s.Err)
		})
		b.log.Info(log.Tuning, "plan table %d: %v runs on packet planes: %v", b.version, &s.Key.Shape, s.Err)
	}
}

// named returns the row of a call that names its plan: a plan that a ticket has named, the interim plan, or any
// planner's plan in the cache for this call. The caller holds mu.
func (b *Book) named(job *Job) (Row, error) {
	var known []string
	try := func(plan *plans.Plan) *Agreed {
		p, err := job.Verified(plan)
		if err != nil {
			return nil
		}
		known = append(known, fmt.Sprintf("%.12s (%s)", plan.Digest, plan.Planner))
		if !job.Key.Shape.Request.Plan.Matches(plan.Digest) {
			return nil
		}
		return p
	}
	candidates := b.known.Plans()
	if interim, err := b.site.Interim(job); err == nil {
		candidates = slices.Insert(candidates, 0, interim.Plan)
	}
	for _, plan := range append(candidates, job.stored(b.store)...) {
		if p := try(plan); p != nil {
			b.known.Remember(p)
			b.rows[job.Key] = &Row{Best: p}
			return Row{Best: p}, nil
		}
	}
	return Row{}, fmt.Errorf("shim: %v: no such plan for this call on %d planes; known: %s: %w",
		&job.Key.Shape, job.Key.Planes, strings.Join(known, ", "), errdefs.ErrInvalidUsage)
}

// Encoded returns a plan that a ticket has named, for a rank that lacks it.
func (b *Book) Encoded(id ID) ([]byte, error) {
	p := b.lookup(id)
	if p == nil {
		return nil, fmt.Errorf("shim: no ticket has named plan %x: %w", id[:6], errdefs.ErrInternal)
	}
	return plans.EncodeCompactPlan(p.Plan)
}

// lookup returns the plan that a ticket has named, nil if there is none. Tickets name plans of rows and iterations,
// which known may have dropped since.
func (b *Book) lookup(id ID) *Agreed {
	if p := b.known.Lookup(id); p != nil {
		return p
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var kept []*Agreed
	for _, r := range b.rows {
		kept = append(kept, r.Best, r.Interim)
	}
	for _, i := range b.iterations {
		if i != nil {
			kept = append(kept, i.Plans...)
		}
	}
	at := slices.IndexFunc(kept, func(p *Agreed) bool { return p != nil && p.ID == id })
	if at < 0 {
		return nil
	}
	return kept[at]
}
