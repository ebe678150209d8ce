package chakra

import (
	"fmt"
	"slices"
)

// dependencies returns, by node, the nodes that it waits for. Data dependencies all count: the trace has been
// checked. Control dependencies may be those of a call on its caller, which Chakra's feeder passes over. So they
// count only where they can be met: not on nodes that are not in the trace, not of a node on itself, and none of them
// if they make a cycle. odd says which do not count; "" if all do.
func (t *Trace) dependencies() (deps [][]int, odd string) {
	at := make(map[uint64]int, len(t.Nodes))
	for i := range t.Nodes {
		at[t.Nodes[i].ID] = i
	}
	deps = make([][]int, len(t.Nodes))
	data := make([][]int, len(t.Nodes))
	absent, first, controls := 0, "", 0
	for i := range t.Nodes {
		n := &t.Nodes[i]
		for _, d := range n.Deps {
			data[i] = append(data[i], at[d])
		}
		deps[i] = slices.Clone(data[i])
		for _, d := range n.Control {
			controls++
			if from, ok := at[d]; ok && from != i {
				deps[i] = append(deps[i], from)
			} else if absent++; absent == 1 {
				first = fmt.Sprintf("node %d on node %d", n.ID, d)
			}
		}
	}
	switch {
	case cyclic(deps) && !cyclic(data):
		return data, fmt.Sprintf("all %d control dependencies: with them, nodes wait for each other", controls)
	case absent > 0:
		return deps, fmt.Sprintf("%d control dependencies of nodes on themselves or on nodes that are not in the trace, "+
			"the first of %s", absent, first)
	}
	return deps, ""
}

// cyclic reports whether some node waits for itself, directly or through others.
func cyclic(deps [][]int) bool {
	waits, next := make([]int, len(deps)), make([][]int, len(deps))
	var free []int
	for i, list := range deps {
		if waits[i] = len(list); len(list) == 0 {
			free = append(free, i)
		}
		for _, from := range list {
			next[from] = append(next[from], i)
		}
	}
	done := 0
	for ; done < len(free); done++ {
		for _, i := range next[free[done]] {
			if waits[i]--; waits[i] == 0 {
				free = append(free, i)
			}
		}
	}
	return done < len(deps)
}
