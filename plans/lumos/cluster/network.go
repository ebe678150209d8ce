package cluster

import (
	"math/rand/v2"

	"lightpath/plans/internal/fairshare"
	"lightpath/plans/lumos/place"
)

// network is a fabric in a simulation: it routes the flows of running jobs.
type network interface {
	// capacities returns the capacities of the links, in units of the reference rate.
	capacities() []float64
	// admit routes the flows of a job that starts. It may change the paths of other jobs.
	admit(job int, a *place.Arrangement, shares place.Volume) (admission, error)
	release(job int)
}

// admission is the effect of a job's start on a network.
type admission struct {
	paths paths
	// moved are running jobs with new paths. dark are the jobs, the new one included, whose circuits are being moved.
	moved map[int]paths
	dark  []int
}

// paths are how the flows of each phase travel.
type paths [place.NumPhases]path

// path is the limits on the flows of a phase: the links that they share with others, none for flows inside leaves, and
// the rate of their ports, in units of the reference rate.
type path struct {
	uses  []fairshare.Use
	limit float64
}

func newNetwork(f *Fabric, seed uint64) (network, error) {
	switch f.Kind {
	case Clos:
		return newClos(f, seed), nil
	case Lumos:
		return newOptical(f, seed)
	}
	return ideal{f.rate()}, nil
}

// ideal has ports and no links.
type ideal struct{ rate float64 }

func (ideal) capacities() []float64 { return nil }
func (ideal) release(int)           {}
func (i ideal) admit(int, *place.Arrangement, place.Volume) (admission, error) {
	var a admission
	for phase := range a.paths {
		a.paths[phase].limit = i.rate
	}
	return a, nil
}

// probes is how many paths [Probe] compares.
const probes = 32

// router chooses among equal paths.
type router struct {
	tries  int
	random *rand.Rand
	// busy is, by link, the number of flows of all running jobs, each weighted by the share of time of its phase.
	busy []float64
	// own counts, by link, the flows of the phase that is being routed.
	own     []float64
	touched []int32
	jobs    map[int]duties
}

// duties are the loads that a job adds to busy.
type duties struct {
	paths  paths
	shares place.Volume
}

func newRouter(f *Fabric, links int, seed uint64) *router {
	r := &router{tries: probes, random: rand.New(rand.NewPCG(seed, 0x726f757465)), busy: make([]float64, links),
		own: make([]float64, links), jobs: map[int]duties{}}
	if f.Routing == ECMP {
		r.tries = 1
	}
	return r
}

// choose puts a flow on the best of the paths that candidate makes of random choices, all of one length, and
// returns its first link.
func (r *router) choose(share float64, candidate func(choice uint64, to []int32) []int32) (first int32) {
	var best, next [2 * maxTiers]int32
	var found []int32
	least := 0.0
	for range r.tries {
		path := candidate(r.random.Uint64(), next[:0])
		worst := 0.0
		for _, l := range path {
			worst = max(worst, r.own[l]+r.busy[l])
		}
		if found == nil || worst < least {
			found, least = append(best[:0], path...), worst
		}
	}
	for _, l := range found {
		r.put(l, share)
	}
	return found[0]
}

// put adds a flow to the phase that is being routed.
func (r *router) put(l int32, share float64) {
	if r.own[l] == 0 {
		r.touched = append(r.touched, l)
	}
	r.own[l] += share
}

// phase ends a phase and returns its uses.
func (r *router) phase() []fairshare.Use {
	if len(r.touched) == 0 {
		return nil
	}
	uses := make([]fairshare.Use, 0, len(r.touched))
	for _, l := range r.touched {
		uses = append(uses, fairshare.Use{Link: l, Flows: r.own[l]})
		r.own[l] = 0
	}
	r.touched = r.touched[:0]
	return uses
}

// settle adds the load of a job's paths, so that later jobs see it.
func (r *router) settle(job int, p paths, shares place.Volume) {
	r.jobs[job] = duties{p, shares}
	r.weigh(job, 1)
}

func (r *router) release(job int) {
	r.weigh(job, -1)
	delete(r.jobs, job)
}

func (r *router) weigh(job int, sign float64) {
	d := r.jobs[job]
	for phase, p := range d.paths {
		for _, u := range p.uses {
			r.busy[u.Link] += sign * u.Flows * d.shares[phase]
		}
	}
}
