package model

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Round is the sub-steps that perstep serves together: Steps[From:To], of one step of the problem. Unit u is set to
// Pages[u mod len(Pages)]; Pages ascend.
type Round struct {
	From, To int
	Pages    []int
}

// Rounds divides the steps, all of which have pages, into rounds.
func (m *Model) Rounds() []Round {
	var all []Round
	for from, to := range m.SubSteps() {
		all = append(all, m.RoundsOf(from, to)...)
	}
	return all
}

// RoundsOf divides the sub-steps [from, to) of one step into the rounds with the least time.
func (m *Model) RoundsOf(from, to int) []Round {
	var best []Round
	least := math.Inf(1)
	for width := 1; width <= m.Units; width++ {
		rounds := m.chunks(from, to, width)
		us := 0.0
		for _, r := range rounds {
			us += plans.ReconfigPortsUS(m.P, m.P.Ranks) + m.roundUS(r)
		}
		if us < least-Tolerance(us) {
			best, least = rounds, us
		}
		if len(rounds) == 1 {
			break
		}
	}
	return best
}

// chunks puts the sub-steps of width pages at a time into a round.
func (m *Model) chunks(from, to, width int) []Round {
	var all []Round
	for s := from; s < to; s++ {
		q := m.Steps[s].Page
		if last := len(all) - 1; last >= 0 {
			r := &all[last]
			switch n := len(r.Pages); {
			case r.Pages[n-1] == q:
				r.To = s + 1
				continue
			case n < width:
				r.Pages, r.To = append(r.Pages, q), s+1
				continue
			}
		}
		all = append(all, Round{s, s + 1, []int{q}})
	}
	for i := range all {
		slices.Sort(all[i].Pages)
	}
	return all
}

// roundUS returns the transmit time of a round.
func (m *Model) roundUS(r Round) float64 {
	us := 0.0
	maps := m.Setting(r)
	for s := r.From; s < r.To; s++ {
		st := &m.Steps[s]
		us = math.Max(us, m.DirectUS+m.UsPerByte*st.Bytes/float64(len(m.Serving(maps, r, st))))
	}
	return us
}

// Setting returns the circuits of all planes in a round.
func (m *Model) Setting(r Round) []circuit.Permutation {
	maps := make([]circuit.Permutation, 0, m.P.Planes)
	for u := range m.Units {
		maps = append(maps, m.Pages[r.Pages[u%len(r.Pages)]]...)
	}
	return maps
}

// Serving lists the planes of the units meant for a sub-step that hold its circuits.
func (m *Model) Serving(maps []circuit.Permutation, r Round, st *Step) []int {
	var planes []int
	for j := range maps {
		if r.Pages[j/m.UnitPlanes%len(r.Pages)] == st.Page && maps[j].Covers(st.Pattern) {
			planes = append(planes, j)
		}
	}
	return planes
}
