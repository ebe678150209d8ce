package baseline

import (
	"context"
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/offer"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/timing"
)

// staticEvaluations bounds the combinations of circuits that static tries one by one;
// beyond that it chooses greedily and then improves plane by plane.
const staticEvaluations = 20000

// staticMeasures bounds the flows times candidates that static measures.
const staticMeasures = 3e7

// Static never reconfigures. On free planes it chooses the best circuits that it finds. A plane holds a
// pattern of a step or a ring, or all planes together form a torus, Kautz graph, expander or circulant. These
// circuits serve each step as well as they can. Without forwarding, a plane serves a pattern only if it has all
// circuits of the pattern.
func Static(ctx context.Context, m *model.Model, o effort.Search) (*plans.Plan, error) {
	m = m.Unsplit()
	if err := tooManyPeers(m); err != nil {
		return nil, err
	}
	states, err := staticStates(ctx, m)
	if err != nil {
		return nil, err
	}
	pieces, _ := offer.Pieces(m, nil)
	t := offer.NewTable(ctx, m, o, m.P.Forwarding, pieces, states)
	at := t.BestState()
	line := timeline.New(m, states[at])
	for i := range t.Pieces {
		pc := &t.Pieces[i]
		if math.IsInf(t.US[pc.Kind][at], 1) {
			return nil, offer.Unserved(m, &pc.Step, states[at])
		}
		t.Write(line, pc, at)
	}
	return line.Finish("static"), nil
}

// tooManyPeers returns an error if a rank sends to more ranks than it has planes and the fabric does not forward. Then
// fixed circuits cannot serve the problem, and a search for them is useless. It looks at a few ranks, and at steps
// that are patterns.
func tooManyPeers(m *model.Model) error {
	if m.P.Forwarding || m.P.Initial != nil || m.P.Final.Kind == plans.FinalGiven { // there is no choice
		return nil
	}
	for _, r := range []int{0, m.P.Ranks / 3, m.P.Ranks - 1} {
		var peers []int
		for i := range m.Asked {
			c := m.Asked[i].Pattern
			if c == nil || c[r] == circuit.Dark || slices.Contains(peers, c[r]) {
				continue
			}
			if peers = append(peers, c[r]); len(peers) > m.P.Planes {
				return model.Infeasible(m.Asked[i].Index,
					"rank %d has no circuit to rank %d on any plane, and the fabric does not forward", r, c[r])
			}
		}
	}
	return nil
}

// staticStates returns the settings that the whole plan may run on, at least one.
func staticStates(ctx context.Context, m *model.Model) ([][]circuit.Permutation, error) {
	if maps, err := FixedMaps(m); maps != nil || err != nil {
		return [][]circuit.Permutation{maps}, err
	}
	var set offer.States
	set.Add(ChooseStatic(ctx, m))
	for _, maps := range offer.Graphs(ctx, m) {
		set.Add(maps)
	}
	return set.All, nil
}

// FixedMaps returns the circuits of a plan that never switches if the problem leaves no choice, else nil.
func FixedMaps(m *model.Model) ([]circuit.Permutation, error) {
	final := m.P.Final
	if m.P.Initial == nil && final.Kind == plans.FinalGiven {
		return final.Maps, nil
	}
	if m.P.Initial != nil && final.Kind == plans.FinalGiven {
		for j := range m.P.Initial {
			if !m.P.Initial[j].Equal(final.Maps[j]) {
				return nil, finalDiffers(j)
			}
		}
	}
	return m.P.Initial, nil
}

// staticChoice is the search for the best set of circuits: one candidate per unit.
type staticChoice struct {
	ctx   context.Context
	m     *model.Model
	work  int // lanes that may still be looked at
	maps  [][]circuit.Permutation
	lanes [][][]timing.Lane // [candidate][distinct step]: lanes of a unit with these circuits
	holds [][][]int         // [candidate][distinct step][matching]: its planes that hold it
	steps []weighted
	buf   []timing.Lane
	out   []float64
}

// weighted is a step that occurs times times.
type weighted struct {
	st    *model.Step
	times float64
}

// ChooseStatic returns the best circuits if each plane chooses its own.
func ChooseStatic(ctx context.Context, m *model.Model) []circuit.Permutation {
	ctx, cancel := effort.Within(ctx, 0.4) // keep time to measure the choice
	defer cancel()
	c := newStaticChoice(ctx, m)
	if len(c.maps) == 0 {
		return m.DarkMaps()
	}
	var pick []int
	if multisets(len(c.maps), m.Units, staticEvaluations) {
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

func newStaticChoice(ctx context.Context, m *model.Model) *staticChoice {
	c := &staticChoice{ctx: ctx, work: staticWork, m: m, steps: distinctSteps(m), out: make([]float64, m.P.Planes)}
	flowsOnce := 1
	for _, w := range c.steps {
		flowsOnce += m.FlowCount(w.st)
	}
	c.maps = m.Candidates(min(model.MaxCandidates, 16+int(staticMeasures)/(flowsOnce*m.Units)))
	c.lanes, c.holds = make([][][]timing.Lane, len(c.maps)), make([][][]int, len(c.maps))
	loaders := make([][]plans.Loader, len(c.maps))
	for q, maps := range c.maps {
		loaders[q] = offer.Loaders(maps)
		c.lanes[q], c.holds[q] = make([][]timing.Lane, len(c.steps)), make([][]int, len(c.steps))
	}
	for i, w := range c.steps {
		if c.over() {
			break // a pattern without measurement counts as not served
		}
		var flows [][2]int // of one step: those of all may be more than there is memory for
		if m.P.Forwarding {
			flows = m.FlowsOf(w.st)
		}
		var matchings []circuit.Permutation
		if w.st.Pattern == nil {
			matchings = m.MatchingsOf(w.st)
		}
		for q, maps := range c.maps {
			c.lanes[q][i] = offer.Lanes(m, loaders[q], maps, w.st, flows)
			for _, pattern := range matchings {
				c.holds[q][i] = append(c.holds[q][i], model.Servers(maps, pattern))
			}
		}
	}
	return c
}

// distinctSteps merges equal steps: order does not matter here.
func distinctSteps(m *model.Model) []weighted {
	var kinds model.Kinds
	var at []int // kind -> index into out
	var out []weighted
	for i := range m.Steps {
		st := &m.Steps[i]
		if st.Pattern != nil {
			kind, fresh := kinds.Add(st)
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
func (c *staticChoice) evaluate(pick []int) offer.Score {
	var s offer.Score
	for i, w := range c.steps {
		us := math.Inf(1)
		buf := c.buf[:0]
		for _, q := range pick {
			buf = append(buf, c.lanes[q][i]...)
		}
		c.buf = buf
		c.work -= len(buf) + len(pick)
		if len(buf) > 0 {
			us = timing.Split(buf, w.st.Bytes, c.out)
		}
		missing := 1
		if w.st.Pattern == nil {
			var direct float64
			direct, missing = c.direct(pick, i)
			us = math.Min(us, direct)
		}
		if math.IsInf(us, 1) {
			s.Unserved += missing
		} else {
			s.US += w.times * us
		}
	}
	return s
}

// direct returns the time of a split step if planes hold each of its matchings, or else how many matchings no plane
// holds.
func (c *staticChoice) direct(pick []int, i int) (us float64, missing int) {
	least := c.m.P.Planes
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
	return c.m.DirectUS + c.m.UsPerByte*c.steps[i].st.Bytes/float64(least), 0
}

// exhaustive tries every multiset of candidates.
func (c *staticChoice) exhaustive() []int {
	pick := make([]int, c.m.Units)
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
		if s := c.evaluate(pick); s.Better(bestScore) {
			bestScore = s
			copy(best, pick)
		}
	}
}

// greedy chooses the best candidate for one unit after another. Without forwarding and with patterns that exclude each
// other this is optimal: a step's time is convex in the number of its planes.
func (c *staticChoice) greedy() []int {
	var pick []int
	for len(pick) < c.m.Units {
		best, bestScore := -1, offer.Score{}
		for q := range c.maps {
			if best >= 0 && c.over() {
				break
			}
			if s := c.evaluate(append(pick, q)); best < 0 || s.Better(bestScore) {
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
				if s := c.evaluate(pick); s.Better(best) {
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

// finalDiffers returns the error of static if a plane must end on other circuits than it begins with.
func finalDiffers(plane int) error {
	return fmt.Errorf("%w: plane %d must end on other circuits than it begins with, and static never reconfigures",
		model.ErrInfeasible, plane)
}
