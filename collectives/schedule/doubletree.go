package schedule

// The double binary tree (Sanders, Speck and Traeff 2009; NCCL since 2.4): two trees, each
// for half of the data. A rank that is an inner node of one is a leaf of the other, so no rank
// sends more than it receives. Every rank has at most two links down and two up in both
// trees, and so the links fall into two partial permutations (Konig); the steps use one
// and the other in turn. Two configurations serve a whole broadcast, one on each of two
// planes, or the two directions of duplex planes' circuits; each half goes down in C chunks:
// 2C + O(log n) steps of m/(2C) bytes.

// link is one of a tree's.
type link struct {
	parent, child int
	tree          int // 0 or 1
	colour        int // 0 or 1: which of the two permutations it is in
	first         int // the step in which the first chunk goes down it
}

// inorderParent returns the parent of node i of 1..m in the tree whose inner nodes are the
// even ones: those with i's lowest set bit are i's level. 0: i is the root.
func inorderParent(i, m int) int {
	bit := i & -i
	if up := i&^bit | bit<<1; up <= m {
		return up
	}
	return i &^ bit
}

// doubleTree returns the links of the two trees on m nodes, 0..m-1, parents before children.
// The second tree is the mirror image of the first where m is even, else the first
// shifted by one, so that its inner nodes are the others. An outer root is node -1, above
// both trees; without one the trees have two roots.
func doubleTree(m int, outer bool) []link {
	nodes := [2]func(i int) int{
		func(i int) int { return i - 1 },
		func(i int) int { return m - i },
	}
	if m%2 != 0 {
		nodes[1] = func(i int) int { return i % m }
	}
	var links []link
	for tree, node := range nodes {
		for bit := floorPow2(m); bit > 0; bit /= 2 {
			for i := bit; i <= m; i += 2 * bit {
				if up := inorderParent(i, m); up > 0 {
					links = append(links, link{parent: node(up), child: node(i), tree: tree})
				} else if outer {
					links = append(links, link{parent: -1, child: node(i), tree: tree})
				}
			}
		}
	}
	colourLinks(links, m)
	var ready [2][]int // by tree and node + 1: when it has its first chunk
	ready[0], ready[1] = make([]int, m+1), make([]int, m+1)
	for i := range links {
		l := &links[i]
		at := ready[l.tree]
		l.first = at[l.parent+1]
		l.first += (l.first + l.colour) % 2
		at[l.child+1] = l.first + 1
	}
	return links
}

// colourLinks colours links so that no two with one parent, and no two with one child, are
// alike: a walk along paths and even cycles, since no node has more than two of either.
func colourLinks(links []link, m int) {
	down, up := make([][]int, m+1), make([][]int, m)
	for i := range links {
		l := &links[i]
		l.colour = -1
		down[l.parent+1] = append(down[l.parent+1], i)
		up[l.child] = append(up[l.child], i)
	}
	for i := range links {
		if links[i].colour >= 0 {
			continue
		}
		links[i].colour = 0
		for walk := []int{i}; len(walk) > 0; {
			l := &links[walk[0]]
			walk = walk[1:]
			for _, near := range [][]int{down[l.parent+1], up[l.child]} {
				for _, k := range near {
					if links[k].colour < 0 {
						links[k].colour = 1 - l.colour
						walk = append(walk, k)
					}
				}
			}
		}
	}
}

// doubleTreeSteps appends the steps in which every chunk goes down every link, or up, last
// to first, and calls f for each.
func (b *builder) doubleTreeSteps(links []link, up bool, f func(l *link, chunk int)) {
	half := b.Sub / 2
	last := 0
	for i := range links {
		last = max(last, links[i].first+2*(half-1))
	}
	for t := range last + 1 {
		at := t
		if up {
			at = last - t
		}
		b.step()
		for i := range links {
			l := &links[i]
			c := at - l.first
			if c < 0 || c%2 != 0 || c/2 >= half {
				continue
			}
			if c /= 2; up {
				c = half - 1 - c
			}
			f(l, l.tree*half+c)
		}
	}
}

// doubleTreeBroadcast: the root is above both trees of the other ranks.
func doubleTreeBroadcast(b *builder) {
	b.Sub = 2 * b.parameter()
	b.load(b.Root, 0, Ref{Output, 0}, b.Sub)
	b.doubleTreeSteps(doubleTree(b.n-1, true), false, func(l *link, c int) {
		b.send(b.rank(l.parent+1), b.rank(l.child+1), Ref{Output, c}, Ref{Output, c}, 1)
	})
}

// doubleTreeReduce mirrors [doubleTreeBroadcast].
func doubleTreeReduce(b *builder) {
	b.Sub = 2 * b.parameter()
	b.Blocks[Scratch] = 1
	b.loadWork()
	b.doubleTreeSteps(doubleTree(b.n-1, true), true, func(l *link, c int) {
		src, dst := b.rank(l.child+1), b.rank(l.parent+1)
		b.sendReduce(src, dst, Ref{b.work(src), c}, Ref{b.work(dst), c}, 1)
	})
}

// doubleTreeAllReduce reduces each half to the root of its tree, which then broadcasts it.
func doubleTreeAllReduce(b *builder) {
	b.Sub = 2 * b.parameter()
	b.loadAll(Output)
	links := doubleTree(b.n, false)
	b.doubleTreeSteps(links, true, func(l *link, c int) {
		b.sendReduce(l.child, l.parent, Ref{Output, c}, Ref{Output, c}, 1)
	})
	b.doubleTreeSteps(links, false, func(l *link, c int) {
		b.send(l.parent, l.child, Ref{Output, c}, Ref{Output, c}, 1)
	})
}
