package harvest

import (
	"context"
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/baseline"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/offer"
	"lightpath/plans/planner/internal/timeline"
)

// Solve decides when to switch, and to what, with all planes in lockstep and
// forwarding where the fabric forwards (HARVEST, Algorithm 1).
//
// The paper's recurrence runs over intervals of steps and numbers of switches, with a topology subproblem for each
// interval. Over a fixed set of candidate topologies (its appendix A) a shortest path over (step, topology) has the
// same optimum. The path stays on the best topology of an interval and takes any number of switches. It also allows
// a given start and switches that cost by the port. It does not need the sum of an interval in advance.
//
// Theta is expensive to compute on several planes. So the time of a step on a candidate is at first a floor (package
// offer). The search finds a path with floors, and raises the floors on the path by a search for routes. It repeats
// this until the path uses no floor that can be raised. No floor is above its time. So the path is the best of all,
// within the precision of these searches.
//
// Appendix A counts the bytes m_i twice, in the demand D = m_i M_i and again in T_i >= beta m_i / theta_i. Here theta
// is that of M_i, so they count once, as in Equation 3. The first topology is free unless the problem gives it; the
// paper leaves this open.
//
// Solve returns nothing above perstep, nor above static where the search ended early.
func Solve(ctx context.Context, m *model.Model, o effort.Search) (*plans.Plan, error) {
	first, cancel := effort.Within(ctx, 0.5) // what may follow needs time as well
	defer cancel()
	best, optimal, _ := Search(first, m, o)
	if plan := baseline.PerStep(m); timeline.Better(m, plan, best) {
		best = plan
	}
	if !optimal { // the search that static makes may have looked elsewhere
		if plan, err := baseline.Static(ctx, m, o); err == nil && timeline.Better(m, plan, best) {
			best = plan
		}
	}
	best.Planner = "harvest"
	return best, nil
}

// tableCells bounds the positions times states that are searched.
const tableCells = 1 << 22

// Search is Solve without the comparison. It reports whether the path is the best over its candidates.
func Search(ctx context.Context, m *model.Model, o effort.Search) (best *plans.Plan, optimal bool, err error) {
	if len(m.Steps) == 0 {
		return timeline.New(m, m.StartMaps(m.DarkMaps())).Finish("harvest"), true, nil
	}
	if steps, ok := doublingSteps(m); ok && m.P.Planes == 1 {
		return solveDoubling(m, steps), true, nil
	}
	fills := fills(m)
	pieces, positions := offer.Pieces(m, near(m, fills))
	states := states(ctx, m, fills, max(1, tableCells/positions))
	h := &harvest{Table: offer.NewTable(ctx, m, o, true, pieces, states), m: m, positions: positions}
	path, optimal, err := h.solve()
	if err != nil {
		return nil, false, err
	}
	if len(m.Steps)*m.P.Planes > largePlan && h.took(path) > baseline.PerStepUS(m) {
		return nil, false, fmt.Errorf("%w: the plan would be long, and no better than perstep", model.ErrInfeasible)
	}
	best = h.plan(path)
	// A plan may take less than its path says, where planes need not wait for each other.
	if h.simple != nil && !slices.Equal(h.simple, path) && !h.Late() {
		if plan := h.plan(h.simple); timeline.Better(m, plan, best) {
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
		us += h.US[l.piece.Kind][l.state]
	}
	return us
}

// harvest is the search for a shortest path over the positions of [offer.Piece], and states: indexes into
// the table's. If the problem gives the initial circuits they are state 0.
type harvest struct {
	*offer.Table
	m         *model.Model
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
	piece *offer.Piece
	state int
}

// solve returns a shortest path and true or, if the work is spent, the shortest known path and false.
func (h *harvest) solve() (path []leg, optimal bool, err error) {
	h.simple = h.shortest(h.US)
	for looks := offer.FinalLooks; ; {
		path := h.shortest(h.Floor)
		switch {
		case path == nil && h.MeasureRest():
			continue // rather late than wrong
		case path == nil && h.Late():
			return nil, false, fmt.Errorf("%w: harvest found no plan in time", model.ErrInfeasible)
		case path == nil:
			return nil, false, h.refusal()
		case !h.anyOpen(path):
			return path, h.Complete(), nil
		}
		if h.Spent() {
			looks--
		}
		if looks < 0 {
			if path := h.shortest(h.US); path != nil {
				return path, false, nil
			}
		}
		h.Spend(len(h.Pieces) * len(h.States))
		for _, l := range path {
			if h.simple != nil && h.Late() {
				break
			}
			h.Refine(l.piece.Kind, l.state)
		}
	}
}

func (h *harvest) anyOpen(path []leg) bool {
	return slices.ContainsFunc(path, func(l leg) bool { return h.IsOpen(l.piece.Kind, l.state) })
}

// shortest returns a shortest path with the given times, or nil.
func (h *harvest) shortest(times [][]float64) []leg {
	h.reset()
	ready := make([]float64, len(h.States)) // after a switch, if that helps
	at := 0
	for pos := range h.positions {
		if h.switches(pos, ready) {
			h.last = pos
		}
		for ; at < len(h.Pieces) && h.Pieces[at].From == pos; at++ {
			pc := &h.Pieces[at]
			us, done, piece := times[pc.Kind], h.row(pc.To), h.piece[pc.To]
			for c, before := range ready {
				if v := before + us[c]; v < done[c]-model.Tolerance(v) {
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
			h.piece[pos], h.from[pos] = make([]int32, len(h.States)), make([]int32, len(h.States))
		}
	}
	for pos, done := range h.done {
		if done != nil {
			h.spare, h.done[pos] = append(h.spare, done), nil
		}
	}
	start := h.row(0)
	for c := range start {
		if h.m.P.Initial == nil || c == 0 {
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
		row = make([]float64, len(h.States))
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
	if h.m.P.ReconfigPerPort == 0 { // from wherever is reached first
		v := done[cheapest] + h.m.P.ReconfigUS
		for c := range ready {
			if v < ready[c]-model.Tolerance(v) {
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
			if c == b || done[b]+h.m.P.ReconfigUS >= ready[c] {
				continue
			}
			if v := done[b] + h.switchUS(b, c); v < ready[c]-model.Tolerance(v) {
				ready[c], from[c] = v, int32(b)
			}
		}
	}
	return true
}

// switchUS returns the time to bring all planes from state b to state c.
func (h *harvest) switchUS(b, c int) float64 {
	cost := 0.0
	for u := range h.m.Units {
		if from, to := h.m.OfUnit(h.States[b], u), h.m.OfUnit(h.States[c], u); !model.SameMaps(from, to) {
			cost = math.Max(cost, h.m.SwitchUS(from, to))
		}
	}
	return cost
}

// path reads the best path from the end.
func (h *harvest) path() []leg {
	pos := h.positions
	done, at := h.row(pos), 0
	for c, us := range done {
		if us < done[at]-model.Tolerance(us) {
			at = c
		}
	}
	if math.IsInf(done[at], 1) {
		return nil
	}
	var path []leg
	for pos > 0 {
		pc := &h.Pieces[h.piece[pos][at]]
		path = append(path, leg{pc, at})
		pos = pc.From
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
	for _, s := range h.States {
		for _, c := range s {
			if _, fresh := unlike.Add(c); fresh {
				maps = append(maps, c)
			}
		}
	}
	at := h.Pieces[0]
	for _, pc := range h.Pieces {
		if pc.From <= h.last {
			at = pc
		}
	}
	return offer.Unserved(h.m, &at.Step, maps)
}

// plan writes a path.
func (h *harvest) plan(path []leg) *plans.Plan {
	first := path[0].state
	if h.m.P.Initial != nil {
		first = 0
	}
	line := timeline.New(h.m, h.States[first])
	for _, l := range path {
		line.Lockstep(h.States[l.state], false)
		h.Write(line, l.piece, l.state)
	}
	return line.Finish("harvest")
}
