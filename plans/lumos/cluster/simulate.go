package cluster

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"lightpath/plans/lumos/place"
)

// Config is a simulation.
type Config struct {
	Fabric Fabric
	Jobs   []Job // by arrival
	// Iterations is the number of iterations of a job. Real jobs have far more: then jobs compete more often, for a
	// shorter time.
	Iterations int
	Seed       uint64 // of the choices of paths
	// Naive leaves the order of ranks as servers were found.
	Naive bool
	// Progress, unless nil, is called now and then with the jobs that have ended.
	Progress func(ended int)
}

// Outcome is the result of a job. Times are in seconds since the start of the trace.
type Outcome struct {
	Start, Finish float64
	Pods          int // that its servers are in
	// Communication is the time in phases of communication. Ideal is that time with ports of the reference
	// rate and no other job. Communication / Ideal is the contention level (Eq. 10).
	Communication, Ideal float64
	// Carried is what the network has carried for a GPU of the job, in seconds at the reference rate.
	Carried float64
}

// Result is the result of a simulation.
type Result struct {
	Fabric   Fabric
	Outcomes []Outcome // by job
	Rewiring Rewiring  // of an optical core
	Events   int
}

const maxIterations = 1 << 20

// Simulate runs all jobs, first come first served, to the end of the last one. A job starts when the
// GPUs that it needs are idle, and no job overtakes another.
//
// It always ends. An event that is not void begins or ends a phase, starts a job or ends a dark time. It makes at most
// one event of each job void. A phase ends at the time predicted for its last rate, even if rounding leaves some work.
func Simulate(ctx context.Context, c Config) (*Result, error) {
	if err := check(&c); err != nil {
		return nil, err
	}
	n, err := newNetwork(&c.Fabric, c.Seed)
	if err != nil {
		return nil, err
	}
	return simulate(ctx, &c, n)
}

func simulate(ctx context.Context, c *Config, fabric network) (*Result, error) {
	s := newSimulation(c, fabric)
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e, ok := s.events.next()
		if !ok {
			break
		}
		s.now = e.at
		s.result.Events++
		if err := s.handle(e); err != nil {
			return nil, err
		}
		if !s.events.at(s.now) { // rates change once for all that happens at one time
			s.network.Update(s.rateChanged)
		}
	}
	if s.ended != len(c.Jobs) {
		return nil, fmt.Errorf("cluster: %d of %d jobs have not ended", len(c.Jobs)-s.ended, len(c.Jobs))
	}
	if o, ok := s.fabric.(*optical); ok {
		s.result.Rewiring = o.stats
	}
	return s.result, nil
}

func check(c *Config) error {
	if err := c.Fabric.Check(); err != nil {
		return err
	}
	if len(c.Jobs) == 0 || len(c.Jobs) > maxJobs {
		return fmt.Errorf("%w: %d jobs; want 1 to %d", ErrInput, len(c.Jobs), maxJobs)
	}
	if c.Iterations < 1 || c.Iterations > maxIterations {
		return fmt.Errorf("%w: %d iterations; want 1 to %d", ErrInput, c.Iterations, maxIterations)
	}
	empty := place.NewPool(c.Fabric.Shape())
	last := math.Inf(-1)
	for i := range c.Jobs {
		j := &c.Jobs[i]
		if err := j.Check(c.Fabric.ServerGPUs); err != nil {
			return err
		}
		if j.Arrival < last {
			return fmt.Errorf("%w: job %s arrives before the one in front of it", ErrInput, j.Name)
		}
		last = j.Arrival
		if !empty.Fits(j.Grid.Servers(), j.Grid.EP) {
			return fmt.Errorf("%w: job %s: %d GPUs, in groups of %d servers, do not fit into %s with %d GPUs", ErrInput, j.Name,
				j.GPUs, j.Grid.EP, c.Fabric.Name, c.Fabric.GPUs)
		}
	}
	return nil
}

// handle processes an event.
func (s *simulation) handle(e event) error {
	if e.kind == arrives {
		s.waiting = append(s.waiting, e.job)
		return s.startWaiting()
	}
	r := s.jobs[e.job]
	if r == nil {
		return nil // an event of a job that has ended
	}
	switch e.kind {
	case computed:
		s.communicate(r)
	case lights:
		if r.flying && r.darkUntil <= s.now {
			s.network.SetLimit(r.group, r.paths[r.step().phase].limit)
		}
	case carried:
		if e.version != r.version {
			return nil
		}
		s.land(r)
		s.out(e.job).Carried += r.remaining // rounding: the phase has ended
		s.out(e.job).Communication += s.now - r.began
		r.next()
		return s.advance(e.job, r)
	}
	return nil
}

// startWaiting starts the jobs at the head of the queue as long as they fit.
func (s *simulation) startWaiting() error {
	for len(s.waiting) > 0 {
		job := s.waiting[0]
		j := &s.config.Jobs[job]
		var a place.Allocation
		var ok bool
		if j.GPUs < s.shape.ServerGPUs {
			a, ok = s.pool.Part(j.GPUs)
		} else {
			a, ok = s.pool.Whole(j.Grid.Servers(), j.Grid.EP)
		}
		if !ok {
			return nil
		}
		s.waiting = s.waiting[1:]
		if err := s.start(job, j, a); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	return nil
}

func (s *simulation) start(job int, j *Job, a place.Allocation) error {
	out := s.out(job)
	out.Start, out.Pods = s.now, s.podsOf(a)
	arranged := place.Naive(j.Grid, a.Servers)
	if !s.config.Naive {
		var err error
		if arranged, err = place.Arrange(s.shape, j.Grid, a.Servers, j.Shares); err != nil {
			return err
		}
	}
	admitted, err := s.fabric.admit(job, arranged, j.Shares)
	if err != nil {
		return err
	}
	r := &running{job: job, allocation: a, paths: admitted.paths, left: s.config.Iterations,
		steps: stepsOf(j, admitted.paths, s.config.Iterations)}
	s.jobs[job] = r
	for _, moved := range slices.Sorted(maps.Keys(admitted.moved)) {
		s.reroute(s.jobs[moved], admitted.moved[moved])
	}
	for _, dark := range admitted.dark {
		s.darken(s.jobs[dark])
	}
	return s.advance(job, r)
}

func (s *simulation) podsOf(a place.Allocation) int {
	pods, last := 0, -1
	for _, server := range a.Servers {
		if p := s.shape.Of(place.Pod, server); p != last {
			pods, last = pods+1, p
		}
	}
	return pods
}

// advance goes on with a job at the beginning of a step, or ends it.
func (s *simulation) advance(job int, r *running) error {
	if r.left > 0 {
		s.events.add(event{at: s.now + r.step().wait, kind: computed, job: job})
		return nil
	}
	s.out(job).Finish = s.now
	s.fabric.release(job)
	s.pool.Release(r.allocation)
	s.jobs[job] = nil
	s.ended++
	if s.config.Progress != nil {
		s.config.Progress(s.ended)
	}
	return s.startWaiting()
}
