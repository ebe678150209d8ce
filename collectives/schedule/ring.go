package schedule

// The ring algorithms (Patarasuk and Yuan 2009) send over r -> r+1 only, so one
// configuration of a plane serves all their steps. Bytes per rank are optimal.

// ringAllReduce: 2(n-1) steps of m/n bytes.
func ringAllReduce(b *builder) {
	b.Sub = b.n
	b.loadAll(Output)
	b.ringReduceScatter(Output)
	b.ringAllGather()
}

// ringReduceScatter: n-1 steps of one block.
func ringReduceScatter(b *builder) {
	b.Blocks[Scratch] = b.n
	b.loadAll(Scratch)
	b.ringReduceScatter(Scratch)
	b.storeOwn(func(r int) int { return r })
}

// ringAllGather: n-1 steps of one block.
func ringAllGather(b *builder) {
	b.loadOwn()
	b.ringAllGather()
}

// ringBroadcast is a pipeline of n chunks down the chain root, root+1, ..., root-1:
// 2n-2 steps of m/n bytes, all on one configuration.
func ringBroadcast(b *builder) {
	b.Sub = b.n
	b.load(b.Root, 0, Ref{Output, 0}, b.Sub)
	b.pipeline(b.Root, func(src, dst, chunk int) {
		b.send(src, dst, Ref{Output, chunk}, Ref{Output, chunk}, 1)
	})
}

// ringReduce is the pipeline of ringBroadcast along the chain root+1, ..., root: every
// rank adds its own on the way.
func ringReduce(b *builder) {
	b.Sub = b.n
	b.Blocks[Scratch] = 1
	b.loadWork()
	b.pipeline(b.mod(b.Root+1), func(src, dst, chunk int) {
		b.sendReduce(src, dst, Ref{b.work(src), chunk}, Ref{b.work(dst), chunk}, 1)
	})
}

// pipeline calls move for every chunk and every link of the chain of ranks that begins at
// first, in the step in which that chunk passes that link.
func (b *builder) pipeline(first int, move func(src, dst, chunk int)) {
	links := b.n - 1
	for t := 0; t < b.Sub+links-1; t++ {
		b.step()
		for l := max(0, t-b.Sub+1); l < min(links, t+1); l++ {
			move(b.mod(first+l), b.mod(first+l+1), t-l)
		}
	}
}

// ringReduceScatter leaves the sum of chunk r of buf at rank r.
func (b *builder) ringReduceScatter(buf Buffer) {
	for k := range b.n - 1 {
		b.step()
		for r := range b.n {
			at := Ref{buf, b.mod(r - k - 1)}
			b.sendReduce(r, b.mod(r+1), at, at, 1)
		}
	}
}

// ringAllGather spreads chunk r of Output from rank r to all.
func (b *builder) ringAllGather() {
	for k := range b.n - 1 {
		b.step()
		for r := range b.n {
			at := Ref{Output, b.mod(r - k)}
			b.send(r, b.mod(r+1), at, at, 1)
		}
	}
}

// loadAll loads the whole Input of every rank to the beginning of buf.
func (b *builder) loadAll(buf Buffer) {
	for r := range b.n {
		b.load(r, 0, Ref{buf, 0}, b.Blocks[Input]*b.Sub)
	}
}

// loadOwn loads every rank's block of an AllGather to its place.
func (b *builder) loadOwn() {
	for r := range b.n {
		b.load(r, 0, Ref{Output, r * b.Sub}, b.Sub)
	}
}

// storeOwn ends a ReduceScatter: block r, which lies in Scratch at pos(r), to Output.
func (b *builder) storeOwn(pos func(int) int) {
	for r := range b.n {
		b.finish(r, Ref{Scratch, pos(r)}, Ref{Output, 0}, 1)
	}
}

// work is where a rank accumulates in a Reduce: only the root has an Output.
func (b *builder) work(r int) Buffer {
	if r == b.Root {
		return Output
	}
	return Scratch
}

// loadWork loads Input to where each rank accumulates.
func (b *builder) loadWork() {
	for r := range b.n {
		b.load(r, 0, Ref{b.work(r), 0}, b.Sub)
	}
}
