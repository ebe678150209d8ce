package baseline

import (
	"fmt"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
)

// PerStep is the strawman of SWOT and the BvN baseline of HARVEST. If the pattern differs from that of the
// previous step, all planes are reconfigured in lockstep. The bytes are divided evenly.
//
// A split step is served in rounds. A round serves as many matchings as makes the step shortest, each on an equal
// number of units. A unit that is left over helps the first matchings. Planes are reconfigured in lockstep between
// rounds. The extremes are one matching at a time over all planes, and one matching on each plane.
func PerStep(m *model.Model) *plans.Plan { return perStep(m, false).Finish("perstep") }

// PerStepBelow is PerStep, but fails if its plan takes longer than the given one, so that it need not write a long
// plan.
func PerStepBelow(m *model.Model, plan *plans.Plan) (*plans.Plan, error) {
	if us := PerStepUS(m); us > plan.CCTUS+model.Tolerance(us) {
		return nil, fmt.Errorf("%w: a periodic plan takes less", model.ErrInfeasible)
	}
	return PerStep(m), nil
}

// PerStepUS returns the time of perstep, without its plan, which is long.
func PerStepUS(m *model.Model) float64 { return perStep(m, true).End() }

func perStep(m *model.Model, dry bool) *timeline.Timeline {
	if len(m.Steps) == 0 {
		return timeline.New(m, m.StartMaps(m.DarkMaps()))
	}
	rounds := m.Rounds()
	t := timeline.New(m, m.StartMaps(m.Setting(rounds[0])))
	t.Dry = dry
	for i, r := range rounds {
		switches := false
		if i == 0 {
			switches = !serves(m, t.Current, r)
		} else {
			switches = !slices.Equal(r.Pages, rounds[i-1].Pages)
		}
		if switches {
			t.Lockstep(m.Setting(r), true)
		}
		for s := r.From; s < r.To; s++ {
			st := &m.Steps[s]
			serving := m.Serving(t.Current, r, st)
			for _, j := range serving {
				t.Transmit(j, st, st.Bytes/float64(len(serving)), timeline.Direct)
			}
			t.CloseAt(s)
		}
	}
	return t
}

// serves reports whether every unit holds its page of a round on the given circuits. Then a later round of the same
// pages needs no switch either.
func serves(m *model.Model, maps []circuit.Permutation, r model.Round) bool {
	for u := range m.Units {
		if !model.HoldsPage(m.OfUnit(maps, u), m.Pages[r.Pages[u%len(r.Pages)]]) {
			return false
		}
	}
	return true
}
