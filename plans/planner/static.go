package planner

import (
	"context"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// staticEvaluations bounds the combinations of circuits that static tries one by one;
// beyond that it chooses greedily and then improves plane by plane.
const staticEvaluations = 20000

// staticMeasures bounds the flows times candidates that static measures.
const staticMeasures = 3e7

// solveStatic never reconfigures. On free planes it chooses the best circuits that it finds. A plane holds a
// pattern of a step or a ring, or all planes together form a torus, Kautz graph, expander or circulant. These
// circuits serve each step as well as they can. Without forwarding, a plane serves a pattern only if it has all
// circuits of the pattern.
func solveStatic(ctx context.Context, m *model, o Options) (*plans.Plan, error) {
	m = m.unsplit()
	if err := m.tooManyPeers(); err != nil {
		return nil, err
	}
	states, err := m.staticStates(ctx)
	if err != nil {
		return nil, err
	}
	s := newServer(m, o)
	s.partial = m.p.Forwarding
	pieces, _ := m.pieces(nil)
	t := newTable(ctx, o, s, pieces, states)
	at := t.bestState()
	line := newTimeline(m, states[at])
	for i := range t.pieces {
		pc := &t.pieces[i]
		if math.IsInf(t.us[pc.kind][at], 1) {
			return nil, m.unserved(&pc.step, states[at])
		}
		t.write(line, pc, at)
	}
	return line.finish("static"), nil
}

// tooManyPeers returns an error if a rank sends to more ranks than it has planes and the fabric does not forward. Then
// fixed circuits cannot serve the problem, and a search for them is useless. It looks at a few ranks, and at steps
// that are patterns.
func (m *model) tooManyPeers() error {
	if m.p.Forwarding || m.p.Initial != nil || m.p.Final.Kind == plans.FinalGiven { // there is no choice
		return nil
	}
	for _, r := range []int{0, m.p.Ranks / 3, m.p.Ranks - 1} {
		var peers []int
		for i := range m.asked {
			c := m.asked[i].pattern
			if c == nil || c[r] == circuit.Dark || slices.Contains(peers, c[r]) {
				continue
			}
			if peers = append(peers, c[r]); len(peers) > m.p.Planes {
				return infeasible(m.asked[i].index, "rank %d has no circuit to rank %d on any plane, and the fabric does not "+
					"forward", r, c[r])
			}
		}
	}
	return nil
}

// staticStates returns the settings that the whole plan may run on, at least one.
func (m *model) staticStates(ctx context.Context) ([][]circuit.Permutation, error) {
	if maps, err := m.fixedMaps(); maps != nil || err != nil {
		return [][]circuit.Permutation{maps}, err
	}
	var set stateSet
	set.add(m.chooseStatic(ctx))
	for _, maps := range m.graphs() {
		set.add(maps)
	}
	return set.all, nil
}

// fixedMaps returns the circuits of a plan that never switches if the problem leaves no choice, else nil.
func (m *model) fixedMaps() ([]circuit.Permutation, error) {
	final := m.p.Final
	if m.p.Initial == nil && final.Kind == plans.FinalGiven {
		return final.Maps, nil
	}
	if m.p.Initial != nil && final.Kind == plans.FinalGiven {
		for j := range m.p.Initial {
			if !m.p.Initial[j].Equal(final.Maps[j]) {
				return nil, finalDiffers(j)
			}
		}
	}
	return m.p.Initial, nil
}

// bestState returns the state with the least sum of all pieces' times. It refines only times that affect the choice.
func (t *table) bestState() int {
	for looks := finalLooks; ; {
		at, promised := t.leastState(t.floor)
		if promised.unserved > 0 && t.known < len(t.states) && !t.stop() {
			t.measureUpTo(math.MaxInt) // rather late than wrong
			continue
		}
		open := false
		for k := range t.kinds {
			open = open || t.isOpen(k, at)
		}
		if !open {
			return at
		}
		if !t.spent() {
			t.refineSome(at)
			continue
		}
		known, s := t.leastState(t.us)
		if looks--; s.unserved == 0 && (looks < 0 || t.stop()) {
			return known
		}
		for k := range t.kinds {
			if s.unserved == 0 && t.stop() {
				break
			}
			t.refine(k, at)
		}
	}
}

// refineSome makes the next search for a quarter of the open times of a state, those with the fewest searches, so that
// a state with too low floors is dropped early.
func (t *table) refineSome(at int) {
	open, least := 0, closed
	for k := range t.kinds {
		if t.isOpen(k, at) {
			open++
			least = min(least, t.tier[k][at])
		}
	}
	left := (open + 3) / 4
	for k := range t.kinds {
		if left > 0 && !t.spent() && t.isOpen(k, at) && t.tier[k][at] == least {
			t.refine(k, at)
			left--
		}
	}
}

// leastState returns the state with the best sum of the given times.
func (t *table) leastState(times [][]float64) (at int, least score) {
	least.unserved = len(t.pieces) + 1
	for c := range t.states {
		var s score
		for i := range t.pieces {
			if us := times[t.pieces[i].kind][c]; math.IsInf(us, 1) {
				s.unserved++
			} else {
				s.us += us
			}
		}
		if s.better(least) {
			at, least = c, s
		}
	}
	return at, least
}

// staticChoice is the search for the best set of circuits: one candidate per unit.
type staticChoice struct {
	ctx   context.Context
	m     *model
	work  int // lanes that may still be looked at
	maps  [][]circuit.Permutation
	lanes [][][]lane // [candidate][distinct step]: lanes of a unit with these circuits
	holds [][][]int  // [candidate][distinct step][matching]: its planes that hold it
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

// chooseStatic returns the best circuits if each plane chooses its own.
func (m *model) chooseStatic(ctx context.Context) []circuit.Permutation {
	ctx, cancel := within(ctx, 0.4) // keep time to measure the choice
	defer cancel()
	c := newStaticChoice(ctx, m)
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

// staticWork bounds the lanes that a choice may examine.
const staticWork = 1 << 27

// over reports whether the choice must end now.
func (c *staticChoice) over() bool { return c.work < 0 || c.ctx.Err() != nil }

func newStaticChoice(ctx context.Context, m *model) *staticChoice {
	c := &staticChoice{ctx: ctx, work: staticWork, m: m, steps: m.distinctSteps(), out: make([]float64, m.p.Planes)}
	flowsOnce := 1
	for _, w := range c.steps {
		flowsOnce += m.flowCount(w.st)
	}
	c.maps = m.candidates(min(maxCandidates, 16+int(staticMeasures)/(flowsOnce*m.units)))
	c.lanes, c.holds = make([][][]lane, len(c.maps)), make([][][]int, len(c.maps))
	loaders := make([][]plans.Loader, len(c.maps))
	for q, maps := range c.maps {
		loaders[q] = bind(maps)
		c.lanes[q], c.holds[q] = make([][]lane, len(c.steps)), make([][]int, len(c.steps))
	}
	for i, w := range c.steps {
		if c.over() {
			break // a pattern without measurement counts as not served
		}
		var flows [][2]int // of one step: those of all may be more than there is memory for
		if m.p.Forwarding {
			flows = m.flowsOf(w.st)
		}
		var matchings []circuit.Permutation
		if w.st.pattern == nil {
			matchings = m.matchingsOf(w.st)
		}
		for q, maps := range c.maps {
			c.lanes[q][i] = m.lanesOf(m.routes(loaders[q], maps, w.st, flows), nil)
			for _, pattern := range matchings {
				c.holds[q][i] = append(c.holds[q][i], servers(maps, pattern))
			}
		}
	}
	return c
}

// distinctSteps merges equal steps: order does not matter here.
func (m *model) distinctSteps() []weighted {
	var kinds stepKinds
	var at []int // kind -> index into out
	var out []weighted
	for i := range m.steps {
		st := &m.steps[i]
		if st.pattern != nil {
			kind, fresh := kinds.add(st)
			if !fresh {
				out[at[kind]].times++
				continue
			}
			at = append(at, len(out))
		}
		out = append(out, weighted{st, 1})
	}
	return out
}

// evaluate scores the units set to the candidates in pick.
func (c *staticChoice) evaluate(pick []int) score {
	var s score
	for i, w := range c.steps {
		us := math.Inf(1)
		buf := c.buf[:0]
		for _, q := range pick {
			buf = append(buf, c.lanes[q][i]...)
		}
		c.buf = buf
		c.work -= len(buf) + len(pick)
		if len(buf) > 0 {
			us = split(buf, w.st.bytes, c.out)
		}
		missing := 1
		if w.st.pattern == nil {
			var direct float64
			direct, missing = c.direct(pick, i)
			us = math.Min(us, direct)
		}
		if math.IsInf(us, 1) {
			s.unserved += missing
		} else {
			s.us += w.times * us
		}
	}
	return s
}

// direct returns the time of a split step if planes hold each of its matchings, or else how many matchings no plane
// holds.
func (c *staticChoice) direct(pick []int, i int) (us float64, missing int) {
	least := c.m.p.Planes
	for matching := range c.holds[0][i] {
		planes := 0
		for _, q := range pick {
			planes += c.holds[q][i][matching]
		}
		if least = min(least, planes); planes == 0 {
			missing++
		}
	}
	if missing > 0 || len(c.holds[0][i]) == 0 {
		return math.Inf(1), max(1, missing)
	}
	return c.m.directUS + c.m.usPerByte*c.steps[i].st.bytes/float64(least), 0
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
		if i < 0 || c.over() {
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

// greedy chooses the best candidate for one unit after another. Without forwarding and with patterns that exclude each
// other this is optimal: a step's time is convex in the number of its planes.
func (c *staticChoice) greedy() []int {
	var pick []int
	for len(pick) < c.m.units {
		best, bestScore := -1, score{}
		for q := range c.maps {
			if best >= 0 && c.over() {
				break
			}
			if s := c.evaluate(append(pick, q)); best < 0 || s.better(bestScore) {
				best, bestScore = q, s
			}
		}
		pick = append(pick, best)
	}
	return pick
}

// exchange replaces single choices while this improves the score.
func (c *staticChoice) exchange(pick []int) []int {
	best := c.evaluate(pick)
	for round, improved := 0, true; improved && round < 8; round++ {
		improved = false
		for u := range pick {
			keep := pick[u]
			for q := range c.maps {
				if c.over() {
					break
				}
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
