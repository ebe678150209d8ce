package planner

import (
	"context"
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// solvePerStep is the strawman of SWOT and the BvN baseline of HARVEST. If the pattern differs from that of the
// previous step, all planes are reconfigured in lockstep. The bytes are divided evenly.
//
// A split step is served in rounds. A round serves as many matchings as makes the step shortest, each on an equal
// number of units. A unit that is left over helps the first matchings. Planes are reconfigured in lockstep between
// rounds. The extremes are one matching at a time over all planes, and one matching on each plane.
func solvePerStep(_ context.Context, m *model, _ Options) (*plans.Plan, error) {
	return m.perStep(false).finish("perstep"), nil
}

// perStepBelow is solvePerStep, but fails if its plan takes longer than the given one, so that it need not write a long
// plan.
func (m *model) perStepBelow(plan *plans.Plan) solver {
	return func(ctx context.Context, _ *model, o Options) (*plans.Plan, error) {
		if us := m.perStepUS(); us > plan.CCTUS+tolerance(us) {
			return nil, fmt.Errorf("%w: a periodic plan takes less", ErrInfeasible)
		}
		return solvePerStep(ctx, m, o)
	}
}

// perStepUS returns the time of perstep, without its plan, which is long.
func (m *model) perStepUS() float64 { return m.perStep(true).stepEnd }

func (m *model) perStep(dry bool) *timeline {
	if len(m.steps) == 0 {
		return newTimeline(m, m.startMaps(m.darkMaps()))
	}
	rounds := m.rounds()
	t := newTimeline(m, m.startMaps(m.setting(rounds[0])))
	t.dry = dry
	for i, r := range rounds {
		switches := false
		if i == 0 {
			switches = !m.serves(t.current, r)
		} else {
			switches = !slices.Equal(r.pages, rounds[i-1].pages)
		}
		if switches {
			t.lockstep(m.setting(r), true)
		}
		for s := r.from; s < r.to; s++ {
			st := &m.steps[s]
			serving := m.serving(t.current, r, st)
			for _, j := range serving {
				t.transmit(j, st, st.bytes/float64(len(serving)), 1, 1)
			}
			t.closeAt(s)
		}
	}
	return t
}

// round is the sub-steps that the baseline serves together: steps[from:to], of one step of the problem. Unit u is set
// to pages[u mod len(pages)]; pages ascend.
type round struct {
	from, to int
	pages    []int
}

// rounds divides the steps, all of which have pages, into rounds.
func (m *model) rounds() []round {
	var all []round
	for from := 0; from < len(m.steps); {
		to := from + 1
		for !m.lastOfStep(to - 1) {
			to++
		}
		all = append(all, m.roundsOf(from, to)...)
		from = to
	}
	return all
}

// roundsOf divides the sub-steps [from, to) of one step into the rounds with the least time.
func (m *model) roundsOf(from, to int) []round {
	var best []round
	least := math.Inf(1)
	for width := 1; width <= m.units; width++ {
		rounds := m.chunks(from, to, width)
		us := 0.0
		for _, r := range rounds {
			us += plans.ReconfigPortsUS(m.p, m.p.Ranks) + m.roundUS(r)
		}
		if us < least-tolerance(us) {
			best, least = rounds, us
		}
		if len(rounds) == 1 {
			break
		}
	}
	return best
}

// chunks puts the sub-steps of width pages at a time into a round.
func (m *model) chunks(from, to, width int) []round {
	var all []round
	for s := from; s < to; s++ {
		q := m.steps[s].page
		if last := len(all) - 1; last >= 0 {
			r := &all[last]
			switch n := len(r.pages); {
			case r.pages[n-1] == q:
				r.to = s + 1
				continue
			case n < width:
				r.pages, r.to = append(r.pages, q), s+1
				continue
			}
		}
		all = append(all, round{s, s + 1, []int{q}})
	}
	for i := range all {
		slices.Sort(all[i].pages)
	}
	return all
}

// roundUS returns the transmit time of a round.
func (m *model) roundUS(r round) float64 {
	us := 0.0
	maps := m.setting(r)
	for s := r.from; s < r.to; s++ {
		st := &m.steps[s]
		us = math.Max(us, m.directUS+m.usPerByte*st.bytes/float64(len(m.serving(maps, r, st))))
	}
	return us
}

// setting returns the circuits of all planes in a round.
func (m *model) setting(r round) []circuit.Permutation {
	maps := make([]circuit.Permutation, 0, m.p.Planes)
	for u := range m.units {
		maps = append(maps, m.pages[r.pages[u%len(r.pages)]].maps...)
	}
	return maps
}

// serving lists the planes of the units meant for a sub-step that hold its circuits.
func (m *model) serving(maps []circuit.Permutation, r round, st *step) []int {
	var planes []int
	for j := range maps {
		if r.pages[j/m.unitPlanes%len(r.pages)] == st.page && maps[j].Covers(st.pattern) {
			planes = append(planes, j)
		}
	}
	return planes
}

// serves reports whether every unit can serve its part of a round on the given circuits.
func (m *model) serves(maps []circuit.Permutation, r round) bool {
	for s := r.from; s < r.to; s++ {
		st := &m.steps[s]
		for u := range m.units {
			if r.pages[u%len(r.pages)] == st.page && servers(maps[u*m.unitPlanes:(u+1)*m.unitPlanes], st.pattern) == 0 {
				return false
			}
		}
	}
	return true
}
