package topology

import (
	"fmt"

	"lightpath/plans/circuit"
	"lightpath/plans/internal/matching"
)

// Kautz returns the generalized Kautz graph of Imase and Itoh, in which rank i leads to the
// ranks -ports*i - a (mod n) for a = 1..ports. Its diameter is at most
// ceil(log n / log ports), the smallest of any known family for every n and degree; ports is
// 1..n-1. Konig's theorem divides its circuits over the ports. Where a port would lead
// several ranks to themselves, it leads each of them to the next one instead.
func Kautz(n, ports int) (Graph, error) {
	if n < 2 || ports < 1 || ports >= n {
		return Graph{}, shapef("a Kautz graph of %d ranks and %d ports", n, ports)
	}
	edges := make([][2]int, 0, n*ports)
	for i := range n {
		for a := 1; a <= ports; a++ {
			edges = append(edges, [2]int{i, (n*ports - (ports*i+a)%n) % n})
		}
	}
	color, degree := matching.Color(n, edges)
	g := Graph{Name: fmt.Sprintf("kautz %d", ports), Maps: make([]circuit.Permutation, degree)}
	for c := range g.Maps {
		g.Maps[c] = circuit.AllDark(n)
	}
	for e, c := range color {
		g.Maps[c][edges[e][0]] = edges[e][1]
	}
	for _, p := range g.Maps {
		joinLoops(p)
	}
	return g, nil
}

// joinLoops joins the ranks that p leads to themselves into one cycle. A single such rank stays as it is. The
// caller must be the only owner of p.
func joinLoops(p circuit.Permutation) {
	first, last := -1, -1
	for r, s := range p {
		if s != r {
			continue
		}
		if first < 0 {
			first = r
		} else {
			p[last] = r
		}
		last = r
	}
	if first >= 0 {
		p[last] = first
	}
}
