package schedule

// swing holds the ports of a swing and where the chunks of an owner lie on each.
type swing struct {
	p     int // ranks that take part: n, or n-1 where one folds
	ports []*swingPort
	// chunk returns the chunk of an owner on a port.
	chunk func(port, owner int) int
}

func (b *builder) swing() *swing {
	p := b.n
	if b.alg.args == nil {
		p -= b.n % 2
	}
	return &swing{p: p, ports: swingPorts(p, b.alg.args)}
}

// owned appends to list the chunks of the owner at a distance from r: on blocks, rank 0
// stands in for a rank that folds.
func (b *builder) owned(w *swing, port, r, far int, list []int) []int {
	owner := w.ports[port].at(r, far)
	list = append(list, w.chunk(port, owner))
	if owner == 0 && w.p < b.n && b.Collective != AllReduce {
		list = append(list, w.chunk(port, w.p))
	}
	return list
}

// steps returns the steps of a reduce-scatter.
func (w *swing) steps() int { return len(w.ports[0].hops) }

// swingReduceScatter leaves the sum of rank r's chunks of buf at rank r.
func (b *builder) swingReduceScatter(w *swing, buf Buffer) {
	var chunks []int
	for s := range w.steps() {
		b.step()
		for r := range w.p {
			for port, t := range w.ports {
				chunks = chunks[:0]
				for _, far := range t.passed[s] {
					chunks = b.owned(w, port, r, far, chunks)
				}
				b.combineSame(0, r, t.peer(r, s), buf, chunks)
			}
		}
	}
}

// swingAllGather is the mirror image: what rank r passed to its peer comes back.
func (b *builder) swingAllGather(w *swing) {
	var chunks []int
	for s := w.steps() - 1; s >= 0; s-- {
		b.step()
		for r := range w.p {
			for port, t := range w.ports {
				to := t.peer(r, s)
				chunks = chunks[:0]
				for _, far := range t.passed[s] {
					chunks = b.owned(w, port, to, far, chunks)
				}
				b.sendSame(r, to, Output, chunks)
			}
		}
	}
}

// swingAllReduce: 2 log2 p steps, 2(p-1)/p m bytes per rank; over d ports at once, 1/d of
// that on each.
func swingAllReduce(b *builder) {
	w := b.swing()
	w.chunk = func(port, owner int) int { return port*w.p + w.ports[port].place[owner] }
	b.Sub = len(w.ports) * w.p
	b.loadAll(Output)
	b.fold(w.p, Output)
	b.swingReduceScatter(w, Output)
	b.swingAllGather(w)
	b.unfold(w.p)
}

// swingReduceScatter is the first half of [swingAllReduce] on blocks.
func swingReduceScatter(b *builder) {
	w := b.swing()
	b.Sub = len(w.ports)
	b.Blocks[Scratch] = b.n
	pos := func(r int) int { return r }
	if place := w.ports[0].place; b.Sub == 1 {
		pos = func(r int) int {
			if r < w.p {
				return place[r]
			}
			return r
		}
	}
	w.chunk = func(port, owner int) int { return pos(owner)*b.Sub + port }
	for r := range b.n {
		for c := range b.n {
			b.load(r, c*b.Sub, Ref{Scratch, pos(c) * b.Sub}, b.Sub)
		}
	}
	b.fold(w.p, Scratch)
	b.swingReduceScatter(w, Scratch)
	if w.p < b.n {
		b.step()
		b.send(0, w.p, Ref{Scratch, pos(w.p)}, Ref{Output, 0}, 1)
	}
	for r := range w.p {
		b.finish(r, Ref{Scratch, pos(r) * b.Sub}, Ref{Output, 0}, b.Sub)
	}
}

// swingAllGather is the second half of [swingAllReduce] on blocks.
func swingAllGather(b *builder) {
	w := b.swing()
	b.Sub = len(w.ports)
	w.chunk = func(port, owner int) int { return owner*b.Sub + port }
	b.loadOwn()
	b.foldIn(w.p)
	b.swingAllGather(w)
	b.foldOut(w.p)
}
