package delta

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"lightpath/plans/delta/dag"
)

// Options of a search.
type Options struct {
	Sharing Sharing
	Seed    uint64
	Workers int // that judge side by side; 0: one per core. The result does not depend on it.
	stable  int // generations without a better topology after which the search ends; 0: patience
}

// The shape of the genetic search.
const (
	population  = 32
	elites      = 4
	tournament  = 3
	maxTries    = 8   // draws of a child that has not been judged yet
	pCritical   = 0.6 // part of the mutations that help a link of the critical path
	pFill       = 0.8 // part of the children whose free ports are given away
	maxMoves    = 3   // mutations of a child, at most
	generations = 5000
	patience    = 60 // generations without a better topology
)

// Found is the result of a search.
type Found struct {
	*Plan
	Bounds      []int // by link, most circuits that can be of use
	Evaluations int   // topologies judged
}

// Fast searches for the topology with the shortest iteration, and among those with the fewest ports: DELTA-Fast.
// When the context ends, Fast returns the best topology so far.
func (p *Planner) Fast(ctx context.Context, o Options) (*Found, error) {
	if _, err := ParseSharing(string(o.Sharing)); err != nil {
		return nil, fmt.Errorf("sharing: %w", err)
	}
	s := &search{
		p: p, rng: rand.New(rand.NewPCG(o.Seed, 0)), judges: p.judges(o.Workers, o.Sharing), known: make(map[string]bool),
	}
	seeds := s.seeds()
	s.bounds = bounds(ctx, p.red.Graph, s.limit)
	for _, c := range seeds {
		s.repair(c)
	}
	s.generation(ctx, seeds)
	for stable := 0; stable < cmp.Or(o.stable, patience) && s.generations < generations && ctx.Err() == nil; stable++ {
		if s.optimal() {
			break
		}
		best := s.pool[0].makespan
		s.generation(ctx, s.breed())
		if s.faster(best) {
			stable = -1
		}
	}
	s.descend(ctx)
	plan := p.polish(ctx, s.pool[0].c, o.Sharing)
	return &Found{Plan: s.minimizePorts(ctx, plan), Bounds: s.bounds, Evaluations: s.evaluations}, nil
}

// optimal reports that no topology is faster than the best so far.
func (s *search) optimal() bool { return s.pool[0].makespan <= s.p.lower*(1+equalTimes) }

// faster reports that the best topology takes less time than before.
func (s *search) faster(before float64) bool { return s.pool[0].makespan < before*(1-equalTimes) }

// search is the state of a search.
type search struct {
	p      *Planner
	rng    *rand.Rand
	judges []*judge
	bounds []int
	limit  float64 // the makespan of a topology that exists

	pool  []individual // the best first
	known map[string]bool

	evaluations, generations int
}

type individual struct {
	c dag.Circuits
	score
}

// seeds returns the baselines, and sets the limit to the best makespan among them.
func (s *search) seeds() []dag.Circuits {
	var list []dag.Circuits
	runner := s.p.net.NewRunner()
	for k, name := range Baselines() {
		c, _ := s.p.Baseline(name) // the name exists
		list = append(list, c)
		if m := runner.Fair(c); k == 0 || m < s.limit {
			s.limit = m
		}
	}
	return list
}

// generation judges new topologies and keeps the best.
func (s *search) generation(ctx context.Context, list []dag.Circuits) {
	var fresh []dag.Circuits
	for _, c := range list {
		if key := circuitsKey(c); !s.known[key] {
			s.known[key] = true
			fresh = append(fresh, c)
		}
	}
	s.generations++
	s.evaluations += len(fresh)
	for k, sc := range s.p.evaluateAll(ctx, s.judges, fresh) {
		s.pool = append(s.pool, individual{fresh[k], sc})
	}
	slices.SortStableFunc(s.pool, func(a, b individual) int {
		switch {
		case a.better(&b.score):
			return -1
		case b.better(&a.score):
			return 1
		}
		return 0
	})
	s.pool = s.pool[:min(len(s.pool), population)]
}

func circuitsKey(c dag.Circuits) string {
	b := make([]byte, 0, 2*len(c))
	for _, n := range c {
		b = append(b, byte(n), byte(n>>8), byte(n>>16))
	}
	return string(b)
}

// breed draws children of the pool that have not been judged.
func (s *search) breed() []dag.Circuits {
	var list []dag.Circuits
	for range population - elites {
		for range maxTries {
			c := s.child()
			if !s.known[circuitsKey(c)] {
				list = append(list, c)
				break
			}
		}
	}
	return list
}

// child crosses two parents, mutates, and repairs.
func (s *search) child() dag.Circuits {
	a, b := s.pick(), s.pick()
	c := slices.Clone(a.c)
	for l := range c {
		if s.rng.IntN(2) == 0 {
			c[l] = b.c[l]
		}
	}
	for range 1 + s.rng.IntN(maxMoves) {
		s.mutate(c, a.critical)
	}
	s.repair(c)
	if s.rng.Float64() < pFill {
		s.fill(c)
	}
	return c
}

// pick is a tournament.
func (s *search) pick() *individual {
	best := s.rng.IntN(len(s.pool))
	for range tournament - 1 {
		best = min(best, s.rng.IntN(len(s.pool)))
	}
	return &s.pool[best]
}

// mutate changes one link: more for one that delays the critical path, or any by a few.
func (s *search) mutate(c dag.Circuits, critical []int32) {
	if len(c) == 0 {
		return
	}
	if len(critical) > 0 && s.rng.Float64() < pCritical {
		c[critical[s.rng.IntN(len(critical))]] += 1 + s.rng.IntN(2)
		return
	}
	c[s.rng.IntN(len(c))] += s.rng.IntN(5) - 2
}

// repair makes c a topology (Alg. 6): within 1 and the bounds, then with fewer circuits on random links
// of pods that have too many. It always can: a valid graph has ports for one circuit per
// link.
func (s *search) repair(c dag.Circuits) {
	for l := range c {
		c[l] = max(1, min(c[l], s.bounds[l]))
	}
	g := s.p.red.Graph
	a := allocated(g, c)
	for pod := range g.Pods {
		if g.Pods[pod].Image {
			continue
		}
		for a.free[pod] < 0 {
			l := s.anyLink(func(l int) bool {
				k := &g.Links[l]
				return c[l] > 1 && (k.Pods[0] == pod || k.Pods[1] == pod)
			})
			a.add(l, -1)
		}
	}
}

// fill gives free ports to random links.
func (s *search) fill(c dag.Circuits) {
	a := allocated(s.p.red.Graph, c)
	for {
		l := s.anyLink(func(l int) bool { return c[l] < s.bounds[l] && a.room(l) })
		if l < 0 {
			return
		}
		a.add(l, 1)
	}
}

// anyLink draws one of the links that ok accepts; -1 if there is none.
func (s *search) anyLink(ok func(l int) bool) int {
	found, n := -1, 0
	for l := range s.p.red.Links {
		if ok(l) {
			if n++; s.rng.IntN(n) == 0 {
				found = l
			}
		}
	}
	return found
}

// descend looks at all neighbours of the best topology until none is better: one circuit more or less,
// or moved from one link to another.
func (s *search) descend(ctx context.Context) {
	for ctx.Err() == nil {
		best := s.pool[0].makespan
		if s.optimal() {
			return
		}
		s.generation(ctx, s.neighbours(s.pool[0].c))
		if !s.faster(best) {
			return
		}
	}
}

// maxNeighbours bounds one step of the descent.
const maxNeighbours = 1024

func (s *search) neighbours(c dag.Circuits) []dag.Circuits {
	var list []dag.Circuits
	g := s.p.red.Graph
	try := func(changes ...[2]int) {
		n := slices.Clone(c)
		for _, ch := range changes {
			n[ch[0]] += ch[1]
			if n[ch[0]] < 1 || n[ch[0]] > s.bounds[ch[0]] {
				return
			}
		}
		if g.CheckCircuits(n) == nil {
			list = append(list, n)
		}
	}
	for l := range c {
		try([2]int{l, 1})
		try([2]int{l, -1})
		for m := range c {
			if m != l && len(list) < maxNeighbours {
				try([2]int{l, 1}, [2]int{m, -1})
				try([2]int{l, 2}, [2]int{m, -1})
				try([2]int{l, 1}, [2]int{m, -2})
			}
		}
	}
	return list
}
