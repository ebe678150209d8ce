package schedule

import "math/bits"

// cube is halving and doubling (Thakur, Rabenseifner and Gropp 2005). In the step of bit i, ranks r and r xor 2^i
// exchange, for the bits in any order. The p lowest ranks take part, where p is the largest power of two not above n.
// Rank r < n-p also represents rank r+p: a step before adds the data of r+p to r, and a step after sends the result to
// r+p.
//
// Working memory is ordered by positions: bit i of a rank is bit place[i] of its position. A step sends a set of
// positions that agree in some bits.
type cube struct {
	p     int
	place []int
	// chunks calls f for the chunks of the positions [lo, hi).
	chunks func(lo, hi int, f func(chunk, count int))
}

// cubeBits returns the order 0, 1, 2, ... of the bits.
func cubeBits(n int, _ []int) []int { return upTo(0, bits.Len(uint(n))-1) }

// downBits returns the order ..., 2, 1, 0 of the bits.
func downBits(n int, _ []int) []int { return reversed(cubeBits(n, nil)) }

// halvingPlaces returns the places for which each step of a reduce-scatter sends one range. The first bit of the order
// has the highest place.
func halvingPlaces(order []int) []int {
	place := make([]int, len(order))
	for k, bit := range order {
		place[bit] = len(order) - 1 - k
	}
	return place
}

// position returns the position of rank r < p.
func (c *cube) position(r int) int {
	at := 0
	for bit, place := range c.place {
		at |= r >> bit & 1 << place
	}
	return at
}

// ranges calls f for the ranges of positions that equal at outside of a mask.
func ranges(at, mask int, f func(lo, hi int)) {
	at &^= mask
	run := 1 << bits.TrailingZeros(^uint(mask))
	rest := mask &^ (run - 1)
	for x := 0; ; {
		f(at|x, at|x+run)
		if x = (x - rest) & rest; x == 0 {
			return
		}
	}
}

// halving computes the sum of the chunks of each position in buf at its rank, which is below p. In the step of a bit, a
// rank sends the positions that agree with its partner in this bit and in the earlier ones.
func (b *builder) halving(c *cube, buf Buffer, order []int) {
	left := c.p - 1
	for _, bit := range order {
		left &^= 1 << c.place[bit]
		b.step()
		for r := range c.p {
			to := r ^ 1<<bit
			ranges(c.position(to), left, func(lo, hi int) {
				c.chunks(lo, hi, func(chunk, count int) {
					b.sendReduce(r, to, Ref{buf, chunk}, Ref{buf, chunk}, count)
				})
			})
		}
	}
}

// doubling distributes the chunks of each position in Output to all ranks below p. In the step of a bit, a rank has and
// sends the positions that agree with its own in all bits except the earlier ones.
func (b *builder) doubling(c *cube, order []int) {
	done := 0
	for _, bit := range order {
		b.step()
		for r := range c.p {
			ranges(c.position(r), done, func(lo, hi int) {
				c.chunks(lo, hi, func(chunk, count int) {
					b.send(r, r^1<<bit, Ref{Output, chunk}, Ref{Output, chunk}, count)
				})
			})
		}
		done |= 1 << c.place[bit]
	}
}

// rabenseifnerAllReduce is Rabenseifner's algorithm in the order of SWOT Fig. 3 and 5. The reduce-scatter exchanges
// m/2, m/4, m/8, ... bytes with r xor 1, 2, 4, ...; the allgather reverses it. It has 2 log2 p steps and sends 2(p-1)/p
// m bytes per rank.
func rabenseifnerAllReduce(b *builder) {
	c := &cube{p: floorPow2(b.n), place: halvingPlaces(b.alg.order)}
	c.chunks = func(lo, hi int, f func(chunk, count int)) { f(lo, hi-lo) }
	b.Sub = c.p
	b.loadAll(Output)
	b.fold(c.p, Output)
	b.halving(c, Output, b.alg.order)
	b.doubling(c, b.alg.second)
	b.unfold(c.p)
}

// rabenseifnerReduceScatter is the first half of [rabenseifnerAllReduce] on blocks. It has log2 n steps and sends
// (n-1)/n of S per rank. If n is not a power of two, rank r < n-p also computes the block of rank r+p and sends it in a
// last step.
func rabenseifnerReduceScatter(b *builder) {
	p := floorPow2(b.n)
	c := &cube{p: p, place: halvingPlaces(b.alg.order)}
	owner := make([]int, p) // of a position
	for r := range p {
		owner[c.position(r)] = r
	}
	start := make([]int, p+1) // the first block of a position
	pos := make([]int, b.n)   // of a rank's block
	for q, o := range owner {
		at := start[q]
		for ; o < b.n; o += p {
			pos[o] = at
			at++
		}
		start[q+1] = at
	}
	c.chunks = func(lo, hi int, f func(chunk, count int)) { f(start[lo], start[hi]-start[lo]) }
	b.Blocks[Scratch] = b.n
	for r := range b.n {
		for o := range b.n {
			b.load(r, o, Ref{Scratch, pos[o]}, 1)
		}
	}
	b.fold(p, Scratch)
	b.halving(c, Scratch, b.alg.order)
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

// xorAllGather is recursive doubling by pairwise exchange: r and r xor 2^i exchange all blocks that they have, 1, 2, 4,
// .... It has log2 n steps and sends (n-1)/n of S per rank. If n is not a power of two, there are two more steps. The
// first sends the block of rank r+p to r. The last sends all other blocks to r+p.
func xorAllGather(b *builder) {
	p := floorPow2(b.n)
	c := &cube{p: p, place: cubeBits(b.n, nil)}
	c.chunks = func(lo, hi int, f func(chunk, count int)) {
		f(lo, hi-lo)
		if hi = min(hi, b.n-p); lo < hi {
			f(p+lo, hi-lo)
		}
	}
	b.loadOwn()
	b.foldIn(p)
	b.doubling(c, b.alg.order)
	b.foldOut(p)
}

// xorAllReduce is recursive doubling by pairwise exchange: in each of log2 p steps, r and r xor 2^i exchange the whole
// vector. It sends m log2 p bytes per rank in the fewest possible steps. The two ranks of an exchange add the same two
// values in opposite order.
func xorAllReduce(b *builder) {
	b.Blocks[Scratch] = 1
	b.loadAll(Output)
	p := floorPow2(b.n)
	b.fold(p, Output)
	for _, bit := range b.alg.order {
		b.step()
		for r := range p {
			b.send(r, r^1<<bit, Ref{Output, 0}, Ref{Scratch, 0}, 1)
			b.local(r, Ref{Scratch, 0}, Ref{Output, 0}, true)
		}
	}
	b.unfold(p)
}

// fold adds a step that adds the working memory of ranks p.. to that of ranks 0...
func (b *builder) fold(p int, buf Buffer) {
	if p == b.n {
		return
	}
	b.step()
	for e := p; e < b.n; e++ {
		b.sendReduce(e, e-p, Ref{buf, 0}, Ref{buf, 0}, b.Blocks[buf]*b.Sub)
	}
}

// unfold adds a step that copies the result of ranks 0.. to ranks p...
func (b *builder) unfold(p int) {
	if p == b.n {
		return
	}
	b.step()
	for e := p; e < b.n; e++ {
		b.send(e-p, e, Ref{Output, 0}, Ref{Output, 0}, b.Sub)
	}
}

// foldIn adds a step that sends the blocks of ranks p.. of an AllGather to ranks 0...
func (b *builder) foldIn(p int) {
	if p == b.n {
		return
	}
	b.step()
	for e := p; e < b.n; e++ {
		b.send(e, e-p, Ref{Output, e}, Ref{Output, e}, 1)
	}
}

// foldOut adds a step that sends all blocks from ranks 0.. to ranks p.., except their own.
func (b *builder) foldOut(p int) {
	if p == b.n {
		return
	}
	b.step()
	for e := p; e < b.n; e++ {
		b.send(e-p, e, Ref{Output, 0}, Ref{Output, 0}, e)
		if e+1 < b.n {
			b.send(e-p, e, Ref{Output, e + 1}, Ref{Output, e + 1}, b.n-e-1)
		}
	}
}
