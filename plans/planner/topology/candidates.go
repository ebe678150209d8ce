package topology

import (
	"fmt"
	"slices"

	"lightpath/plans"
)

// Limits of Candidates: the most ranks for rings of every distance, the most dimensions of a torus, and the most tori
// with strides chosen per dimension. Beyond the last, all dimensions have one stride and the most compact tori stay.
const (
	allRings    = 32
	maxDims     = 6
	maxTori     = 256
	randomGraph = 1 // seed of the expanders
)

// Candidates returns graphs of n ranks and at most ports ports that planes of the given kind can hold: the shifted
// rings, shifted tori, generalized Kautz graph and expander of HARVEST, appendix A, and circulants. Some are not
// connected: a shifted ring whose stride divides n is for steps that stay on its cycles. A graph uses fewer than ports
// ports only if the kind demands it (interleaved planes come in pairs). The result is deterministic, in the order
// named, unless stop, which may be nil, returns true: then some graphs are missing. It is empty for n < 2 or ports < 1,
// or if the kind allows no graph of as many ports.
func Candidates(n, ports int, kind plans.CircuitKind, stop func() bool) []Graph {
	if n < 2 || ports < 1 {
		return nil
	}
	c := collector{ports: ports, kind: kind}
	for _, s := range strides(n) {
		c.add(Circulant(n, s))
	}
	for count := 2; count <= min(ports, maxDims); count++ {
		if stop != nil && stop() {
			return c.all
		}
		for _, t := range tori(n, count) {
			c.add(t, nil)
		}
	}
	oneWay := ports // ports that are left when the kind takes one for each other direction
	if kind != plans.Simplex {
		oneWay = ports / 2
	}
	c.add(Kautz(n, oneWay))
	if kind == plans.Duplex {
		c.addExact(MatchingExpander(n, ports, randomGraph))
	} else {
		c.add(Expander(n, oneWay, randomGraph))
	}
	c.add(BestCirculant(n, oneWay, stop))
	c.add(BestCirculant(n, ports/2, stop))
	return c.all
}

// collector gathers distinct graphs for one kind of planes.
type collector struct {
	ports int
	kind  plans.CircuitKind
	all   []Graph
	seen  map[string]bool
}

// add adds a graph, given by one direction, unless err is not nil or the graph does not fit.
func (c *collector) add(g Graph, err error) {
	if err != nil {
		return
	}
	if g, ok := fit(g, c.ports, c.kind); ok {
		c.addExact(g, nil)
	}
}

func (c *collector) addExact(g Graph, err error) {
	if err != nil {
		return
	}
	digests := make([]uint64, len(g.Maps))
	for i, p := range g.Maps {
		digests[i] = p.Digest()
	}
	slices.Sort(digests)
	key := fmt.Sprint(digests)
	if c.seen[key] {
		return
	}
	if c.seen == nil {
		c.seen = make(map[string]bool)
	}
	c.seen[key] = true
	c.all = append(c.all, g)
}

// strides returns the strides of the shifted rings worth trying on n ranks, ascending up to
// n/2: powers of two, and up to 32 ranks every one.
func strides(n int) []int {
	var strides []int
	for s := 1; s <= n/2; {
		strides = append(strides, s)
		if n <= allRings {
			s++
		} else {
			s *= 2
		}
	}
	return strides
}

// fit extends g, one direction of a graph, to the ports of a plane kind. It adds the other direction if there are ports
// for both or the kind demands it, and repeats while ports are left. A port that is its own inverse, as in a dimension
// of 2, takes part twice only if there is room.
func fit(g Graph, ports int, kind plans.CircuitKind) (Graph, bool) {
	var both Graph
	switch kind {
	case plans.Duplex:
		both = g.Halved()
	case plans.Interleaved:
		both, ports = g.Paired(), ports&^1
	default:
		both = g.Paired()
	}
	if both.Ports() > ports && kind != plans.Interleaved {
		both = both.distinct()
	}
	switch {
	case both.Ports() <= ports:
		return both.Filled(ports), true
	case kind == plans.Simplex && g.Ports() <= ports:
		return g.Filled(ports), true
	default:
		return Graph{}, false
	}
}

// tori returns the tori of n ranks with count dimensions, for every combination of strides
// up to half a dimension that are powers of two.
func tori(n, count int) []Graph {
	var all []Graph
	shapes := Factorizations(n, count)
	total := 0
	for _, dims := range shapes {
		combos := 1
		for _, a := range dims {
			combos *= len(powersUpTo(a / 2))
		}
		total += combos
	}
	if total > maxTori { // keep the compact ones
		slices.SortStableFunc(shapes, func(a, b []int) int { return sum(a) - sum(b) })
	}
	for _, dims := range shapes {
		for _, strides := range strideSets(dims, total > maxTori) {
			if g, err := Torus(dims, strides); err == nil && len(all) < maxTori {
				all = append(all, g)
			}
		}
	}
	return all
}

// strideSets returns the strides of the shifted tori of dims: per dimension, or, if
// uniform, the same power of two in all dimensions as far as each of them goes.
func strideSets(dims []int, uniform bool) [][]int {
	if uniform {
		var sets [][]int
		longest := 0
		for _, a := range dims {
			longest = max(longest, a)
		}
		for _, s := range powersUpTo(longest / 2) {
			set := make([]int, len(dims))
			for i, a := range dims {
				p := powersUpTo(a / 2)
				set[i] = min(s, p[len(p)-1])
			}
			sets = append(sets, set)
		}
		return sets
	}
	sets := [][]int{nil}
	for _, a := range dims {
		var longer [][]int
		for _, set := range sets {
			for _, s := range powersUpTo(a / 2) {
				longer = append(longer, append(set[:len(set):len(set)], s))
			}
		}
		sets = longer
	}
	return sets
}

func sum(values []int) int {
	total := 0
	for _, v := range values {
		total += v
	}
	return total
}

func powersUpTo(limit int) []int {
	var all []int
	for s := 1; s <= max(1, limit); s *= 2 {
		all = append(all, s)
	}
	return all
}
