package schedule

// The algorithms of this file send every block directly from its source to its destination: (n-1)/n of S per rank,
// which is the minimum. They differ in the pairs of ranks of an exchange, in the order of the n-1 exchanges, and in the
// number of exchanges per step.

// width is the parameter of the pairwise algorithms: the number of exchanges per step.
var width = &parameter{
	what: "one number of exchanges a step", maxCount: 1, minValue: 1,
	defaultValue: func(int) int { return 1 },
	valid:        func(n int, args []int) bool { return args[0] <= max(1, n-1) },
}

// offsets returns the order 1, 2, ..., n-1 of the exchanges.
func offsets(n int, _ []int) []int { return upTo(1, n) }

// exchanges describes the exchanges of an algorithm.
type exchanges struct {
	order []int
	width int                // exchanges per step
	peer  func(r, i int) int // destination of rank r in exchange i; r itself if it sends nothing
}

// pairwise returns exchanges in which rank r sends to r+i (SWOT 2.1.2). A step of width k holds k permutations, which k
// planes serve at once.
func (b *builder) pairwise() exchanges {
	return exchanges{b.alg.order, b.parameter(), func(r, i int) int { return b.mod(r + i) }}
}

// pairwiseXor returns exchanges of r with r xor i, for powers of two. Every exchange is an involution, as duplex planes
// need.
func (b *builder) pairwiseXor() exchanges {
	return exchanges{b.alg.order, b.parameter(), func(r, i int) int { return r ^ i }}
}

// rounds returns the order 0, 1, 2, ... of the rounds of a tournament.
func rounds(n int, _ []int) []int { return upTo(0, n-1+n%2) }

// roundRobin returns the exchanges of a tournament in which each rank meets each other rank once (the circle method).
// In round i, two ranks meet if their sum is i modulo the number of rounds. Every round is an involution, as duplex
// planes need, for any n. In each round, one rank would meet itself. If n is even, it meets the last rank instead. If n
// is odd, it pauses, and there is one more round.
func (b *builder) roundRobin() exchanges {
	m := b.n - 1 + b.n%2
	return exchanges{b.alg.order, b.parameter(), func(r, i int) int {
		if r == m { // n is even: the peer q has 2q = i modulo m, and m is odd
			return i * (m + 1) / 2 % m
		}
		if q := (i - r + m) % m; q != r {
			return q
		}
		if b.n == m {
			return r
		}
		return m
	}}
}

// podPairwise returns exchanges for pods of g consecutive ranks. In exchange s g + u, rank n of pod p sends to rank n+u
// of pod p+n+s. If a pod has no more ranks than there are pods, each link between two pods carries at most one flow
// (LumosCore Eq. 44, for as many pods as ranks in a pod). The own blocks of different ranks belong to different
// exchanges, so there is one exchange more than in [builder.pairwise].
func (b *builder) podPairwise() exchanges {
	g := b.parameter()
	pods := b.n / g
	return exchanges{upTo(0, b.n), 1, func(r, i int) int {
		p, n := r/g, r%g
		return (p+n+i/g)%pods*g + (n+i%g)%g
	}}
}

// direct returns all exchanges of [builder.pairwise] in one step.
func (b *builder) direct() exchanges {
	return exchanges{upTo(1, b.n), b.n - 1, func(r, i int) int { return b.mod(r + i) }}
}

// do begins the steps and calls f for every transfer; k is the number of its exchange in the step.
func (b *builder) do(e exchanges, f func(k, src, dst int)) {
	for at, i := range e.order {
		k := at % e.width
		if k == 0 {
			b.step()
		}
		for r := range b.n {
			if to := e.peer(r, i); to != r {
				f(k, r, to)
			}
		}
	}
}

func pairwiseAllToAll(b *builder) { b.allToAll(b.pairwise()) }
func xorAllToAll(b *builder)      { b.allToAll(b.pairwiseXor()) }
func roundAllToAll(b *builder)    { b.allToAll(b.roundRobin()) }
func podAllToAll(b *builder)      { b.allToAll(b.podPairwise()) }
func directAllToAll(b *builder)   { b.allToAll(b.direct()) }

func (b *builder) allToAll(e exchanges) {
	from := b.loadDistinct()
	b.do(e, func(_, src, dst int) { b.send(src, dst, Ref{from, dst}, Ref{Output, src}, 1) })
}

// loadDistinct copies every rank's own block to Output and returns the buffer from which to send the others. In an
// in-place call, a received block may overwrite an unsent one, so loadDistinct copies Input to Scratch.
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

func pairwiseAllGather(b *builder) { b.allGather(b.pairwise()) }
func xorPairAllGather(b *builder)  { b.allGather(b.pairwiseXor()) }
func roundAllGather(b *builder)    { b.allGather(b.roundRobin()) }
func directAllGather(b *builder)   { b.allGather(b.direct()) }

func (b *builder) allGather(e exchanges) {
	b.loadOwn()
	b.do(e, func(_, src, dst int) { b.send(src, dst, Ref{Output, src}, Ref{Output, src}, 1) })
}

func pairwiseReduceScatter(b *builder) { b.reduceScatter(b.pairwise()) }
func xorPairReduceScatter(b *builder)  { b.reduceScatter(b.pairwiseXor()) }
func roundReduceScatter(b *builder)    { b.reduceScatter(b.roundRobin()) }
func directReduceScatter(b *builder)   { b.reduceScatter(b.direct()) }

// reduceScatter sends every rank the contributions to its block. The rank adds them to its own in the order of the
// exchanges; for [builder.pairwise] this is r, r-1, r-2, ..., for any width.
func (b *builder) reduceScatter(e exchanges) {
	b.Blocks[Scratch] = b.n
	b.reserve(e.width, 1)
	for r := range b.n {
		b.load(r, r, Ref{Output, 0}, 1)
		for c := range b.n {
			if c != r {
				b.load(r, c, Ref{Scratch, c}, 1)
			}
		}
	}
	b.do(e, func(k, src, dst int) { b.combine(k, src, dst, Ref{Scratch, dst}, Ref{Output, 0}) })
}

// directAllReduce has one step in which every rank sends its whole vector to all others. All ranks add the vectors in
// the order of the ranks, so that all get the same bits.
func directAllReduce(b *builder) {
	b.Blocks[Scratch] = b.n
	for r := range b.n {
		b.load(r, 0, Ref{Scratch, r}, 1)
	}
	b.do(b.direct(), func(_, src, dst int) { b.send(src, dst, Ref{Scratch, src}, Ref{Scratch, src}, 1) })
	for r := range b.n {
		for q := range b.n {
			b.local(r, Ref{Scratch, q}, Ref{Output, 0}, q > 0)
		}
	}
}

// shiftSendRecv is the sendrecv of nccl-tests: one step from r to r+1.
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
