package schedule

// rabenseifnerAllReduce is Rabenseifner's halving and doubling in the order of SWOT Fig. 3
// and 5: reduce-scatter by exchanges with r xor 1, 2, 4, ... of m/2, m/4, m/8, ... bytes,
// then the mirrored allgather; 2 log2 p steps, 2(p-1)/p m bytes per rank. p is the largest
// power of two not above n; ranks beyond it fold in and out as in [xorAllReduce].
func rabenseifnerAllReduce(b *builder) {
	p := floorPow2(b.n)
	b.Sub = p
	b.loadAll(Output)
	b.fold(p, Output)
	start := make([]int, p+1)
	for q := range start {
		start[q] = q
	}
	b.halving(Output, start)
	b.doubling(start)
	b.unfold(p)
}

// rabenseifnerReduceScatter is the first half of [rabenseifnerAllReduce] on blocks: log2 n
// steps, (n-1)/n of S per rank. Where n is no power of two, rank r < n-p owns the block of
// rank r+p besides its own until a last step hands it over.
func rabenseifnerReduceScatter(b *builder) {
	p := floorPow2(b.n)
	b.Blocks[Scratch] = b.n
	owner := reversal(p)
	start := make([]int, p+1)
	pos := make([]int, b.n)
	for q := range p {
		o, at := owner(q), start[q]
		for ; o < b.n; o += p {
			pos[o] = at
			at++
		}
		start[q+1] = at
	}
	for r := range b.n {
		for c := range b.n {
			b.load(r, c, Ref{Scratch, pos[c]}, 1)
		}
	}
	b.fold(p, Scratch)
	b.halving(Scratch, start)
	if p < b.n {
		b.step()
	}
	for r := range b.n {
		if r < p {
			b.finish(r, Ref{Scratch, pos[r]}, Ref{Output, 0}, 1)
		} else {
			b.send(r-p, r, Ref{Scratch, pos[r]}, Ref{Output, 0}, 1)
		}
	}
}

// halving leaves at rank r < p the sum of its group of chunks. Group q, the chunks
// start[q]..start[q+1], is that of rank reversal(q): ranks that agree in their low bits own
// one range of groups.
func (b *builder) halving(buf Buffer, start []int) {
	p := len(start) - 1
	for m := 1; m < p; m *= 2 {
		b.step()
		for r := range p {
			lo, hi := span(p, 2*m, r^m)
			at := Ref{buf, start[lo]}
			b.sendReduce(r, r^m, at, at, start[hi]-start[lo])
		}
	}
}

// doubling spreads the groups of Output from their owners to all ranks below p.
func (b *builder) doubling(start []int) {
	p := len(start) - 1
	for m := p / 2; m >= 1; m /= 2 {
		b.step()
		for r := range p {
			lo, hi := span(p, 2*m, r)
			at := Ref{Output, start[lo]}
			b.send(r, r^m, at, at, start[hi]-start[lo])
		}
	}
}

// span returns the range of groups that the ranks congruent to r modulo m own; p and m
// are powers of two.
func span(p, m, r int) (lo, hi int) {
	lo = reversal(p)(r % m)
	return lo, lo + p/m
}
