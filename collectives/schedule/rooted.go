package schedule

// Binomial trees (Thakur, Rabenseifner and Gropp 2005) use relative ranks v = rank - root. The parent of v is v with
// its lowest set bit cleared, and the subtree of v is the range v..v+bit. They take ceil(log2 n) steps, each a partial
// permutation, for any n and root.

// links calls f for the links of distance m of the binomial tree, with the size of the child's subtree.
func (b *builder) links(m int, f func(parent, child, size int)) {
	for v := 0; v+m < b.n; v += 2 * m {
		f(v, v+m, min(m, b.n-v-m))
	}
}

// rank returns the rank of a relative rank.
func (b *builder) rank(v int) int { return b.mod(v + b.Root) }

// binomialBroadcast sends m bytes per step, the longest distance first.
func binomialBroadcast(b *builder) {
	b.load(b.Root, 0, Ref{Output, 0}, 1)
	for m := floorPow2(b.n - 1); m >= 1; m /= 2 {
		b.step()
		b.links(m, func(parent, child, _ int) {
			b.send(b.rank(parent), b.rank(child), Ref{Output, 0}, Ref{Output, 0}, 1)
		})
	}
}

// binomialReduce sends m bytes per step, the shortest distance first.
func binomialReduce(b *builder) {
	b.Blocks[Scratch] = 1
	b.loadWork()
	for m := 1; m < b.n; m *= 2 {
		b.step()
		b.links(m, func(parent, child, _ int) {
			src, dst := b.rank(child), b.rank(parent)
			b.sendReduce(src, dst, Ref{b.work(src), 0}, Ref{b.work(dst), 0}, 1)
		})
	}
}

// binomialGather sends 1, 2, 4, ... blocks per step. An inner rank collects the blocks of its subtree in Scratch and
// sends its own block from Input. The root collects in Output.
func binomialGather(b *builder) {
	b.Blocks[Scratch] = floorPow2(b.n - 1)
	b.load(b.Root, 0, Ref{Output, b.Root}, 1)
	for m := 1; m < b.n; m *= 2 {
		b.step()
		b.links(m, func(parent, child, size int) {
			src := b.rank(child)
			for w := child; w < child+size; w++ {
				from, to := Ref{Scratch, w - child}, Ref{Scratch, w - parent}
				if w == child {
					from = Ref{Input, 0}
				}
				if parent == 0 {
					to = Ref{Output, b.rank(w)}
				}
				b.send(src, b.rank(parent), from, to, 1)
			}
		})
	}
}

// binomialScatter reverses [binomialGather]: ..., 4, 2, 1 blocks per step.
func binomialScatter(b *builder) {
	b.Blocks[Scratch] = floorPow2(b.n - 1)
	b.load(b.Root, b.Root, Ref{Output, 0}, 1)
	for m := floorPow2(b.n - 1); m >= 1; m /= 2 {
		b.step()
		b.links(m, func(parent, child, size int) {
			dst := b.rank(child)
			for w := child; w < child+size; w++ {
				from, to := Ref{Scratch, w - parent}, Ref{Scratch, w - child}
				if parent == 0 {
					from = Ref{Input, b.rank(w)}
				}
				if w == child {
					to = Ref{Output, 0}
				}
				b.send(b.rank(parent), dst, from, to, 1)
			}
		})
	}
}

// The direct algorithms have one step between the root and all other ranks.

// leaves calls f for every rank except the root, in the order root+1, root+2, ... .
func (b *builder) leaves(f func(r int)) {
	for v := 1; v < b.n; v++ {
		f(b.rank(v))
	}
}

// directBroadcast has one step of m bytes with n-1 flows from the root.
func directBroadcast(b *builder) {
	b.load(b.Root, 0, Ref{Output, 0}, 1)
	b.step()
	b.leaves(func(r int) { b.send(b.Root, r, Ref{Output, 0}, Ref{Output, 0}, 1) })
}

// directReduce has one step of m bytes with n-1 flows to the root. The root then adds them to its own contribution in
// the order root+1, root+2, ..., independent of their arrival.
func directReduce(b *builder) {
	b.Blocks[Scratch] = b.n
	for r := range b.n {
		b.load(r, 0, Ref{b.work(r), 0}, 1)
	}
	b.step()
	b.leaves(func(r int) {
		b.send(r, b.Root, Ref{Scratch, 0}, Ref{Scratch, r}, 1)
		b.local(b.Root, Ref{Scratch, r}, Ref{Output, 0}, true)
	})
}

// directGather has one step of one block with n-1 flows to the root.
func directGather(b *builder) {
	b.load(b.Root, 0, Ref{Output, b.Root}, 1)
	b.step()
	b.leaves(func(r int) { b.send(r, b.Root, Ref{Input, 0}, Ref{Output, r}, 1) })
}

// directScatter has one step of one block with n-1 flows from the root.
func directScatter(b *builder) {
	b.load(b.Root, b.Root, Ref{Output, 0}, 1)
	b.step()
	b.leaves(func(r int) { b.send(b.Root, r, Ref{Input, r}, Ref{Output, 0}, 1) })
}
