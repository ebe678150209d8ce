package schedule

// cyclicAllReduce is cyclic recursive doubling (HARVEST 3.2 and 5.1): ceil(log2 n) steps
// of reduce-scatter over distances 1, 2, 4, ... carrying m/2, m/4, m/8, ... and the
// mirrored steps of allgather over the same circuits r -> r+d, so that the configurations
// recur in reverse order. 2(n-1)/n m bytes per rank, for any n (sizes are rounded up to
// chunks of m/n where n is no power of two).
func cyclicAllReduce(b *builder) {
	b.Sub = b.n
	pos := b.cyclicLayout()
	b.loadAll(Output)
	b.cyclicReduceScatter(Output, pos)
	b.cyclicAllGather(pos)
}

// cyclicReduceScatter is the first half of [cyclicAllReduce] on blocks.
func cyclicReduceScatter(b *builder) {
	b.Blocks[Scratch] = b.n
	pos := b.cyclicLayout()
	for r := range b.n {
		for c := range b.n {
			b.load(r, c, Ref{Scratch, pos(c)}, 1)
		}
	}
	b.cyclicReduceScatter(Scratch, pos)
	b.storeOwn(pos)
}

// cyclicAllGather is the second half of [cyclicAllReduce] on blocks.
func cyclicAllGather(b *builder) {
	b.loadOwn()
	b.cyclicAllGather(func(c int) int { return c })
}

// cyclicLayout returns where the chunk of each owner lies in working memory.
func (b *builder) cyclicLayout() func(int) int {
	if floorPow2(b.n) == b.n {
		return reversal(b.n)
	}
	return func(c int) int { return c }
}

// cyclicReduceScatter leaves the sum of rank r's chunk at rank r. Let R[j] be rank r's
// partial sum for the owner r+j. The step of distance d = 2^(i-1) passes every R[j] that is
// left and whose bit i-1 is set to rank r+d, where it is R[j-d]: only j = 0 is left in the
// end. That holds for any n, since j-d is an index whenever j is.
func (b *builder) cyclicReduceScatter(buf Buffer, pos func(int) int) {
	var chunks []int
	for d := 1; d < b.n; d *= 2 {
		b.step()
		for r := range b.n {
			chunks = chunks[:0]
			for j := d; j < b.n; j += 2 * d {
				chunks = append(chunks, pos(b.mod(r+j)))
			}
			b.sendSame(r, b.mod(r+d), buf, chunks, true)
		}
	}
}

// cyclicAllGather spreads rank r's chunk of Output from rank r to all. Before the step of
// distance d a rank has the chunks of the owners r-j with j a multiple of 2d; it passes
// them to r+d, for which they are the odd multiples of d.
func (b *builder) cyclicAllGather(pos func(int) int) {
	var chunks []int
	for d := floorPow2(b.n - 1); d >= 1; d /= 2 {
		b.step()
		for r := range b.n {
			chunks = chunks[:0]
			for j := 0; j+d < b.n; j += 2 * d {
				chunks = append(chunks, pos(b.mod(r-j)))
			}
			b.sendSame(r, b.mod(r+d), Output, chunks, false)
		}
	}
}

// xorAllReduce is recursive doubling by pairwise exchange (Thakur, Rabenseifner and Gropp
// 2005): log2 p steps in which r and r xor 2^i exchange the whole vector; m log2 p bytes
// per rank, the fewest steps there are. p is the largest power of two not above n; each
// rank beyond p folds its vector into rank r-p in a step before and gets the result in a
// step after. The two sides of an exchange add the same two values in opposite order.
func xorAllReduce(b *builder) {
	b.Blocks[Scratch] = 1
	b.loadAll(Output)
	p := floorPow2(b.n)
	b.fold(p, Output)
	for m := 1; m < p; m *= 2 {
		b.step()
		for r := range p {
			b.send(r, r^m, Ref{Output, 0}, Ref{Scratch, 0}, 1)
			b.local(r, Ref{Scratch, 0}, Ref{Output, 0}, 1, true)
		}
	}
	b.unfold(p)
}

// fold adds the working memory of ranks p.. to that of ranks 0.., in a step of its own.
func (b *builder) fold(p int, buf Buffer) {
	if p == b.n {
		return
	}
	b.step()
	for e := p; e < b.n; e++ {
		b.sendReduce(e, e-p, Ref{buf, 0}, Ref{buf, 0}, b.Blocks[buf]*b.Sub)
	}
}

// unfold copies the result of ranks 0.. to ranks p.., in a step of its own.
func (b *builder) unfold(p int) {
	if p == b.n {
		return
	}
	b.step()
	for e := p; e < b.n; e++ {
		b.send(e-p, e, Ref{Output, 0}, Ref{Output, 0}, b.Sub)
	}
}

// xorAllGather is recursive doubling by pairwise exchange: r and r xor 2^i exchange the
// 2^i blocks that each has; log2 n steps, (n-1)/n of S per rank. Powers of two only.
func xorAllGather(b *builder) {
	b.loadOwn()
	for m := 1; m < b.n; m *= 2 {
		b.step()
		for r := range b.n {
			at := Ref{Output, r &^ (m - 1)}
			b.send(r, r^m, at, at, m)
		}
	}
}
