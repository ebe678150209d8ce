package sharedmem

import "lightpath/collectives/schedule"

// path is how a call uses the arena: a pure function of the call and the number of ranks.
type path struct {
	pieces  bool // a slot holds a piece for each rank, else the same for all
	reduces bool // each rank reduces a part of every chunk
	from    int  // whose chunks this rank consumes: a rank, fromAll or fromNone
}

// flatMax is the largest block that every rank (AllReduce), or the root (Reduce), reduces whole: one exchange instead
// of two, for n times the work.
func flatMax(ranks int) int { return (64 << 10) / ranks }

// streamMin is the smallest result, in bytes, that is written past the caches.
const streamMin = 4 << 20

// begin chooses the path and numbers the chunks.
func (o *Op) begin() {
	a := o.a
	o.started = true
	o.cut()
	if o.ring == large {
		a.mapOffers()
		o.published = o.publish(o.useLargePages())
	}
	o.first = a.next[o.ring]
	a.next[o.ring] += o.chunks
	a.chain = mix(mix(a.chain^o.Seq) ^ uint64(o.Signature))
	o.chain = a.chain
}

// cut chooses the path and cuts the call into chunks.
func (o *Op) cut() {
	o.published, o.at, o.mapping = false, regionRef{}, false
	o.path = o.choose()
	n := o.a.ranks
	o.ring, o.chunk, o.chunks = large, largeRoom, 1
	o.stride, o.inline = o.Block, false
	need := o.Block
	if o.path.pieces {
		o.chunk = largeRoom / n &^ (line - 1)
		if need = n * o.Block; need > 8*line {
			// Pieces of different readers share no line.
			o.stride = roundUp(o.Block, line)
			need = n * o.stride
		}
	}
	switch {
	case need <= smallRoom && !o.path.reduces:
		o.ring, o.chunk, o.inline = small, o.Block, need <= inlineMax
	case need <= middleRoom && !o.path.reduces && !o.mappable():
		o.ring, o.chunk = middle, o.Block
	case o.Block <= o.chunk:
		o.chunk = o.Block
	default:
		o.stride = o.chunk
		o.chunks = uint64((o.Block + o.chunk - 1) / o.chunk)
	}
	o.stream = o.resultBytes() >= streamMin
}

// InSmallSlots reports whether a call uses small slots only. Such a call makes no system call and reads no memory of
// peers outside the arena.
func (a *Arena) InSmallSlots(c schedule.Collective, root, block int) bool {
	o := Op{Call: Call{Collective: c, Root: root, Block: block}, a: a}
	o.cut()
	return o.ring == small
}

func (o *Op) choose() path {
	// rootReads: only the root consumes. rootWrites: only the root contributes.
	rootReads, rootWrites := fromNone, o.Root
	if o.a.rank == o.Root {
		rootReads, rootWrites = fromAll, fromNone
	}
	switch o.Collective {
	case schedule.AllReduce:
		return path{reduces: o.Block > flatMax(o.a.ranks), from: fromAll}
	case schedule.Reduce:
		return path{reduces: o.Block > flatMax(o.a.ranks), from: rootReads}
	case schedule.Gather:
		return path{from: rootReads}
	case schedule.Broadcast:
		return path{from: rootWrites}
	case schedule.Scatter:
		return path{pieces: true, from: rootWrites}
	case schedule.AllGather:
		return path{from: fromAll}
	default: // ReduceScatter, AllToAll
		return path{pieces: true, from: fromAll}
	}
}

// resultBytes returns the most bytes of results that a rank has in this call.
func (o *Op) resultBytes() int {
	_, blocks := o.Collective.IOBlocks(o.a.ranks)
	return blocks * o.Block
}

// part returns the bytes of a chunk of n that a rank reduces.
func (o *Op) part(rank, n int) (from, to int) {
	size := roundUp((n+o.a.ranks-1)/o.a.ranks, line)
	return min(rank*size, n), min((rank+1)*size, n)
}

func roundUp(n, to int) int { return (n + to - 1) &^ (to - 1) }

// mix spreads the bits of x.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}
