package schedule

import "math/bits"

// chunks is the parameter of pipelined trees: the number of chunks of a block, or of each half of a block. The default
// is twice the height, so that filling the pipeline adds half as many steps.
var chunks = &parameter{
	what: "one number of chunks", maxCount: 1, minValue: 1,
	defaultValue: func(n int) int { return max(1, 2*bits.Len(uint(n-1))) },
}

// link is a link of a tree.
type link struct {
	parent, child int
	tree          int // number of the tree; trees share the data
	level         int // of the child; a root has level 0
	sibling       int // number of children of parent before this one
}

// treeSteps appends the steps in which every chunk uses every link, downwards or upwards, one level per step. A chunk
// begins one step after the previous chunk. treeSteps calls f for each link and chunk. Tree i has the i-th share of the
// chunks. The number of steps is the height plus the chunks of a share, minus one.
func (b *builder) treeSteps(links []link, trees int, up bool, f func(l *link, chunk int)) {
	share, height := b.Sub/trees, 0
	for i := range links {
		height = max(height, links[i].level)
	}
	for t := range height + share - 1 {
		b.step()
		for i := range links {
			l := &links[i]
			c := t - l.level + 1
			if up {
				c = t - height + l.level
			}
			if c >= 0 && c < share {
				f(l, l.tree*share+c)
			}
		}
	}
}

// rootedTrees builds a broadcast or a reduce over trees of relative ranks.
func (b *builder) rootedTrees(links []link, trees int) {
	b.Sub = trees * b.parameter()
	if b.Collective == Broadcast {
		b.load(b.Root, 0, Ref{Output, 0}, b.Sub)
		b.treeSteps(links, trees, false, func(l *link, c int) {
			b.send(b.rank(l.parent), b.rank(l.child), Ref{Output, c}, Ref{Output, c}, 1)
		})
		return
	}
	b.Blocks[Scratch] = 1
	b.reserve(2, 1)
	b.loadWork()
	b.treeSteps(links, trees, true, func(l *link, c int) {
		src, dst := b.rank(l.child), b.rank(l.parent)
		b.combine(l.sibling, src, dst, Ref{b.work(src), c}, Ref{b.work(dst), c})
	})
}

// binaryTree is the complete binary tree on relative ranks, in which the children of v are 2v+1 and 2v+2. It has
// floor(log2 n) + C-1 steps of m/C bytes for C chunks. A rank sends to both children at once, with two flows on two
// ports. In a reduce, a rank adds the contribution of the first child and then that of the second.
func binaryTree(b *builder) {
	var links []link
	for v := 1; v < b.n; v++ {
		level := bits.Len(uint(v+1)) - 1
		links = append(links, link{parent: (v - 1) / 2, child: v, level: level, sibling: (v - 1) % 2})
	}
	b.rootedTrees(links, 1)
}

// The double binary tree (Sanders, Speck and Traeff 2009; NCCL since 2.4) consists of two trees, each for half of the
// data. A rank that is an inner node of one tree is a leaf of the other, so no rank sends more than the message, which
// is optimal.
//
// In both trees together, a rank has at most two links down and two links up. So all links form two partial
// permutations (Konig), and two planes that hold one each need not switch during a broadcast or reduce. Each half has C
// chunks, which gives C + O(log n) steps of m/(2C) bytes on two ports.

// doubleTree returns the links of the two trees on the m nodes first, first+1, ..., with parents before children. root
// is a node above both trees; if it is negative, each tree has its own root. The inner nodes of the second tree are the
// leaves of the first. The second tree is the mirror image of the first if m is even, and shifted by one otherwise.
func doubleTree(m, first, root int) []link {
	nodes := [2]func(i int) int{
		func(i int) int { return i - 1 },
		func(i int) int { return m - i },
	}
	if m%2 != 0 {
		nodes[1] = func(i int) int { return i % m }
	}
	var links []link
	for tree, node := range nodes {
		level, children := make([]int, m+1), make([]int, m+1)
		for bit := floorPow2(m); bit > 0; bit /= 2 {
			for i := bit; i <= m; i += 2 * bit {
				up := inorderParent(i, m)
				l := link{parent: root, child: first + node(i), tree: tree, level: 1, sibling: children[up]}
				if up > 0 {
					l.parent, l.level = first+node(up), level[up]+1
				} else if root < 0 {
					continue
				}
				level[i] = l.level
				children[up]++
				links = append(links, l)
			}
		}
	}
	return links
}

// inorderParent returns the parent of node i of 1..m in the in-order tree whose leaves are odd. The level of a node,
// from below, is the position of its lowest set bit. It returns 0 for the root.
func inorderParent(i, m int) int {
	bit := i & -i
	if up := i&^bit | bit<<1; up <= m {
		return up
	}
	return i &^ bit
}

func doubleTreeRooted(b *builder) { b.rootedTrees(doubleTree(b.n-1, 1, 0), 2) }

// doubleTreeAllReduce reduces each half to the root of its tree; the root then broadcasts it.
func doubleTreeAllReduce(b *builder) {
	b.Sub = 2 * b.parameter()
	b.reserve(2, 1)
	b.loadAll(Output)
	links := doubleTree(b.n, 0, -1)
	b.treeSteps(links, 2, true, func(l *link, c int) {
		b.combine(l.sibling, l.child, l.parent, Ref{Output, c}, Ref{Output, c})
	})
	b.treeSteps(links, 2, false, func(l *link, c int) {
		b.send(l.parent, l.child, Ref{Output, c}, Ref{Output, c}, 1)
	})
}
