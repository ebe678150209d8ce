package schedule

// The algorithms of this file write a distance between ranks in digits of a radix and take
// the digits one step each, in any order. In the step of the digit of weight w a rank sends
// to those v*w further, for every value v of the digit but 0: radix-1 flows a rank at once,
// one each on as many ports. (HARVEST Fig. 9 speaks of four operations a step for radix 4:
// three leave the rank, and what has digit 0 stays. Four ports take radix 5.)

// radix is the parameter of Bruck's algorithms.
var radix = &parameter{what: "one radix of at least 2", most: 1, least: 2, usual: func(int) int { return 2 }}

// digits is the order 0, 1, 2, ... of the digits, the lowest first.
func digits(n int, args []int) []int {
	count := 0
	for w := 1; w < n; w *= radixOf(args) {
		count++
	}
	return upTo(0, count)
}

// downDigits is the order ..., 2, 1, 0 of the digits.
func downDigits(n int, args []int) []int { return mirrored(digits(n, args)) }

func radixOf(args []int) int {
	if args == nil {
		return 2
	}
	return args[0]
}

// number is a number system for the distances below n.
type number struct {
	n, radix int
	weights  []int
}

func (b *builder) number() *number {
	t := &number{n: b.n, radix: radixOf(b.alg.args)}
	for w := 1; w < b.n; w *= t.radix {
		t.weights = append(t.weights, w)
	}
	return t
}

// digit returns digit i of x.
func (t *number) digit(x, i int) int { return x / t.weights[i] % t.radix }

// values calls f for the values v of digit i other than 0, with the distances whose digit i
// is v and whose digits other than it and those of free are 0. It may keep no xs.
func (t *number) values(i int, free []bool, f func(v int, xs []int)) {
	var xs []int
	for v := 1; v < t.radix && v*t.weights[i] < t.n; v++ {
		xs = xs[:0]
		for x := v * t.weights[i]; x < t.n; x++ {
			if t.digit(x, i) == v && t.zero(x, i, free) {
				xs = append(xs, x)
			}
		}
		f(v, xs)
	}
}

// zero reports whether all digits of x but i and those of free are 0.
func (t *number) zero(x, i int, free []bool) bool {
	for k := range t.weights {
		if k != i && !free[k] && t.digit(x, k) != 0 {
			return false
		}
	}
	return true
}

// layout returns where the chunk of each owner lies in working memory: where the ranks are a
// power of the radix, by the digits in the order of a reduce-scatter, so that what it sends
// in a step, the lowest digit first, is one range.
func (t *number) layout(order []int) []int {
	pos := upTo(0, t.n)
	all := 1
	for range order {
		all *= t.radix
	}
	if all != t.n {
		return pos
	}
	for o := range pos {
		at := 0
		for _, i := range order {
			at = at*t.radix + t.digit(o, i)
		}
		pos[o] = at
	}
	return pos
}

// digitReduceScatter leaves the sum of rank r's chunk at rank r. Let R[x] be rank r's
// partial sum for the owner r + dir x. The step of a digit passes every R[x] that is left
// and whose digit is v to rank r + dir v w, where it is R[x - v w]: only R[0] is left in the
// end. That holds for any n, since x - v w is an index whenever x is.
func (b *builder) digitReduceScatter(t *number, buf Buffer, pos []int, dir int) {
	b.reserve(min(t.radix, b.n)-1, b.Blocks[buf])
	left := make([]bool, len(t.weights))
	for i := range left {
		left[i] = true
	}
	var chunks []int
	for _, i := range b.alg.order {
		left[i] = false
		b.step()
		t.values(i, left, func(v int, xs []int) {
			for r := range b.n {
				chunks = chunks[:0]
				for _, x := range xs {
					chunks = append(chunks, pos[b.mod(r+dir*x)])
				}
				b.combineSame(v-1, r, b.mod(r+dir*v*t.weights[i]), buf, chunks)
			}
		})
	}
}

// digitAllGather spreads rank r's chunk of Output from rank r to all. Before the step of a
// digit a rank has the chunks of the owners r - dir x for the x whose digits before are any
// and all others 0; it passes them to r + dir v w, for which they are at x + v w.
func (b *builder) digitAllGather(t *number, order []int, pos []int, dir int) {
	done := make([]bool, len(t.weights))
	var chunks []int
	for _, i := range order {
		b.step()
		t.values(i, done, func(v int, xs []int) {
			far := dir * v * t.weights[i]
			for r := range b.n {
				chunks = chunks[:0]
				for _, x := range xs {
					chunks = append(chunks, pos[b.mod(r+far-dir*x)])
				}
				b.sendSame(r, b.mod(r+far), Output, chunks)
			}
		})
		done[i] = true
	}
}

// cyclicAllReduce is cyclic recursive doubling (HARVEST 3.2 and 5.1): ceil(log2 n) steps
// of reduce-scatter over distances 1, 2, 4, ... carrying m/2, m/4, m/8, ... and the
// mirrored steps of allgather over the same circuits r -> r+d, so that the configurations
// recur in reverse order. 2(n-1)/n m bytes per rank, for any n (sizes are rounded up to
// chunks of m/n where n is no power of two).
func cyclicAllReduce(b *builder) { b.digitAllReduce(1) }

func cyclicReduceScatter(b *builder) { b.digitReduceScatterBlocks(1) }

func cyclicAllGather(b *builder) { b.digitAllGatherBlocks(1) }

// bruckAllGather is the concatenation algorithm of Bruck et al. 1997: in the step of weight w
// rank r has the blocks r, r+1, ..., r+w-1 and sends them (at the end only as many as are
// missing) to r - v w; ceil(log n) steps to the radix, (n-1)/n of S per rank, any n.
func bruckAllGather(b *builder) { b.digitAllGatherBlocks(-1) }

// bruckReduceScatter mirrors [bruckAllGather], over the same circuits.
func bruckReduceScatter(b *builder) { b.digitReduceScatterBlocks(-1) }

// bruckAllReduce is [bruckReduceScatter] and [bruckAllGather].
func bruckAllReduce(b *builder) { b.digitAllReduce(-1) }

func (b *builder) digitAllReduce(dir int) {
	t := b.number()
	pos := t.layout(b.alg.order)
	b.Sub = b.n
	b.loadAll(Output)
	b.digitReduceScatter(t, Output, pos, dir)
	b.digitAllGather(t, b.alg.second, pos, dir)
}

func (b *builder) digitReduceScatterBlocks(dir int) {
	t := b.number()
	pos := t.layout(b.alg.order)
	b.Blocks[Scratch] = b.n
	for r := range b.n {
		for c := range b.n {
			b.load(r, c, Ref{Scratch, pos[c]}, 1)
		}
	}
	b.digitReduceScatter(t, Scratch, pos, dir)
	b.storeOwn(func(r int) int { return pos[r] })
}

func (b *builder) digitAllGatherBlocks(dir int) {
	b.loadOwn()
	b.digitAllGather(b.number(), b.alg.order, upTo(0, b.n), dir)
}

// bruckAllToAll is the index algorithm of Bruck et al. 1997: the block that has to travel
// distance x makes a hop for each of its digits that is not 0; ceil(log n) steps to the
// radix. With radix 2 a step sends about n/2 blocks over distance 1, 2, 4, ..., with radix r
// about n/r to each of r-1 ranks. A block is sent from Input on its first hop and received
// in Output on its last, so there are no rotations. On the way block x lies in one of two
// slots in turn, so that no step receives where it sends.
func bruckAllToAll(b *builder) {
	t := b.number()
	first := b.loadDistinct()
	slots := b.Blocks[Scratch]
	b.Blocks[Scratch] += 2 * b.n
	slot := func(x, hops int) Ref { return Ref{Scratch, slots + hops%2*b.n + x} }
	hops := make([]int, b.n) // that a block has made
	done, all := make([]bool, len(t.weights)), make([]bool, len(t.weights))
	for i := range all {
		all[i] = true
	}
	for _, i := range b.alg.order {
		b.step()
		t.values(i, all, func(v int, xs []int) {
			for r := range b.n {
				to := b.mod(r + v*t.weights[i])
				for _, x := range xs {
					src, dst := slot(x, hops[x]), slot(x, hops[x]+1)
					if hops[x] == 0 {
						src = Ref{first, b.mod(r + x)}
					}
					if t.zero(x, i, done) {
						dst = Ref{Output, b.mod(to - x)}
					}
					b.send(r, to, src, dst, 1)
				}
			}
			for _, x := range xs {
				hops[x]++
			}
		})
		done[i] = true
	}
}
