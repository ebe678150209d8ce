package cluster

import (
	"math"

	"lightpath/internal/heap"
	"lightpath/plans/internal/fairshare"
	"lightpath/plans/lumos/place"
)

// simulation is the state of [Simulate].
type simulation struct {
	config  *Config
	shape   place.Shape
	pool    *place.Pool
	fabric  network
	network *fairshare.Network
	events  queue
	now     float64
	waiting []int      // jobs, in the order of their arrival
	jobs    []*running // by job, nil while it does not run
	flying  []*running // by group
	ended   int
	result  *Result
}

func newSimulation(c *Config, f network) *simulation {
	s := &simulation{
		config: c, shape: c.Fabric.Shape(), fabric: f, network: fairshare.New(f.capacities()),
		jobs: make([]*running, len(c.Jobs)), result: &Result{Fabric: c.Fabric, Outcomes: make([]Outcome, len(c.Jobs))},
	}
	s.pool = place.NewPool(s.shape)
	for i, j := range c.Jobs {
		s.events.add(event{at: j.Arrival, kind: arrives, job: i})
	}
	return s
}

func (s *simulation) out(job int) *Outcome { return &s.result.Outcomes[job] }

// running is the state of a running job.
type running struct {
	job        int
	allocation place.Allocation
	paths      paths
	steps      []step
	at         int // the step that it is in
	left       int // iterations, this one included

	// A phase on the network, while flying.
	flying      bool
	group       fairshare.Group
	began       float64
	remaining   float64 // of the work, as of since
	rate, since float64
	version     int // of the rate: a prediction of an older one is void

	darkUntil float64
}

// step is a time of computation, and the phase after it.
type step struct {
	wait  float64
	phase place.Phase
	work  float64 // seconds at the reference rate
	// alone: the phase shares no link. nothing: the iteration ends with computation.
	alone, nothing bool
}

// stepsOf returns an iteration: half of the computation, activations forward and tokens; the other half,
// their gradients backward, and the gradients of replicas.
func stepsOf(j *Job, p paths, iterations int) []step {
	one := j.Duration / float64(iterations)
	compute := one
	for _, share := range j.Shares {
		compute -= share * one
	}
	compute = max(0, compute)
	var steps []step
	wait := 0.0
	for phase := range place.NumPhases {
		if phase == place.Forward || phase == place.Backward {
			wait += compute / 2
		}
		if j.Shares[phase] > 0 {
			steps = append(steps, step{wait: wait, phase: phase, work: j.Shares[phase] * one, alone: len(p[phase].uses) == 0})
			wait = 0
		}
	}
	if wait > 0 || len(steps) == 0 {
		steps = append(steps, step{wait: wait, nothing: true})
	}
	return steps
}

func (r *running) step() *step { return &r.steps[r.at] }

func (r *running) next() {
	if r.at++; r.at == len(r.steps) {
		r.at = 0
		r.left--
	}
}

// communicate begins the phase of a step.
func (s *simulation) communicate(r *running) {
	st := r.step()
	r.began, r.since = s.now, s.now
	s.out(r.job).Ideal += st.work
	r.version++
	switch {
	case st.nothing:
		s.events.add(event{at: s.now, kind: carried, job: r.job, version: r.version})
	case st.alone:
		r.rate, r.remaining = r.paths[st.phase].limit, st.work
		s.events.add(event{at: s.now + st.work/r.rate, kind: carried, job: r.job, version: r.version})
	default:
		r.rate, r.remaining = 0, st.work
		s.fly(r)
	}
}

// fly puts the flows of a phase, or the rest of them, on the network.
func (s *simulation) fly(r *running) {
	p := &r.paths[r.step().phase]
	limit := p.limit
	if r.darkUntil > s.now {
		limit = 0
	}
	r.group = s.network.Add(limit, p.uses)
	for len(s.flying) <= int(r.group) {
		s.flying = append(s.flying, nil)
	}
	s.flying[r.group], r.flying = r, true
}

// land takes the flows of a phase off the network.
func (s *simulation) land(r *running) {
	s.settle(r)
	if r.flying {
		s.network.Remove(r.group)
		s.flying[r.group], r.flying = nil, false
	}
}

// settle counts the data carried since the rate was last set.
func (s *simulation) settle(r *running) {
	done := min(r.remaining, r.rate*(s.now-r.since))
	s.out(r.job).Carried += done
	r.remaining -= done
	r.since = s.now
}

func (s *simulation) rateChanged(g fairshare.Group, rate float64) {
	r := s.flying[g]
	s.settle(r)
	r.rate = rate
	r.version++
	if rate > 0 {
		s.events.add(event{at: s.now + r.remaining/rate, kind: carried, job: r.job, version: r.version})
	}
}

// reroute gives a running job new paths, also in the middle of a phase.
func (s *simulation) reroute(r *running, p paths) {
	if !r.flying {
		r.paths = p
		return
	}
	s.land(r)
	r.paths, r.rate = p, 0
	r.version++
	s.fly(r)
}

// darken stops the phases of a job, the current one and new ones, until circuits have been moved. A new phase
// that needs no link waits, too: its ranks wait for each other.
func (s *simulation) darken(r *running) {
	r.darkUntil = s.now + s.config.Fabric.DarkSeconds
	if r.flying {
		s.network.SetLimit(r.group, 0)
	}
	s.events.add(event{at: r.darkUntil, kind: lights, job: r.job})
}

// kind says what happens.
type kind int8

const (
	arrives  kind = iota
	computed      // a job's computation
	carried       // a phase
	lights        // circuits that were moved
)

type event struct {
	at      float64
	seq     int // of equal times, the first added comes first
	kind    kind
	job     int
	version int
}

// Before implements [heap.Ordered].
func (e event) Before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// queue holds events, the earliest first.
type queue struct {
	heap heap.Heap[event]
	seq  int
}

func (q *queue) add(e event) {
	if math.IsNaN(e.at) {
		panic("cluster: an event without a time")
	}
	e.seq = q.seq
	q.seq++
	q.heap.Push(e)
}

func (q *queue) next() (event, bool) {
	if len(q.heap) == 0 {
		return event{}, false
	}
	return q.heap.Pop(), true
}

// at reports whether the next event is at time t.
func (q *queue) at(t float64) bool { return len(q.heap) > 0 && q.heap[0].at == t }
