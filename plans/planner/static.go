package planner

import (
	"context"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// staticEvaluations bounds the combinations of circuits that static tries one by one;
// beyond that it chooses greedily and then improves plane by plane.
const staticEvaluations = 20000

// staticMeasures bounds the steps times candidates that static looks at.
const staticMeasures = 400000

// solveStatic never reconfigures. On free planes it chooses the best circuits it finds;
// each step is divided optimally over the planes that can serve it.
func solveStatic(_ context.Context, m *model, _ Options) (*plans.Plan, error) {
	maps, err := m.staticMaps()
	if err != nil {
		return nil, err
	}
	t := newTimeline(m, maps)
	loaders := bind(maps)
	for i := range m.steps {
		if !t.serve(&m.steps[i], loaders) {
			return nil, m.unserved(&m.steps[i], maps)
		}
	}
	return t.finish("static"), nil
}

// staticMaps returns the circuits that the whole plan runs on.
func (m *model) staticMaps() ([]circuit.Permutation, error) {
	final := m.p.Final
	switch {
	case m.p.Initial == nil && final.Kind == plans.FinalGiven:
		return final.Maps, nil
	case m.p.Initial == nil:
		return m.chooseStatic(), nil
	case final.Kind == plans.FinalGiven:
		for j := range m.p.Initial {
			if !m.p.Initial[j].Equal(final.Maps[j]) {
				return nil, finalDiffers(j)
			}
		}
	}
	return m.p.Initial, nil
}

// staticChoice is the search for the best set of circuits: one candidate per unit.
type staticChoice struct {
	m     *model
	maps  [][]circuit.Permutation
	lanes [][][]lane // [candidate][distinct step]: what a unit set to it offers
	steps []weighted
	buf   []lane
	out   []float64
}

// weighted is a step that occurs times times.
type weighted struct {
	st    *step
	times float64
}

// score orders sets of circuits: first by steps that cannot be served, then by time.
type score struct {
	unserved int
	us       float64
}

func (a score) better(b score) bool {
	if a.unserved != b.unserved {
		return a.unserved < b.unserved
	}
	return a.us < b.us-tolerance(b.us)
}

func (m *model) chooseStatic() []circuit.Permutation {
	c := newStaticChoice(m)
	if len(c.maps) == 0 {
		return m.darkMaps()
	}
	var pick []int
	if multisets(len(c.maps), m.units, staticEvaluations) {
		pick = c.exhaustive()
	} else {
		pick = c.exchange(c.greedy())
	}
	var maps []circuit.Permutation
	for _, q := range pick {
		maps = append(maps, c.maps[q]...)
	}
	return maps
}

func newStaticChoice(m *model) *staticChoice {
	c := &staticChoice{m: m, steps: m.distinctSteps(), out: make([]float64, m.p.Planes)}
	c.maps = m.candidates(min(maxCandidates, 16+staticMeasures/(1+len(c.steps)*m.units)))
	c.lanes = make([][][]lane, len(c.maps))
	flows := make([][][2]int, len(c.steps))
	if m.p.Forwarding {
		for i, w := range c.steps {
			flows[i] = m.flowsOf(w.st)
		}
	}
	for q, maps := range c.maps {
		loaders := bind(maps)
		c.lanes[q] = make([][]lane, len(c.steps))
		for i, w := range c.steps {
			c.lanes[q][i] = m.lanesOf(m.routes(loaders, maps, w.st, flows[i]), nil)
		}
	}
	return c
}

// distinctSteps merges the steps that ask for the same: order does not matter here.
func (m *model) distinctSteps() []weighted {
	type key struct {
		digest uint64
		bytes  float64
	}
	seen := map[key][]int{}
	var out []weighted
next:
	for i := range m.steps {
		st := &m.steps[i]
		if st.pattern == nil {
			out = append(out, weighted{st, 1})
			continue
		}
		k := key{st.pattern.Digest(), st.bytes}
		for _, w := range seen[k] {
			if out[w].st.pattern.Equal(st.pattern) {
				out[w].times++
				continue next
			}
		}
		seen[k] = append(seen[k], len(out))
		out = append(out, weighted{st, 1})
	}
	return out
}

// evaluate scores the units set to the candidates in pick.
func (c *staticChoice) evaluate(pick []int) score {
	var s score
	for i, w := range c.steps {
		buf := c.buf[:0]
		for _, q := range pick {
			buf = append(buf, c.lanes[q][i]...)
		}
		c.buf = buf
		if len(buf) == 0 {
			s.unserved++
			continue
		}
		s.us += w.times * split(buf, w.st.bytes, c.out)
	}
	return s
}

// exhaustive tries every multiset of candidates.
func (c *staticChoice) exhaustive() []int {
	pick := make([]int, c.m.units)
	best := append([]int(nil), pick...)
	bestScore := c.evaluate(pick)
	for {
		i := len(pick) - 1
		for i >= 0 && pick[i] == len(c.maps)-1 {
			i--
		}
		if i < 0 {
			return best
		}
		next := pick[i] + 1
		for ; i < len(pick); i++ {
			pick[i] = next
		}
		if s := c.evaluate(pick); s.better(bestScore) {
			bestScore = s
			copy(best, pick)
		}
	}
}

// greedy sets one unit after another to what helps most. Without forwarding and with
// patterns that exclude each other this is optimal: a step's time is convex in the number
// of its planes.
func (c *staticChoice) greedy() []int {
	var pick []int
	for len(pick) < c.m.units {
		best, bestScore := -1, score{}
		for q := range c.maps {
			if s := c.evaluate(append(pick, q)); best < 0 || s.better(bestScore) {
				best, bestScore = q, s
			}
		}
		pick = append(pick, best)
	}
	return pick
}

// exchange replaces single choices while that helps.
func (c *staticChoice) exchange(pick []int) []int {
	best := c.evaluate(pick)
	for round, improved := 0, true; improved && round < 8; round++ {
		improved = false
		for u := range pick {
			keep := pick[u]
			for q := range c.maps {
				pick[u] = q
				if s := c.evaluate(pick); s.better(best) {
					best, keep, improved = s, q, true
				}
			}
			pick[u] = keep
		}
	}
	return pick
}

// multisets reports whether there are at most limit multisets of k out of n.
func multisets(n, k, limit int) bool {
	count := 1.0
	for i := 1; i <= k; i++ {
		count = count * float64(n+i-1) / float64(i)
	}
	return count <= float64(limit) && !math.IsInf(count, 0)
}
