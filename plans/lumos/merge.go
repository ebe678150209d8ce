package lumos

import (
	"cmp"
	"slices"
)

// mergeEffort bounds the search for fewer steps, in items placed.
const mergeEffort = 1 << 16

// merge assigns a step to every item: first fit, hardest first. Then it searches for one step fewer, until it finds
// none or has spent the effort.
func (m *merger) merge() (stepOf []int) {
	order := m.order()
	best := m.place(order, len(order), nil)
	if best == nil { // what stays dark between the items of a group leaves others no room: group by group
		for i := range m.items {
			best = append(best, i)
		}
	}
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

// order lists the items, with the largest affected shares first. No item comes before the one that it must
// follow.
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

// fewest returns a lower bound of the number of steps: in each, every leaf can have iota of its links dark.
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

// place puts items into at most the given number of steps, in order. If effort is nil, it takes the first step that
// fits, or a new one; else it tries all steps. It returns nil if it finds no solution.
func (m *merger) place(order []int, steps int, effort *int) []int {
	p := m.placing(make([]int, len(m.items)), steps)
	p.order, p.effort = order, effort
	if !p.try(0) {
		return nil
	}
	return p.stepOf
}

// placing is a search for the steps of all items.
type placing struct {
	m      *merger
	order  []int
	effort *int // nil: the first fit
	stepOf []int
	load   []map[int]int // links dark, by step and leaf
	used   int           // steps with items
}

func (m *merger) placing(stepOf []int, steps int) *placing {
	p := &placing{m: m, stepOf: stepOf, load: make([]map[int]int, steps)}
	for s := range p.load {
		p.load[s] = map[int]int{}
	}
	return p
}

// try places the items of order[n:].
func (p *placing) try(n int) bool {
	if n == len(p.order) {
		return true
	}
	i := p.order[n]
	it, first := &p.m.items[i], 0
	if it.after >= 0 {
		first = p.stepOf[it.after] + 1
	}
	for s := first; s < len(p.load) && s <= p.used; s++ {
		if p.effort != nil {
			if *p.effort--; *p.effort < 0 {
				return false
			}
		}
		if len(p.load[s]) > 0 && !p.m.fits(p.load[s], it.hit) {
			if !p.stays(it, s) { // nor in any later step
				return false
			}
			continue
		}
		used := p.used
		p.stepOf[i], p.used = s, max(used, s+1)
		p.change(i, 1)
		if p.try(n + 1) {
			return true
		}
		p.change(i, -1)
		if p.used = used; s == used || p.effort == nil || !p.stays(it, s) { // another empty step is no better
			return false
		}
	}
	return false
}

// stays reports whether the steps up to s have room for the links that the item's predecessor leaves dark until then.
func (p *placing) stays(it *item, s int) bool {
	return it.after < 0 || p.m.fits(p.load[s], p.m.items[it.after].rest)
}

// change adds item i to its step, and to the steps between it and the item before it what that leaves dark, or takes
// both away.
func (p *placing) change(i, sign int) {
	it := &p.m.items[i]
	add(p.load[p.stepOf[i]], it.hit, sign)
	if it.after >= 0 {
		for s := p.stepOf[it.after] + 1; s < p.stepOf[i]; s++ {
			add(p.load[s], p.m.items[it.after].rest, sign)
		}
	}
}

// fits reports whether a step may also affect the links hit. An item that affects no link always fits.
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

// steps returns the items as steps.
func (m *merger) steps(stepOf []int) []Step {
	n := slices.Max(append(stepOf, -1)) + 1
	all, p := make([]Step, n), m.placing(stepOf, n)
	for i, it := range m.items {
		all[stepOf[i]].Moves = append(all[stepOf[i]].Moves, it.moves...)
		p.change(i, 1)
	}
	for s := range all {
		all[s].Leaf, all[s].Affected = m.worst(p.load[s])
	}
	return all
}
