package schedule

// The ring algorithms (Patarasuk and Yuan 2009) send only from r to r+1, so one configuration of a plane serves all
// steps. The bytes per rank are optimal. With two directions, half of the data goes from r to r-1. Interleaved planes,
// which hold a permutation and its inverse, are then both busy all the time.

// directions is the parameter of the ring algorithms.
var directions = &parameter{
	what: "1 or 2 directions", maxCount: 1, minValue: 1,
	defaultValue: func(int) int { return 1 },
	valid:        func(_ int, args []int) bool { return args[0] <= 2 },
}

// ringAllReduce has 2(n-1) steps of m/n bytes.
func ringAllReduce(b *builder) {
	b.Sub = b.n * b.parameter()
	b.loadAll(Output)
	b.ringReduceScatter(Output)
	b.ringAllGather()
}

// ringReduceScatter has n-1 steps of one block.
func ringReduceScatter(b *builder) {
	b.Sub = b.parameter()
	b.Blocks[Scratch] = b.n
	b.loadAll(Scratch)
	b.ringReduceScatter(Scratch)
	b.storeOwn(func(r int) int { return r * b.Sub })
}

// ringAllGather has n-1 steps of one block.
func ringAllGather(b *builder) {
	b.Sub = b.parameter()
	b.loadOwn()
	b.ringAllGather()
}

// ringBroadcast is a pipeline of n chunks along the chain root, root+1, ..., root-1. It has 2n-2 steps of m/n bytes,
// all on one configuration.
func ringBroadcast(b *builder) {
	b.Sub = b.n
	b.load(b.Root, 0, Ref{Output, 0}, b.Sub)
	b.pipeline(b.Root, func(src, dst, chunk int) {
		b.send(src, dst, Ref{Output, chunk}, Ref{Output, chunk}, 1)
	})
}

// ringReduce is the pipeline of ringBroadcast along the chain root+1, ..., root, in which every rank adds its
// contribution.
func ringReduce(b *builder) {
	b.Sub = b.n
	b.Blocks[Scratch] = 1
	b.loadWork()
	b.pipeline(b.mod(b.Root+1), func(src, dst, chunk int) {
		b.sendReduce(src, dst, Ref{b.work(src), chunk}, Ref{b.work(dst), chunk}, 1)
	})
}

// pipeline calls move for every chunk and every link of the chain that begins at rank first, in the step in which the
// chunk uses the link.
func (b *builder) pipeline(first int, move func(src, dst, chunk int)) {
	links := b.n - 1
	for t := 0; t < b.Sub+links-1; t++ {
		b.step()
		for l := max(0, t-b.Sub+1); l < min(links, t+1); l++ {
			move(b.mod(first+l), b.mod(first+l+1), t-l)
		}
	}
}

// ringReduceScatter computes the sum of part r of buf at rank r. A part has a chunk for each direction.
func (b *builder) ringReduceScatter(buf Buffer) {
	ways := b.parameter()
	for k := range b.n - 1 {
		b.step()
		for r := range b.n {
			for way, dir := range []int{1, -1}[:ways] {
				at := Ref{buf, b.mod(r-dir*(k+1))*ways + way}
				b.sendReduce(r, b.mod(r+dir), at, at, 1)
			}
		}
	}
}

// ringAllGather distributes part r of Output from rank r to all ranks.
func (b *builder) ringAllGather() {
	ways := b.parameter()
	for k := range b.n - 1 {
		b.step()
		for r := range b.n {
			for way, dir := range []int{1, -1}[:ways] {
				at := Ref{Output, b.mod(r-dir*k)*ways + way}
				b.send(r, b.mod(r+dir), at, at, 1)
			}
		}
	}
}

// loadAll loads the whole Input of every rank to the beginning of buf.
func (b *builder) loadAll(buf Buffer) {
	for r := range b.n {
		b.load(r, 0, Ref{buf, 0}, b.Blocks[Input]*b.Sub)
	}
}

// loadOwn loads every rank's block of an AllGather into Output.
func (b *builder) loadOwn() {
	for r := range b.n {
		b.load(r, 0, Ref{Output, r * b.Sub}, b.Sub)
	}
}

// storeOwn ends a ReduceScatter: it copies block r, which begins at chunk pos(r) of Scratch, to Output.
func (b *builder) storeOwn(pos func(int) int) {
	for r := range b.n {
		b.finish(r, Ref{Scratch, pos(r)}, Ref{Output, 0}, b.Sub)
	}
}

// work returns the buffer in which a rank accumulates in a Reduce. Only the root has an Output.
func (b *builder) work(r int) Buffer {
	if r == b.Root {
		return Output
	}
	return Scratch
}

// loadWork loads Input into the work buffer of each rank.
func (b *builder) loadWork() {
	for r := range b.n {
		b.load(r, 0, Ref{b.work(r), 0}, b.Sub)
	}
}
