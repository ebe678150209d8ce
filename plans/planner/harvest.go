package planner

import (
	"context"
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// solveHarvest decides when to switch, and to what, with all planes in lockstep and
// forwarding where the fabric forwards (HARVEST, Algorithm 1).
//
// The paper's recurrence runs over intervals of steps and numbers of switches, with a topology subproblem for each
// interval. Over a fixed set of candidate topologies (its appendix A) a shortest path over (step, topology) has the
// same optimum. The path stays on the best topology of an interval and takes any number of switches. It also allows
// a given start and switches that cost by the port. It does not need the sum of an interval in advance.
//
// Theta is expensive to compute on several planes. So the time of a step on a candidate is at first a floor
// (server.floorUS). The search finds a path with floors, raises the floors on the path by a search for routes, and
// repeats until the path uses no floor that can be raised. No floor is above its time. So the path is the best of
// all, within the precision of these searches.
//
// Appendix A counts the bytes m_i twice, in the demand D = m_i M_i and again in T_i >= beta m_i / theta_i. Here theta
// is that of M_i, so they count once, as in Equation 3. The first topology is free unless the problem gives it; the
// paper leaves this open.
//
// solveHarvest returns nothing above perstep, nor above static where the search ended early.
func solveHarvest(ctx context.Context, m *model, o Options) (*plans.Plan, error) {
	first, cancel := within(ctx, 0.5) // what may follow needs time as well
	defer cancel()
	best, optimal, err := searchHarvest(first, m, o)
	others := []solver{solvePerStep}
	if !optimal { // the search that static makes may have looked elsewhere
		others = append(others, solveStatic)
	}
	for _, other := range others {
		if plan, err := other(ctx, m, o); err == nil && (best == nil || m.better(plan, best)) {
			best = plan
		}
	}
	if best == nil {
		return nil, err
	}
	best.Planner = "harvest"
	return best, nil
}

// tableCells bounds the positions times states that are searched.
const tableCells = 1 << 22

// searchHarvest is solveHarvest without the comparison. It reports whether the path is the best over its candidates.
func searchHarvest(ctx context.Context, m *model, o Options) (best *plans.Plan, optimal bool, err error) {
	if len(m.steps) == 0 {
		return newTimeline(m, m.startMaps(m.darkMaps())).finish("harvest"), true, nil
	}
	if steps, ok := m.doublingSteps(); ok && m.p.Planes == 1 {
		return m.solveDoubling(steps), true, nil
	}
	fills := m.fills()
	pieces, positions := m.pieces(m.near(fills))
	states := m.harvestStates(ctx, fills, max(1, tableCells/positions))
	h := &harvest{table: newTable(ctx, o, newServer(m, o), pieces, states), positions: positions}
	path, optimal, err := h.solve()
	if err != nil {
		return nil, false, err
	}
	if len(m.steps)*m.p.Planes > largePlan && h.took(path) > m.perStepUS() {
		return nil, false, fmt.Errorf("%w: the plan would be long, and no better than perstep", ErrInfeasible)
	}
	best = h.plan(path)
	// A plan may take less than its path says, where planes need not wait for each other.
	if h.simple != nil && !slices.Equal(h.simple, path) && !h.stop() {
		if plan := h.plan(h.simple); m.better(plan, best) {
			best = plan
		}
	}
	return best, optimal, nil
}

// largePlan is the number of steps times planes from which a plan is written only if it is better than the others.
const largePlan = 1 << 16

// took returns the time of a path, without switches.
func (h *harvest) took(path []leg) float64 {
	us := 0.0
	for _, l := range path {
		us += h.us[l.piece.kind][l.state]
	}
	return us
}

// harvest is the search for a shortest path over the positions of [piece], and states: indexes into
// the table's. If the problem gives the initial circuits they are state 0.
type harvest struct {
	*table
	positions int
	done      [][]float64 // [position][state]: least time to get there; nil before and after use
	spare     [][]float64 // rows for done
	last      int         // position that the last search reached
	piece     [][]int32   // [position][state]: the last piece on the way there
	from      [][]int32   // [position][state]: the state from which the next piece's is reached

	simple []leg // a shortest path without any search for routes
}

// leg is a piece and the state that serves it.
type leg struct {
	piece *piece
	state int
}

// solve returns a shortest path and true or, if the work is spent, the shortest known path and false.
func (h *harvest) solve() (path []leg, optimal bool, err error) {
	h.simple = h.shortest(h.us)
	for looks := finalLooks; ; {
		path := h.shortest(h.floor)
		switch {
		case path == nil && h.known < len(h.states) && !h.stop():
			h.measureUpTo(math.MaxInt) // rather late than wrong
			continue
		case path == nil && h.stop():
			return nil, false, fmt.Errorf("%w: harvest found no plan in time", ErrInfeasible)
		case path == nil:
			return nil, false, h.refusal()
		case !h.anyOpen(path):
			return path, h.known == len(h.states), nil
		}
		if h.spent() {
			looks--
		}
		if looks < 0 {
			if path := h.shortest(h.us); path != nil {
				return path, false, nil
			}
		}
		h.limit -= int64(len(h.pieces) * len(h.states))
		for _, l := range path {
			if h.simple != nil && h.stop() {
				break
			}
			h.refine(l.piece.kind, l.state)
		}
	}
}

func (h *harvest) anyOpen(path []leg) bool {
	return slices.ContainsFunc(path, func(l leg) bool { return h.isOpen(l.piece.kind, l.state) })
}

// shortest returns a shortest path with the given times, or nil.
func (h *harvest) shortest(times [][]float64) []leg {
	h.reset()
	ready := make([]float64, len(h.states)) // after a switch, if that helps
	at := 0
	for pos := range h.positions {
		if h.switches(pos, ready) {
			h.last = pos
		}
		for ; at < len(h.pieces) && h.pieces[at].from == pos; at++ {
			pc := &h.pieces[at]
			us, done, piece := times[pc.kind], h.row(pc.to), h.piece[pc.to]
			for c, before := range ready {
				if v := before + us[c]; v < done[c]-tolerance(v) {
					done[c], piece[c] = v, int32(at)
				}
			}
		}
		h.spare, h.done[pos] = append(h.spare, h.done[pos]), nil
	}
	return h.path()
}

// reset forgets the last search; the table's size does not change between searches.
func (h *harvest) reset() {
	n := h.positions + 1
	if h.done == nil {
		h.done, h.piece, h.from = make([][]float64, n), make([][]int32, n), make([][]int32, n)
		for pos := range n {
			h.piece[pos], h.from[pos] = make([]int32, len(h.states)), make([]int32, len(h.states))
		}
	}
	for pos, done := range h.done {
		if done != nil {
			h.spare, h.done[pos] = append(h.spare, done), nil
		}
	}
	start := h.row(0)
	for c := range start {
		if h.m.p.Initial == nil || c == 0 {
			start[c] = 0
		}
	}
}

// row returns the times at a position, and allocates them on first use.
func (h *harvest) row(pos int) []float64 {
	if h.done[pos] != nil {
		return h.done[pos]
	}
	var row []float64
	if n := len(h.spare); n > 0 {
		row, h.spare = h.spare[n-1], h.spare[:n-1]
	} else {
		row = make([]float64, len(h.states))
	}
	for c := range row {
		row[c] = math.Inf(1)
	}
	h.done[pos] = row
	return row
}

// switches sets ready to the least times at which every state can begin the next piece, and reports whether any state
// can. Of equal times, the one without a switch wins.
func (h *harvest) switches(pos int, ready []float64) bool {
	done, from := h.row(pos), h.from[pos]
	cheapest := 0
	for c := range done {
		ready[c], from[c] = done[c], int32(c)
		if done[c] < done[cheapest] {
			cheapest = c
		}
	}
	if math.IsInf(done[cheapest], 1) {
		return false
	}
	if h.m.p.ReconfigPerPort == 0 { // from wherever is reached first
		v := done[cheapest] + h.m.p.ReconfigUS
		for c := range ready {
			if v < ready[c]-tolerance(v) {
				ready[c], from[c] = v, int32(cheapest)
			}
		}
		return true
	}
	for b := range done {
		if math.IsInf(done[b], 1) {
			continue
		}
		for c := range ready {
			if c == b || done[b]+h.m.p.ReconfigUS >= ready[c] {
				continue
			}
			if v := done[b] + h.switchUS(b, c); v < ready[c]-tolerance(v) {
				ready[c], from[c] = v, int32(b)
			}
		}
	}
	return true
}

// switchUS returns the time to bring all planes from state b to state c.
func (h *harvest) switchUS(b, c int) float64 {
	cost := 0.0
	k := h.m.unitPlanes
	for j, before := range h.states[b] {
		unit := j / k * k
		if !sameMaps(h.states[b][unit:unit+k], h.states[c][unit:unit+k]) {
			cost = math.Max(cost, plans.ReconfigUS(h.m.p, before, h.states[c][j]))
		}
	}
	return cost
}

// path reads the best path from the end.
func (h *harvest) path() []leg {
	pos := h.positions
	done, at := h.row(pos), 0
	for c, us := range done {
		if us < done[at]-tolerance(us) {
			at = c
		}
	}
	if math.IsInf(done[at], 1) {
		return nil
	}
	var path []leg
	for pos > 0 {
		pc := &h.pieces[h.piece[pos][at]]
		path = append(path, leg{pc, at})
		pos = pc.from
		at = int(h.from[pos][at])
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return path
}

// refusal returns the error that names the first step that no path passes.
func (h *harvest) refusal() error {
	var unlike circuit.Index
	var maps []circuit.Permutation
	for _, s := range h.states {
		for _, c := range s {
			if _, fresh := unlike.Add(c); fresh {
				maps = append(maps, c)
			}
		}
	}
	at := h.pieces[0]
	for _, pc := range h.pieces {
		if pc.from <= h.last {
			at = pc
		}
	}
	return h.m.unserved(&at.step, maps)
}

// plan writes a path.
func (h *harvest) plan(path []leg) *plans.Plan {
	first := path[0].state
	if h.m.p.Initial != nil {
		first = 0
	}
	line := newTimeline(h.m, h.states[first])
	for _, l := range path {
		line.lockstep(h.states[l.state], false)
		h.write(line, l.piece, l.state)
	}
	return line.finish("harvest")
}

// lockstep switches the planes to maps, one for each, as soon as they are idle. Unless all is true, units that have
// their maps do not switch. As everywhere in a timeline, other planes do not wait.
func (t *timeline) lockstep(maps []circuit.Permutation, all bool) {
	k := t.m.unitPlanes
	for u := 0; u < t.m.units; u++ {
		if lo, hi := u*k, (u+1)*k; all || !sameMaps(t.current[lo:hi], maps[lo:hi]) {
			t.reconfigure(u, maps[lo:hi])
		}
	}
}
