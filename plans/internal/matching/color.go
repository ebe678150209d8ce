package matching

import "math/rand/v2"

// Color divides the edges {sender, receiver} of a bipartite multigraph with n senders and n receivers into matchings.
// Their number is its largest degree, the fewest possible (Konig's theorem). color[i] in 0..degree-1 is the matching of
// edge i. The edges are not changed; repeated edges are allowed and get different colours.
//
// Method: vertices of small degree are merged and the graph is padded until it is regular. An Euler split halves an
// even degree. An odd degree first loses a perfect matching, found by random walks (Goel, Kapralov and Khanna, "Perfect
// matchings in O(n log n) time in regular bipartite graphs"; the generator's seed is fixed). O(E log n) expected.
func Color(n int, edges [][2]int) (color []int, degree int) {
	deg := [2][]int32{make([]int32, n), make([]int32, n)}
	for _, e := range edges {
		for side := range deg {
			deg[side][e[side]]++
			degree = max(degree, int(deg[side][e[side]]))
		}
	}
	color = make([]int, len(edges))
	if degree == 0 {
		return color, 0
	}
	c := regular(edges, deg, degree)
	c.divide(c.ids, degree, 0)
	for i := range color {
		color[i] = int(c.color[i])
	}
	return color, degree
}

// coloring works on a regular multigraph whose first edges are the caller's.
type coloring struct {
	n     int        // vertices on each side
	ends  [2][]int32 // per side: edge -> vertex
	color []int32    // per edge
	ids   []int32    // edges, permuted so that every subproblem is a range
	rng   *rand.Rand

	slot  [2][]int32 // per side: edges by vertex, degree slots each
	at    [2][]int32 // per side: edge -> its slot
	fill  []int32    // per vertex
	class []uint8    // per edge: half of the split
	mate  []int32    // per receiver: edge of the matching
	next  []int32    // per sender: edge by which the walk left it last
}

// regular merges vertices until at most one on each side has half the degree or less, and adds edges until the graph is
// regular.
func regular(edges [][2]int, deg [2][]int32, degree int) *coloring {
	var group, spare [2][]int32
	groups := 0
	for side := range deg {
		group[side], spare[side] = merge(deg[side], int32(degree))
		groups = max(groups, len(spare[side]))
	}
	total := groups * degree
	c := &coloring{n: groups, rng: rand.New(rand.NewPCG(1, 2))}
	for side := range c.ends {
		c.ends[side] = make([]int32, total)
		c.slot[side] = make([]int32, total)
		c.at[side] = make([]int32, total)
		for i, e := range edges {
			c.ends[side][i] = group[side][e[side]]
		}
		i := len(edges)
		for v := range groups {
			room := int32(degree)
			if v < len(spare[side]) {
				room = spare[side][v]
			}
			for ; room > 0; room-- {
				c.ends[side][i] = int32(v)
				i++
			}
		}
	}
	c.color, c.ids, c.class = make([]int32, total), make([]int32, total), make([]uint8, total)
	for i := range c.ids {
		c.ids[i] = int32(i)
	}
	c.fill, c.mate, c.next = make([]int32, groups), make([]int32, groups), make([]int32, groups)
	return c
}

// merge puts vertices into groups of at most the given degree. group[v] is the group of v, and spare[g] the degree that
// group g lacks. A vertex goes into the newest group if it fits.
func merge(deg []int32, degree int32) (group, spare []int32) {
	group = make([]int32, len(deg))
	open := None // a group with room for vertices of small degree
	for v, d := range deg {
		if open != None && d <= spare[open] {
			group[v] = int32(open)
			spare[open] -= d
			continue
		}
		group[v] = int32(len(spare))
		spare = append(spare, degree-d)
		if open == None || spare[len(spare)-1] > spare[open] {
			open = len(spare) - 1
		}
	}
	return group, spare
}

// divide colours the regular subgraph of the edges ids with first, first+1, ...
func (c *coloring) divide(ids []int32, degree, first int) {
	for degree > 1 {
		c.index(ids, degree)
		if degree%2 == 1 {
			c.matching(degree)
			for _, e := range c.mate {
				c.color[e] = int32(first)
			}
			ids = c.without(ids)
			degree--
			first++
			continue
		}
		low := c.split(ids)
		c.divide(ids[:low], degree/2, first)
		ids, degree, first = ids[low:], degree/2, first+degree/2
	}
	for _, e := range ids {
		c.color[e] = int32(first)
	}
}

// index lists the edges by vertex.
func (c *coloring) index(ids []int32, degree int) {
	for side := range c.slot {
		for v := range c.fill {
			c.fill[v] = int32(v * degree)
		}
		slot, at, ends := c.slot[side], c.at[side], c.ends[side]
		for _, e := range ids {
			v := ends[e]
			slot[c.fill[v]] = e
			at[e] = c.fill[v]
			c.fill[v]++
		}
	}
}

// split halves the degree. It pairs neighbouring slots of a vertex, so every edge has one partner at each end. The
// edges then form even cycles, whose edges go to the two halves in turn. Then the first low ids are one half. The
// degree must be even.
func (c *coloring) split(ids []int32) (low int) {
	const unset, first, second = 0, 1, 2
	for _, e := range ids {
		c.class[e] = unset
	}
	for _, start := range ids {
		for e := start; c.class[e] == unset; {
			c.class[e] = first
			e = c.slot[0][c.at[0][e]^1]
			c.class[e] = second
			e = c.slot[1][c.at[1][e]^1]
		}
	}
	for i, e := range ids {
		if c.class[e] == first {
			ids[low], ids[i] = ids[i], ids[low]
			low++
		}
	}
	return low
}

// matching finds a perfect matching of the indexed regular graph: c.mate.
func (c *coloring) matching(degree int) {
	for v := range c.mate {
		c.mate[v] = None
	}
	for u := range c.n {
		// Walk along random unmatched edges, and back along matched ones, to a free
		// receiver. next keeps the last way out of every sender, so following it from u
		// again is the walk without its loops.
		held := int32(None)
		for at := u; ; {
			e := c.slot[0][at*degree+c.rng.IntN(degree)]
			if e == held {
				continue
			}
			c.next[at] = e
			if held = c.mate[c.ends[1][e]]; held == None {
				break
			}
			at = int(c.ends[0][held])
		}
		for at := int32(u); ; {
			e := c.next[at]
			v := c.ends[1][e]
			held := c.mate[v]
			c.mate[v] = e
			if held == None {
				break
			}
			at = c.ends[0][held]
		}
	}
}

// without moves the matching to the end of ids and returns the rest.
func (c *coloring) without(ids []int32) []int32 {
	kept := 0
	for i, e := range ids {
		if c.mate[c.ends[1][e]] != e {
			ids[kept], ids[i] = ids[i], ids[kept]
			kept++
		}
	}
	return ids[:kept]
}
