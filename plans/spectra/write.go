package spectra

import (
	"cmp"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// write puts a layout into plan as the entries of its planes.
func (s *searcher) write(p *plans.Problem, plan *plans.Plan, l *layout) {
	maps := make([]circuit.Permutation, len(l.holds))
	for i, h := range l.holds {
		maps[i] = s.w.permutation(h.edges)
	}
	order := make([][]int, s.units)
	for i, u := range l.unit {
		order[u] = append(order[u], i)
	}
	if s.perPort > 0 {
		s.trim(l, maps)
		clear(s.overhead)
		for u := range order {
			s.overhead[u] = s.arrange(p, order[u], maps)
		}
		s.lp.solve(l.holds, l.unit, s.overhead)
	}
	units := make([][]held, s.units)
	for u, list := range order {
		for _, i := range list {
			if us := l.holds[i].weight; us > 0 {
				units[u] = append(units[u], held{maps[i], us})
			}
		}
	}
	layHolds(p, plan, units)
}

// after returns the first time that is at least weight after start: late in a long plan, a sum may round a short hold
// away.
func after(start, weight float64) float64 {
	end := start + weight
	for end-start < weight {
		end = math.Nextafter(end, math.Inf(1))
	}
	return end
}

// merge joins holds of one unit that have the same circuits and drops those without time.
func (s *searcher) merge(l *layout) {
	byUnit := make([]circuit.Index, s.units)
	first := make([][]int, s.units)
	kept := 0
	for i, h := range l.holds {
		if h.weight <= 0 {
			continue
		}
		u := l.unit[i]
		id, fresh := byUnit[u].Add(s.w.permutation(h.edges))
		if !fresh {
			l.holds[first[u][id]].weight += h.weight
			continue
		}
		first[u] = append(first[u], kept)
		l.holds[kept], l.unit[kept] = h, u
		kept++
	}
	l.holds, l.unit = l.holds[:kept], l.unit[:kept]
	s.time(l)
}

// trim takes away circuits that the demand can do without, which it costs time to make;
// short holds lose theirs first.
func (s *searcher) trim(l *layout, maps []circuit.Permutation) {
	s.w.uncovered(s.left, l.holds)
	order := make([]int, len(l.holds))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l.holds[a].weight, l.holds[b].weight) })
	for _, i := range order {
		h := &l.holds[i]
		kept := h.edges[:0:0]
		for _, e := range h.edges {
			if entry := s.w.entry[e]; s.left[entry]+h.weight <= 0 {
				s.left[entry] += h.weight
				continue
			}
			kept = append(kept, e)
		}
		h.edges = kept
		maps[i] = s.w.permutation(kept)
	}
}

// arrange orders the holds of a unit so that few circuits change: it takes the nearest each time. It leaves circuits
// where they are until another circuit needs their ports. It returns the time of the reconfigurations.
func (s *searcher) arrange(p *plans.Problem, held []int, maps []circuit.Permutation) float64 {
	total := 0.0
	current := circuit.AllDark(p.Ranks)
	for at := range held {
		best, changes := at, math.MaxInt
		for k := at; k < len(held); k++ {
			if c := current.Changes(maps[held[k]]); c < changes {
				best, changes = k, c
			}
		}
		held[at], held[best] = held[best], held[at]
		current = carry(current, maps[held[at]])
		maps[held[at]] = current
		total += plans.ReconfigPortsUS(p, changes)
	}
	return total
}

// carry returns next with the circuits of prev whose ports next leaves dark.
func carry(prev, next circuit.Permutation) circuit.Permutation {
	c := next.Clone()
	from := next.Inverse()
	for r, to := range prev {
		if to == circuit.Dark || c[r] != circuit.Dark || from[to] != circuit.Dark {
			continue
		}
		// A duplex pair stays whole or goes: its other half has the same two ports.
		if back := prev[to]; back == r && to != r && (next[to] != circuit.Dark || from[r] != circuit.Dark) {
			continue
		}
		c[r] = to
	}
	return c
}
