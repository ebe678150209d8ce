package program

import (
	"fmt"
	"math"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// timeline is a plan, indexed for lowering. It is the same on every rank.
type timeline struct {
	planes  []planeLine
	steps   []stepLine     // by step of the schedule
	indexed int            // step of the schedule to which index belongs
	index   map[[2]int]int // number of each flow in the problem's list
}

// planeLine has the maps and the transmissions of one plane. Map k belongs to relative epoch k.
type planeLine struct {
	maps    []circuit.Permutation
	made    [][]uint32 // [k][r]: relative epoch in which the circuit of map k from rank r was made
	entries []txEntry
}

// txEntry is one transmission of a plane.
type txEntry struct {
	step   int // step of the schedule
	config int // index of the map
	bytes  float64
	flows  map[int]bool // nil: all flows of the step
}

// stepLine has the transmissions of one step of the schedule.
type stepLine struct {
	step    *plans.Step // step of the problem, or nil
	entries [][2]int    // {plane, entry}, ascending
}

func newTimeline(s *schedule.Schedule, plan *plans.Plan, a *Args) (*timeline, error) {
	if len(plan.Initial) != len(plan.Planes) || a.Current != nil && len(a.Current) != len(plan.Planes) {
		return nil, fmt.Errorf("program: initial maps for %d of %d planes: %w",
			len(plan.Initial), len(plan.Planes), ErrPlan)
	}
	if a.Problem.Demand != nil {
		return nil, fmt.Errorf("program: a plan of a demand matrix: %w", ErrUnsupported)
	}
	t := &timeline{planes: make([]planeLine, len(plan.Planes)), steps: make([]stepLine, len(s.Steps)), indexed: -1}
	for i := range a.Problem.Steps {
		at := a.StepOf[i]
		if at < 0 || at >= len(s.Steps) || t.steps[at].step != nil {
			return nil, fmt.Errorf("program: problem step %d is schedule step %d: %w", i, at, ErrArgs)
		}
		t.steps[at].step = &a.Problem.Steps[i]
	}
	for j := range plan.Planes {
		if err := t.addPlane(j, s.Ranks, plan, a); err != nil {
			return nil, fmt.Errorf("program: plane %d: %w", j, err)
		}
	}
	return t, nil
}

func (t *timeline) addPlane(j, ranks int, plan *plans.Plan, a *Args) error {
	tp := &t.planes[j]
	start := plan.Initial[j]
	if a.Current != nil {
		start = a.Current[j]
	}
	if err := tp.begin(start, ranks); err != nil {
		return fmt.Errorf("initial map %w", err)
	}
	if err := tp.move(plan.Initial[j], ranks); err != nil {
		return err
	}
	last := -1
	for k := range plan.Planes[j] {
		e := &plan.Planes[j][k]
		switch {
		case e.Kind == plans.Reconfigure:
			if err := tp.move(e.To, ranks); err != nil {
				return fmt.Errorf("entry %d: %w", k, err)
			}
		case e.Kind == plans.Transmit && e.Joint != "":
			return fmt.Errorf("entry %d: joint transmit %q changes planes, but ranks forward within a plane only: %w",
				k, e.Joint, ErrUnsupported)
		case e.Kind == plans.Transmit:
			if e.Step < max(last, 0) || e.Step >= len(a.StepOf) {
				return fmt.Errorf("entry %d: step %d after step %d: %w", k, e.Step, last, ErrPlan)
			}
			last = e.Step
			t.addEntry(j, e, a)
		default:
			return fmt.Errorf("entry %d: %s: %w", k, e.Kind, ErrUnsupported)
		}
	}
	return nil
}

// begin sets the first map.
func (tp *planeLine) begin(start circuit.Permutation, ranks int) error {
	tp.maps, tp.made = []circuit.Permutation{start}, [][]uint32{make([]uint32, ranks)}
	if err := start.Validate(ranks); err != nil {
		return fmt.Errorf("%w: %w", err, ErrPlan)
	}
	return nil
}

// entering returns the relative epoch in which the circuit to rank r of map config was made.
func (tp *planeLine) entering(config, r int) uint32 {
	for from, to := range tp.maps[config] {
		if to == r {
			return tp.made[config][from]
		}
	}
	return 0
}

// route returns the latest relative epoch in which a circuit of the route src -> dst of map config was made.
func (tp *planeLine) route(config, src, dst int) uint32 {
	newest := uint32(0)
	for at, hops := src, 0; at != dst && at != circuit.Dark && hops < len(tp.maps[config]); hops++ {
		newest = max(newest, tp.made[config][at])
		at = tp.maps[config][at]
	}
	return newest
}

// move appends a map, unless it equals the last one.
func (tp *planeLine) move(to circuit.Permutation, ranks int) error {
	if err := to.Validate(ranks); err != nil {
		return fmt.Errorf("map %w: %w", err, ErrPlan)
	}
	now := tp.maps[len(tp.maps)-1]
	if now.Equal(to) {
		return nil
	}
	made := append([]uint32(nil), tp.made[len(tp.made)-1]...)
	for r := range made {
		if now[r] != to[r] {
			made[r] = uint32(len(tp.maps))
		}
	}
	tp.maps = append(tp.maps, to)
	tp.made = append(tp.made, made)
	return nil
}

func (t *timeline) addEntry(j int, e *plans.Entry, a *Args) {
	tp := &t.planes[j]
	te := txEntry{step: a.StepOf[e.Step], config: len(tp.maps) - 1, bytes: e.Bytes}
	if e.Flows != nil {
		te.flows = make(map[int]bool, len(e.Flows))
		for _, f := range e.Flows {
			te.flows[f] = true
		}
	}
	st := &t.steps[a.StepOf[e.Step]]
	st.entries = append(st.entries, [2]int{j, len(tp.entries)})
	tp.entries = append(tp.entries, te)
}

// cut divides a flow in proportion to the bytes of its entries. Cut i is at round(elements x cumulative share).
func (t *timeline) cut(f *flow, step int, pieces []piece) ([]piece, error) {
	st := &t.steps[step]
	if t.indexed != step {
		t.indexed, t.index = step, map[[2]int]int{}
		if st.step != nil {
			for k, f := range st.step.FlowList() {
				t.index[f] = k
			}
		}
	}
	index, ok := t.index[[2]int{f.src, f.dst}]
	if !ok {
		return nil, fmt.Errorf("not in the problem: %w", ErrPlan)
	}
	var weights []float64
	for _, at := range st.entries {
		e := &t.planes[at[0]].entries[at[1]]
		if e.flows != nil && !e.flows[index] {
			continue
		}
		pieces, weights = append(pieces, piece{plane: at[0], entry: at[1]}), append(weights, e.bytes)
	}
	return pieces, divide(pieces, weights, f.elems)
}

// divide divides elems elements over the pieces in proportion to their weights.
func divide(pieces []piece, weights []float64, elems int64) error {
	total := 0.0
	for _, w := range weights {
		total += w
	}
	if len(pieces) == 0 || !(total >= 0) || math.IsInf(total, 1) {
		return fmt.Errorf("%d entries carry %g bytes: %w", len(pieces), total, ErrPlan)
	}
	lo, sum := int64(0), 0.0
	for i := range pieces {
		p := &pieces[i]
		sum += weights[i]
		p.lo, p.hi = lo, elems
		// The conversions prevent a fused multiply-add, which would give other cuts on some machines.
		if i+1 < len(pieces) && total > 0 {
			share := float64(sum / total)
			p.hi = min(max(int64(math.Round(float64(float64(elems)*share))), lo), elems)
		}
		lo = p.hi
	}
	return nil
}
