package lumos

import (
	"cmp"
	"slices"
)

// mergeEffort bounds the search for fewer steps, in items placed.
const mergeEffort = 1 << 16

// merge gives every item a step, few in all: first fit, hardest first, then a search for one step fewer
// as long as there is one and the effort lasts.
func (m *merger) merge() (stepOf []int) {
	order := m.order()
	best := m.place(order, len(order), nil)
	for n := slices.Max(append(best, -1)); n >= m.fewest(); n-- {
		effort := mergeEffort
		fewer := m.place(order, n, &effort)
		if fewer == nil {
			break
		}
		best = fewer
	}
	return best
}

// order lists the items, those that affect the largest share first, but none before the one it comes after.
func (m *merger) order() []int {
	order := make([]int, len(m.items))
	depth, hardest := make([]int, len(m.items)), make([]float64, len(m.items))
	for i, it := range m.items {
		order[i] = i
		if it.after >= 0 {
			depth[i] = depth[it.after] + 1
		}
		_, hardest[i] = m.worst(it.hit)
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Or(cmp.Compare(depth[x], depth[y]), cmp.Compare(hardest[y], hardest[x]))
	})
	return order
}

// fewest is a number of steps that no order is below: every leaf bears iota of its links in each.
func (m *merger) fewest() int {
	sum, steps := map[int]int{}, 1
	for _, it := range m.items {
		for a, n := range it.hit {
			sum[a] += n
		}
	}
	for a, n := range sum {
		for s := 1; !m.within(a, (n+s-1)/s); s++ {
			if s >= n {
				break
			}
			steps = max(steps, s+1)
		}
	}
	return steps
}

// place puts items into at most the given number of steps, in order. Without effort it takes the first
// that fits, a new one if none does; with it, it tries them all, and returns nil where it finds nothing.
func (m *merger) place(order []int, steps int, effort *int) []int {
	stepOf := make([]int, len(m.items))
	load := make([]map[int]int, 0, steps) // links affected, by step and leaf
	var try func(n int) bool
	try = func(n int) bool {
		if n == len(order) {
			return true
		}
		it := &m.items[order[n]]
		first := 0
		if it.after >= 0 {
			first = stepOf[it.after] + 1
		}
		for s := first; s < steps && s <= len(load); s++ {
			if effort != nil {
				if *effort--; *effort < 0 {
					return false
				}
			}
			if s == len(load) {
				load = append(load, map[int]int{})
			}
			if len(load[s]) > 0 && !m.fits(load[s], it.hit) {
				continue
			}
			stepOf[order[n]] = s
			add(load[s], it.hit, 1)
			if try(n + 1) {
				return true
			}
			add(load[s], it.hit, -1)
			if len(load[s]) == 0 { // another empty step is no better
				return false
			}
		}
		return false
	}
	if !try(0) {
		return nil
	}
	return stepOf
}

// fits reports whether a step that affects links may affect more. What affects nothing always fits.
func (m *merger) fits(load, hit map[int]int) bool {
	for a, n := range hit {
		if !m.within(a, load[a]+n) {
			return false
		}
	}
	return true
}

func add(load, hit map[int]int, sign int) {
	for a, n := range hit {
		if load[a] += sign * n; load[a] == 0 {
			delete(load, a)
		}
	}
}

// steps are the items by step.
func (m *merger) steps(stepOf []int) []Step {
	var all []Step
	for s := range slices.Max(append(stepOf, -1)) + 1 {
		var step Step
		hit := map[int]int{}
		for i, it := range m.items {
			if stepOf[i] == s {
				step.Moves = append(step.Moves, it.moves...)
				add(hit, it.hit, 1)
			}
		}
		step.Leaf, step.Affected = m.worst(hit)
		all = append(all, step)
	}
	return all
}
