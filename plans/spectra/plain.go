package spectra

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Plain plans a demand problem in the order in which programs issue all-to-all exchanges. Every rank serves its peers
// by their distance, one distance after the other, each as long as the largest demand at that distance. The planes take
// turns. A runtime without a scheduler would do this. SPECTRA is measured against it. It takes O(ranks^2).
//
// Errors wrap [plans.ErrProblem] or [ErrNoDemand].
func Plain(p *plans.Problem) (*plans.Plan, error) {
	return byDistance(p, "plain", func(list []held, units int) [][]held {
		all := make([][]held, units)
		for i, h := range list {
			all[i%units] = append(all[i%units], h)
		}
		return all
	})
}

// byDistance plans a demand problem with one hold for each distance between ranks. divide puts them on units, in order.
func byDistance(p *plans.Problem, name string, divide func(list []held, units int) [][]held) (*plans.Plan, error) {
	d, err := demandOf(p)
	if err != nil {
		return nil, err
	}
	var list []held
	for distance := range p.Ranks {
		if h := atDistance(p, d, distance); h.us > 0 {
			list = append(list, h)
		}
	}
	plan := &plans.Plan{Version: plans.Version, Planner: name, Planes: make([][]plans.Entry, p.Planes)}
	layHolds(p, plan, divide(list, p.Planes/p.Circuits.UnitPlanes()))
	bound, proof := newNetwork(d, p.Circuits).bound(p.Planes, p.ReconfigUS, p.ReconfigPerPort, 0)
	plan.LowerBoundUS, plan.BoundProof = min(bound, plan.CCTUS), proof
	return plan, nil
}

// held is a map and the time for which it is held.
type held struct {
	to circuit.Permutation
	us float64
}

// atDistance returns the circuits between ranks at a distance, without the ones that serve
// no demand. On duplex planes, whose maps are involutions, r and s are at the distance r+s.
func atDistance(p *plans.Problem, d Matrix, distance int) held {
	n := p.Ranks
	h := held{to: circuit.AllDark(n)}
	for r := range n {
		s := (r + distance) % n
		us := d[r][s]
		switch p.Circuits {
		case plans.Duplex:
			s = (distance - r + n) % n
			us = max(d[r][s], d[s][r])
		case plans.Interleaved: // the other plane of the pair has the way back
			if 2*distance > n {
				return held{}
			}
			us = max(us, d[s][r])
		}
		if us > 0 {
			h.to[r], h.us = s, max(h.us, us)
		}
	}
	return h
}

// layHolds writes holds, by unit, as the planes' entries, each after its reconfiguration.
func layHolds(p *plans.Problem, plan *plans.Plan, units [][]held) {
	per := p.Circuits.UnitPlanes()
	plan.CCTUS = 0
	for u, list := range units {
		now, current := 0.0, circuit.AllDark(p.Ranks)
		for _, h := range list {
			up := now + plans.ReconfigUS(p, current, h.to)
			down := after(up, h.us)
			for i := range per {
				to := h.to
				if i > 0 {
					to = to.Inverse()
				}
				plan.Planes[per*u+i] = append(plan.Planes[per*u+i],
					plans.Entry{Kind: plans.Reconfigure, To: to, StartUS: now, EndUS: up},
					plans.Entry{Kind: plans.Hold, To: to, StartUS: up, EndUS: down})
			}
			now, current = down, h.to
		}
		plan.CCTUS = max(plan.CCTUS, now)
	}
}

// From rearranges a plan of a demand problem for planes with the given maps. It returns the new plan and its time. The
// holds of a plane may come in any order, so From always takes the one next for which the fewest circuits change.
// Circuits that a hold leaves dark stay up while their ports are free. So a repeated plan begins with the circuits that
// it ended with. p is the problem of the plan, and also of the result.
func From(p *plans.Problem, plan *plans.Plan, standing []circuit.Permutation) (*plans.Plan, float64) {
	per := p.Circuits.UnitPlanes()
	units := make([][]held, p.Planes/per)
	next := *plan
	next.Planes, next.Digest = make([][]plans.Entry, p.Planes), ""
	first := make([]bool, len(units)) // begins with what is there
	for u := range units {
		list := holdsOf(plan.Planes[per*u])
		current := standing[per*u]
		if per == 2 && !standing[per*u+1].Equal(current.Inverse()) {
			current = circuit.AllDark(p.Ranks)
		}
		for i := range list {
			best, to, changes := i, circuit.Permutation(nil), math.MaxInt
			for k := i; k < len(list); k++ {
				c := carry(current, list[k].to)
				if moved := differ(current, c); moved < changes {
					best, to, changes = k, c, moved
				}
			}
			list[i], list[best] = list[best], list[i]
			current = to
			if last := len(units[u]) - 1; changes == 0 && last >= 0 { // all its circuits are there
				units[u][last].us += list[i].us
				continue
			}
			units[u] = append(units[u], held{to, list[i].us})
			first[u] = first[u] || changes == 0
		}
	}
	layHolds(p, &next, units)
	cct := 0.0
	for u := range units {
		if entries := next.Planes[per*u]; len(entries) > 0 {
			end := entries[len(entries)-1].EndUS
			if first[u] {
				end -= entries[0].EndUS
			}
			cct = max(cct, end)
		}
	}
	return &next, cct
}

// Left returns the maps of planes after a plan of a demand problem, which had the given maps before.
func Left(plan *plans.Plan, standing []circuit.Permutation) []circuit.Permutation {
	maps := slices.Clone(standing)
	for j, entries := range plan.Planes {
		if len(entries) > 0 {
			maps[j] = entries[len(entries)-1].To
		}
	}
	return maps
}

func holdsOf(entries []plans.Entry) []held {
	var list []held
	for i := range entries {
		if e := &entries[i]; e.Kind == plans.Hold {
			list = append(list, held{e.To, e.EndUS - e.StartUS})
		}
	}
	return list
}

// differ counts the ports that take part in a switch from one map to the other.
func differ(a, b circuit.Permutation) int {
	n := 0
	for r := range a {
		if a[r] != b[r] {
			n++
		}
	}
	return n
}
