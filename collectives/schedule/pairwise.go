package schedule

// The algorithms of this file send every block straight from the rank that has it to the
// rank that wants it: (n-1)/n of S per rank, the least there is. They differ in how many of
// the n-1 exchanges a step holds, in which order, and who meets whom.

// width is the parameter of the pairwise algorithms: the exchanges of a step.
var width = &parameter{
	what: "one number of exchanges a step", most: 1, least: 1,
	usual: func(int) int { return 1 },
	fits:  func(n int, args []int) bool { return args[0] <= max(1, n-1) },
}

// offsets is the order 1, 2, ..., n-1 of the exchanges.
func offsets(n int, _ []int) []int { return upTo(1, n) }

// exchanges says which exchanges there are and when.
type exchanges struct {
	order []int
	width int                // of them a step
	peer  func(r, i int) int // whom rank r sends to in exchange i; r: nobody
}

// pairwise is the exchange i of r with r+i (SWOT 2.1.2), as many a step as the parameter
// says: a step of width k holds k permutations, which as many planes serve at once.
func (b *builder) pairwise() exchanges {
	return exchanges{b.alg.order, b.parameter(), func(r, i int) int { return b.mod(r + i) }}
}

// pairwiseXor is the exchange i of r with r xor i: every one is an involution, as duplex
// planes need. Powers of two only.
func (b *builder) pairwiseXor() exchanges {
	return exchanges{b.alg.order, b.parameter(), func(r, i int) int { return r ^ i }}
}

// rounds is the order 0, 1, 2, ... of the rounds of a tournament.
func rounds(n int, _ []int) []int { return upTo(0, n-1+n%2) }

// roundRobin is the tournament in which each rank meets each other once (the circle
// method): in round i those whose sum is i modulo the rounds meet. Every round is an
// involution, as duplex planes need, for any n. Of an even number of ranks the last meets
// the one that would meet itself; of an odd number that one rests, for one round more.
func (b *builder) roundRobin() exchanges {
	m := b.n - 1 + b.n%2
	return exchanges{b.alg.order, b.parameter(), func(r, i int) int {
		if r == m { // of even n: 2q = i, and m is odd
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

// podPairwise has pods of as many consecutive ranks as the parameter says. In exchange s g + u rank n of pod p sends to
// rank n+u of pod p+n+s, so no two of up to as many ranks as there are pods send from one pod to one other: the links
// between pods are all in use, once (LumosCore, Eq. 44, which is that for pods of as many ranks as there are pods).
// Everybody's own block is in another exchange, so there is one more than in [builder.pairwise].
func (b *builder) podPairwise() exchanges {
	g := b.parameter()
	pods := b.n / g
	return exchanges{upTo(0, b.n), 1, func(r, i int) int {
		p, n := r/g, r%g
		return (p+n+i/g)%pods*g + (n+i%g)%g
	}}
}

// direct is all of [builder.pairwise] in one step.
func (b *builder) direct() exchanges {
	return exchanges{upTo(1, b.n), b.n - 1, func(r, i int) int { return b.mod(r + i) }}
}

// do begins the steps and calls f for every transfer, of the k-th exchange of its step.
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

// reduceScatter sends every rank the contributions to its block, which it adds to its own
// in the order of the exchanges: [builder.pairwise] in the order r, r-1, r-2, ..., whatever
// the width.
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
	b.do(e, func(k, src, dst int) { b.combine(k, src, dst, Ref{Scratch, dst}, Ref{Output, 0}, 1) })
}

// directAllReduce is one step in which every rank sends all others its whole vector, which
// all add up in the order of the ranks, so that all get the same bits.
func directAllReduce(b *builder) {
	b.Blocks[Scratch] = b.n
	for r := range b.n {
		b.load(r, 0, Ref{Scratch, r}, 1)
	}
	b.do(b.direct(), func(_, src, dst int) { b.send(src, dst, Ref{Scratch, src}, Ref{Scratch, src}, 1) })
	for r := range b.n {
		for q := range b.n {
			b.local(r, Ref{Scratch, q}, Ref{Output, 0}, 1, q > 0)
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
