package harvest

import (
	"context"

	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/baseline"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/offer"
)

// states returns at most limit settings of all planes for harvest: the given initial circuits first, then the
// most promising.
func states(ctx context.Context, m *model.Model, fills [][][]circuit.Permutation, limit int) [][]circuit.Permutation {
	set := offer.States{Limit: limit, Stop: func() bool { return ctx.Err() != nil }}
	if m.P.Initial != nil {
		set.Add(m.P.Initial)
	}
	if maps, err := baseline.FixedMaps(m); maps == nil && err == nil {
		set.Add(baseline.ChooseStatic(ctx, m.Unsplit()))
	}
	for _, maps := range m.Candidates(model.MaxCandidates)[min(model.MaxCandidates, len(m.Pages)):] {
		set.Add(m.EveryUnit(maps))
	}
	for _, maps := range offer.Graphs(ctx, m) {
		set.Add(maps)
	}
	for _, list := range fills {
		for _, maps := range list {
			set.Add(m.EveryUnit(maps))
		}
	}
	for _, maps := range m.Pages {
		set.Add(m.EveryUnit(maps))
	}
	addRounds(m, &set)
	addWindows(m, &set)
	return set.All
}

// addRounds adds the settings of perstep for steps that are split.
func addRounds(m *model.Model, set *offer.States) {
	if len(m.Asked) == len(m.Steps) {
		return
	}
	for _, r := range m.Rounds() {
		if len(r.Pages) > 1 {
			set.Add(m.Setting(r))
		}
	}
}

// addWindows adds settings on which the units hold the patterns of consecutive steps, up
// to as many as there are units.
func addWindows(m *model.Model, set *offer.States) {
	var seq []int // pages in the order of the steps, without repetitions in a row
	for i := range m.Steps {
		if q := m.Steps[i].Page; q >= 0 && (len(seq) == 0 || seq[len(seq)-1] != q) {
			seq = append(seq, q)
		}
	}
	for power := 2; power < 2*m.Units; power *= 2 {
		width := min(power, m.Units)
		for at := 0; at+width <= len(seq) && at < model.MaxCandidates && !set.Full(); at++ {
			set.Add(m.Setting(model.Round{Pages: seq[at : at+width]}))
		}
	}
}
