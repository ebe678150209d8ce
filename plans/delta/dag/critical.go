package dag

import "slices"

// LongestPath returns the length of the longest path, delays included, if every task takes the time that time returns.
func (g *Graph) LongestPath(time func(*Task) float64) float64 {
	longest := 0.0
	for i, head := range g.Heads(time) {
		longest = max(longest, head+time(&g.Tasks[i]))
	}
	return longest
}

// Heads returns, by task, the longest path to its start: its earliest start, if every task takes the time that time
// returns. The graph is valid.
func (g *Graph) Heads(time func(*Task) float64) []float64 {
	order, _ := g.Order()
	succ := g.Successors()
	head := make([]float64, len(g.Tasks))
	for _, i := range order {
		end := head[i] + time(&g.Tasks[i])
		for _, d := range succ.Of(i) {
			to := g.Deps[d].To
			head[to] = max(head[to], end+g.Deps[d].Delay)
		}
	}
	return head
}

// Tails returns, by task, the longest path from its end to the end of the graph, if every task takes the time that time
// returns. The graph is valid.
func (g *Graph) Tails(time func(*Task) float64) []float64 {
	order, _ := g.Order()
	pred := g.Predecessors()
	tail := make([]float64, len(g.Tasks))
	for _, i := range slices.Backward(order) {
		begin := tail[i] + time(&g.Tasks[i])
		for _, d := range pred.Of(i) {
			from := g.Deps[d].From
			tail[from] = max(tail[from], begin+g.Deps[d].Delay)
		}
	}
	return tail
}

// Critical returns a critical path of a run, in order of time, and its communication between pods: the makespan without
// the work and the delays on the path. If several paths are critical, Critical returns the one with the most.
func (g *Graph) Critical(s *Schedule) (path []int, communication float64) {
	return g.critical(s, func(a, b float64) bool { return a < b })
}

// LeastCommunication is [Graph.Critical] for the critical path with the least communication.
func (g *Graph) LeastCommunication(s *Schedule) float64 {
	_, communication := g.critical(s, func(a, b float64) bool { return a > b })
	return communication
}

// critical returns the critical path whose work and delays together come first in the order of before.
func (g *Graph) critical(s *Schedule, before func(a, b float64) bool) (path []int, communication float64) {
	order, _ := g.Order()
	pred := g.Predecessors()
	rigid := make([]float64, len(g.Tasks)) // work and delays up to the end of the task
	via := make([]int, len(g.Tasks))
	last := -1
	for _, i := range order {
		via[i] = -1
		binding := 0.0
		for _, d := range pred.Of(i) {
			binding = max(binding, s.Spans[g.Deps[d].From].End+g.Deps[d].Delay)
		}
		for _, d := range pred.Of(i) {
			dep := &g.Deps[d]
			if at := s.Spans[dep.From].End + dep.Delay; !sameTime(at, binding) {
				continue
			}
			if r := rigid[dep.From] + dep.Delay; via[i] < 0 || before(r, rigid[i]) {
				via[i], rigid[i] = dep.From, r
			}
		}
		rigid[i] += g.Tasks[i].Duration
		end := s.Spans[i].End
		if sameTime(end, s.Makespan) && (last < 0 || before(rigid[i], rigid[last])) {
			last = i
		}
	}
	if last < 0 {
		return nil, 0
	}
	for i := last; i >= 0; i = via[i] {
		path = append(path, i)
	}
	slices.Reverse(path)
	return path, max(0, s.Makespan-rigid[last])
}

// sameTime allows for the rounding of sums.
func sameTime(a, b float64) bool {
	d := a - b
	return d <= 1e-6 && d >= -1e-6 || d <= 1e-9*b && d >= -1e-9*b
}
