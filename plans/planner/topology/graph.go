package topology

import (
	"errors"
	"fmt"

	"lightpath/plans/circuit"
)

// ErrShape is wrapped by the errors of constructors whose arguments describe no graph.
var ErrShape = errors.New("topology: no such graph")

func shapef(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrShape, fmt.Sprintf(format, args...))
}

// Graph is a topology: port i of every rank is wired as Maps[i] says. Several ports may
// have the same circuit, which then counts as often. Graphs share permutations and are
// never changed.
type Graph struct {
	Name string // for people: "torus 8x8, strides 1 and 2"
	Maps []circuit.Permutation
}

// Ranks returns the ranks of g.
func (g Graph) Ranks() int {
	if len(g.Maps) == 0 {
		return 0
	}
	return len(g.Maps[0])
}

// Ports returns the ports that g uses of each rank.
func (g Graph) Ports() int { return len(g.Maps) }

// Paired returns the graph of twice the ports in which port 2i+1 is the inverse of port 2i
// = g.Maps[i]: every circuit in both directions, and what interleaved planes can hold.
func (g Graph) Paired() Graph {
	maps := make([]circuit.Permutation, 0, 2*len(g.Maps))
	for _, p := range g.Maps {
		maps = append(maps, p, p.Inverse())
	}
	return Graph{g.Name + ", both ways", maps}
}

// Halved returns a graph of twice the ports that duplex planes can hold. Ports 2i and 2i+1 are involutions. They hold
// the circuits of g.Maps[i] in both directions, every other one along its cycles. Two matchings do not cover a cycle of
// odd length; Halved leaves out the circuit back to the cycle's lowest rank.
func (g Graph) Halved() Graph {
	maps := make([]circuit.Permutation, 0, 2*len(g.Maps))
	for _, p := range g.Maps {
		even, odd := halves(p)
		maps = append(maps, even, odd)
	}
	return Graph{g.Name + " of matchings", maps}
}

// halves splits the circuits of p, taken as undirected edges, into two matchings.
func halves(p circuit.Permutation) (even, odd circuit.Permutation) {
	n := len(p)
	half := [2]circuit.Permutation{circuit.AllDark(n), circuit.AllDark(n)}
	seen := make([]bool, n)
	// Chains first, from where nothing comes in; what remains are cycles.
	from := p.Inverse()
	walk := func(start int) {
		at, side := start, 0
		for !seen[at] {
			seen[at] = true
			next := p[at]
			if next == circuit.Dark || next == at || half[side][at] != circuit.Dark || half[side][next] != circuit.Dark {
				return
			}
			half[side][at], half[side][next] = next, at
			at, side = next, 1-side
		}
	}
	for r := range n {
		if from[r] == circuit.Dark {
			walk(r)
		}
	}
	for r := range n {
		walk(r)
	}
	return half[0], half[1]
}

// Filled returns g on ports >= g.Ports() ports: the additional ports repeat the first ones.
func (g Graph) Filled(ports int) Graph {
	maps := make([]circuit.Permutation, 0, ports)
	for i := range ports {
		maps = append(maps, g.Maps[i%len(g.Maps)])
	}
	return Graph{g.Name, maps}
}

// distinct returns g without the ports that repeat an earlier one.
func (g Graph) distinct() Graph {
	var seen circuit.Index
	for _, p := range g.Maps {
		seen.Add(p)
	}
	maps := make([]circuit.Permutation, seen.Len())
	for i := range maps {
		maps[i] = seen.At(i)
	}
	return Graph{g.Name, maps}
}
