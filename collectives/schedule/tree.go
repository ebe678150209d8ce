package schedule

import "math/bits"

// chunks is the parameter of pipelined trees: how many a block, or half a block, is cut into.
// The usual number is twice the height, so that filling the pipeline costs about half as
// many steps again.
var chunks = &parameter{
	what: "one number of chunks", most: 1, least: 1,
	usual: func(n int) int { return max(1, 2*bits.Len(uint(n-1))) },
}

// The complete binary tree on relative ranks: v's children are 2v+1 and 2v+2. A chunk goes
// one level a step, to both children at once (two flows a rank, on as many ports), and the
// next chunk follows in the next step: floor(log2 n) + C-1 steps of m/C bytes for C chunks.

// level returns the depth of v in the complete binary tree.
func level(v int) int { return bits.Len(uint(v+1)) - 1 }

// treeSteps calls f for every child and chunk that passes its link in a step; downwards.
// Upwards it is the same with first 0 for the deepest level.
func (b *builder) treeSteps(first func(v int) int, f func(parent, v, chunk int)) {
	for t := range level(b.n-1) + b.Sub - 1 {
		b.step()
		for v := 1; v < b.n; v++ {
			if c := t - first(v); c >= 0 && c < b.Sub {
				f((v-1)/2, v, c)
			}
		}
	}
}

// treeBroadcast sends every chunk down the complete binary tree.
func treeBroadcast(b *builder) {
	b.Sub = b.parameter()
	b.load(b.Root, 0, Ref{Output, 0}, b.Sub)
	b.treeSteps(func(v int) int { return level(v) - 1 }, func(parent, v, c int) {
		b.send(b.rank(parent), b.rank(v), Ref{Output, c}, Ref{Output, c}, 1)
	})
}

// treeReduce sends every chunk up the complete binary tree; a parent adds its first child's
// to its own and then its second child's.
func treeReduce(b *builder) {
	b.Sub = b.parameter()
	b.Blocks[Scratch] = 1
	b.loadWork()
	b.reserve(2, 1)
	height := level(b.n - 1)
	b.treeSteps(func(v int) int { return height - level(v) }, func(parent, v, c int) {
		src, dst := b.rank(v), b.rank(parent)
		b.combine((v-1)%2, src, dst, Ref{b.work(src), c}, Ref{b.work(dst), c}, 1)
	})
}
