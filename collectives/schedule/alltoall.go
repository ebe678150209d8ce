package schedule

// pairwiseAllToAll: in step i rank r sends r+i its block (SWOT 2.1.2); n-1 steps of one
// block, (n-1)/n of S per rank, the least there is.
func pairwiseAllToAll(b *builder) {
	from := b.loadDistinct()
	for i := 1; i < b.n; i++ {
		b.step()
		for r := range b.n {
			b.exchange(r, b.mod(r+i), from)
		}
	}
}

// xorAllToAll is [pairwiseAllToAll] with r xor i as the partner of step i: every step is
// an involution, as duplex planes need. Powers of two only.
func xorAllToAll(b *builder) {
	from := b.loadDistinct()
	for i := 1; i < b.n; i++ {
		b.step()
		for r := range b.n {
			b.exchange(r, r^i, from)
		}
	}
}

// directAllToAll is one step with all n(n-1) flows.
func directAllToAll(b *builder) {
	from := b.loadDistinct()
	b.step()
	for r := range b.n {
		for i := 1; i < b.n; i++ {
			b.exchange(r, b.mod(r+i), from)
		}
	}
}

// exchange sends d its block from r.
func (b *builder) exchange(r, d int, from Buffer) { b.send(r, d, Ref{from, d}, Ref{Output, r}, 1) }

// loadDistinct moves every rank's own block and returns the buffer to send the others
// from: in place a received block lies where an unsent one was, so Input is set aside.
func (b *builder) loadDistinct() Buffer {
	from := Scratch
	if b.Disjoint {
		from = Input
	} else {
		b.Blocks[Scratch] = b.n
	}
	for r := range b.n {
		b.load(r, r, Ref{Output, r}, 1)
		for c := range b.n {
			if from == Scratch && c != r {
				b.load(r, c, Ref{Scratch, c}, 1)
			}
		}
	}
	return from
}

// bruckAllToAll is the index algorithm of Bruck et al. 1997 with radix 2: the block that
// has to travel distance j makes the hops of the bits of j, lowest first; ceil(log2 n)
// steps of about n/2 blocks over distances 1, 2, 4, ... . A block is sent from Input on its
// first hop and received in Output on its last, so there are no rotations. On the way block
// j lies in one of two slots in turn, so that no step receives where it sends.
func bruckAllToAll(b *builder) {
	first := b.loadDistinct()
	slots := b.Blocks[Scratch]
	b.Blocks[Scratch] += 2 * b.n
	slot := func(j, hops int) Ref { return Ref{Scratch, slots + hops%2*b.n + j} }
	hops := make([]int, b.n)
	for d := 1; d < b.n; d *= 2 {
		b.step()
		for r := range b.n {
			to := b.mod(r + d)
			for j := d; j < b.n; j++ {
				if j&d == 0 {
					continue
				}
				src, dst := slot(j, hops[j]), slot(j, hops[j]+1)
				if hops[j] == 0 {
					src = Ref{first, b.mod(r + j)}
				}
				if j < 2*d {
					dst = Ref{Output, b.mod(to - j)}
				}
				b.send(r, to, src, dst, 1)
			}
		}
		for j := range hops {
			if j&d != 0 {
				hops[j]++
			}
		}
	}
}

// pairwiseReduceScatter: in step i rank r sends r+i its contribution to the block of r+i;
// n-1 steps of one block. Contributions are added in the order r, r-1, r-2, ... .
func pairwiseReduceScatter(b *builder) {
	b.Blocks[Scratch] = b.n
	for r := range b.n {
		b.load(r, r, Ref{Output, 0}, 1)
		for c := range b.n {
			if c != r {
				b.load(r, c, Ref{Scratch, c}, 1)
			}
		}
	}
	for i := 1; i < b.n; i++ {
		b.step()
		for r := range b.n {
			c := b.mod(r + i)
			b.sendReduce(r, c, Ref{Scratch, c}, Ref{Output, 0}, 1)
		}
	}
}

// shiftSendRecv is nccl-tests' sendrecv: one step r -> r+1.
func shiftSendRecv(b *builder) {
	from := Input
	if !b.Disjoint {
		from, b.Blocks[Scratch] = Scratch, 1
		b.loadAll(Scratch)
	}
	b.step()
	for r := range b.n {
		b.send(r, b.mod(r+1), Ref{from, 0}, Ref{Output, 0}, 1)
	}
}
