package dag

import "fmt"

// Adjacency lists dependencies by one of their ends: those of task i are
// Deps[Begin[i]:Begin[i+1]], as indices into Graph.Deps.
type Adjacency struct {
	Begin []int32
	Deps  []int32
}

// Of returns the dependencies of task i.
func (a *Adjacency) Of(i int) []int32 { return a.Deps[a.Begin[i]:a.Begin[i+1]] }

// Successors lists the dependencies that begin at each task.
func (g *Graph) Successors() Adjacency {
	return g.adjacency(func(d *Dep) int { return d.From })
}

// Predecessors lists the dependencies that end at each task.
func (g *Graph) Predecessors() Adjacency {
	return g.adjacency(func(d *Dep) int { return d.To })
}

func (g *Graph) adjacency(end func(*Dep) int) Adjacency {
	a := Adjacency{Begin: make([]int32, len(g.Tasks)+1), Deps: make([]int32, len(g.Deps))}
	for i := range g.Deps {
		a.Begin[end(&g.Deps[i])+1]++
	}
	for i := range g.Tasks {
		a.Begin[i+1] += a.Begin[i]
	}
	next := append([]int32(nil), a.Begin...)
	for i := range g.Deps {
		e := end(&g.Deps[i])
		a.Deps[next[e]] = int32(i)
		next[e]++
	}
	return a
}

// Order returns the tasks in an order in which every task comes after its predecessors. An error names the
// tasks of a cycle.
func (g *Graph) Order() ([]int, error) {
	succ := g.Successors()
	missing := make([]int32, len(g.Tasks))
	for _, d := range g.Deps {
		missing[d.To]++
	}
	order := make([]int, 0, len(g.Tasks))
	for i, n := range missing {
		if n == 0 {
			order = append(order, i)
		}
	}
	for at := 0; at < len(order); at++ {
		for _, d := range succ.Of(order[at]) {
			to := g.Deps[d].To
			if missing[to]--; missing[to] == 0 {
				order = append(order, to)
			}
		}
	}
	if len(order) < len(g.Tasks) {
		return nil, fmt.Errorf("%w: deps: cycle: %s", ErrGraph, g.cycle(missing))
	}
	return order, nil
}

// cycle describes a cycle among the tasks that still wait. Steps from a waiting task to a task that it waits for end in
// a cycle.
func (g *Graph) cycle(missing []int32) string {
	pred := g.Predecessors()
	back := func(i int) int {
		for _, d := range pred.Of(i) {
			if from := g.Deps[d].From; missing[from] > 0 {
				return from
			}
		}
		return -1 // never: a waiting task waits for a waiting task
	}
	at := 0
	for missing[at] == 0 {
		at++
	}
	for range g.Tasks {
		at = back(at)
	}
	text, length := "", 0
	for i := at; ; i = back(i) {
		if length < 8 {
			text = fmt.Sprintf("tasks[%d] %q -> ", i, g.Tasks[i].Name) + text
		}
		if length++; length > 1 && i == at {
			break
		}
	}
	return text[:len(text)-4] + fmt.Sprintf(" (%d tasks)", length-1)
}
