package schedule

import "slices"

// The algorithms of this file write the distance between two ranks in digits of a radix, and use one step per digit, in
// any order. In the step of the digit of weight w, a rank sends to the ranks at distance v*w, for every value v of the
// digit except 0. These are radix-1 flows at once, on as many ports. (HARVEST Fig. 9 counts four operations per step
// for radix 4: three flows, and the data with digit 0 that stays. Four ports allow radix 5.)

// radix is the parameter of Bruck's algorithms.
var radix = &parameter{
	what: "one radix of at least 2", maxCount: 1, minValue: 2, defaultValue: func(int) int { return 2 },
}

// digits returns the order 0, 1, 2, ... of the digits, the lowest first.
func digits(n int, args []int) []int {
	count := 0
	for w := 1; w < n; w *= radixOf(args) {
		count++
	}
	return upTo(0, count)
}

// downDigits returns the order ..., 2, 1, 0 of the digits.
func downDigits(n int, args []int) []int { return reversed(digits(n, args)) }

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

func (t *number) digit(x, i int) int { return x / t.weights[i] % t.radix }

// values calls f for the values v of digit i except 0. xs are the distances whose digit i is v and whose other digits
// are 0, except those in free. f must not keep xs.
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

// zero reports whether all digits of x are 0, except digit i and those in free.
func (t *number) zero(x, i int, free []bool) bool {
	for k := range t.weights {
		if k != i && !free[k] && t.digit(x, k) != 0 {
			return false
		}
	}
	return true
}

// layout returns the position of each owner's chunk in working memory. If the number of ranks is a power of the radix,
// the digits are in the order of the reduce-scatter. So each of its steps sends one range.
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

// digitReduceScatter computes the sum of rank r's chunk at rank r. Let R[x] be rank r's partial sum for the owner r +
// dir x. The step of a digit sends every remaining R[x] whose digit is v to rank r + dir v w, where it is R[x - v w].
// In the end only R[0] remains. This holds for any n, because x - v w is an index whenever x is.
func (b *builder) digitReduceScatter(t *number, buf Buffer, pos []int, dir int) {
	b.reserve(min(t.radix, b.n)-1, b.Blocks[buf])
	left := slices.Repeat([]bool{true}, len(t.weights))
	var chunks []int
	for _, i := range b.alg.order {
		left[i] = false
		b.step()
		t.values(i, left, func(v int, xs []int) {
			for r := range b.n {
				to := b.mod(r + dir*v*t.weights[i])
				if b.sendSize(r, to, len(xs)) {
					continue
				}
				chunks = chunks[:0]
				for _, x := range xs {
					chunks = append(chunks, pos[b.mod(r+dir*x)])
				}
				b.combineSame(v-1, r, to, buf, chunks)
			}
		})
	}
}

// digitAllGather distributes rank r's chunk of Output from rank r to all ranks. Before the step of a digit, a rank has
// the chunks of the owners r - dir x, for all x whose digits are 0 except the digits of earlier steps. It sends them to
// rank r + dir v w, for which they have the index x + v w.
func (b *builder) digitAllGather(t *number, order []int, pos []int, dir int) {
	done := make([]bool, len(t.weights))
	var chunks []int
	for _, i := range order {
		b.step()
		t.values(i, done, func(v int, xs []int) {
			far := dir * v * t.weights[i]
			for r := range b.n {
				to := b.mod(r + far)
				if b.sendSize(r, to, len(xs)) {
					continue
				}
				chunks = chunks[:0]
				for _, x := range xs {
					chunks = append(chunks, pos[b.mod(r+far-dir*x)])
				}
				b.sendSame(r, to, Output, chunks)
			}
		})
		done[i] = true
	}
}

// cyclicAllReduce is cyclic recursive doubling (HARVEST 3.2 and 5.1). It has ceil(log2 n) steps of a reduce-scatter
// with m/2, m/4, m/8, ... bytes over distances 1, 2, 4, .... The steps of the allgather use the same circuits r -> r+d
// in reverse order. It sends 2(n-1)/n m bytes per rank for any n; if n is not a power of two, sizes are rounded up to
// chunks of m/n.
func cyclicAllReduce(b *builder) { b.digitAllReduce(1) }

func cyclicReduceScatter(b *builder) { b.digitReduceScatterBlocks(1) }

func cyclicAllGather(b *builder) { b.digitAllGatherBlocks(1) }

// bruckAllGather is the concatenation algorithm of Bruck et al. 1997. In the step of weight w, rank r has the blocks r,
// r+1, ..., r+w-1 and sends them to r - v w; the last step sends only the missing ones. It has ceil(log n) steps to the
// radix and sends (n-1)/n of S per rank, for any n.
func bruckAllGather(b *builder) { b.digitAllGatherBlocks(-1) }

// bruckReduceScatter reverses [bruckAllGather], over the same circuits.
func bruckReduceScatter(b *builder) { b.digitReduceScatterBlocks(-1) }

// bruckAllReduce is [bruckReduceScatter], then [bruckAllGather].
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

// bruckAllToAll is the index algorithm of Bruck et al. 1997. A block for distance x makes a hop for each digit of x
// that is not 0, in ceil(log n) steps to the radix. With radix 2, a step sends about n/2 blocks over distance 1, 2, 4,
// ...; with radix r, about n/r blocks to each of r-1 ranks.
//
// A block is sent from Input on its first hop and received in Output on its last, so there are no rotations. In between
// it uses two slots in turn, so that no step receives into a slot from which it sends.
func bruckAllToAll(b *builder) {
	t := b.number()
	first := b.loadDistinct()
	slots := b.Blocks[Scratch]
	b.Blocks[Scratch] += 2 * b.n
	slot := func(x, hops int) Ref { return Ref{Scratch, slots + hops%2*b.n + x} }
	hops := make([]int, b.n) // by distance: hops made so far
	done, all := make([]bool, len(t.weights)), make([]bool, len(t.weights))
	for i := range all {
		all[i] = true
	}
	for _, i := range b.alg.order {
		b.step()
		t.values(i, all, func(v int, xs []int) {
			for r := range b.n {
				to := b.mod(r + v*t.weights[i])
				if b.sendSize(r, to, len(xs)) {
					continue
				}
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
