package schedule

import "slices"

// swing holds the ports of a swing and the layout of a buffer.
type swing struct {
	p     int // ranks that take part: n, or n-1 if one is folded into rank 0
	ports []*swingPort
	// chunk returns the chunk of an owner on a port. If placed is set, it is the first chunk of the port plus the
	// owner's place; the place of rank 0 is 0.
	chunk  func(port, owner int) int
	placed bool
	// extra is the chunk that rank 0 sends for the folded rank, or -1.
	extra  int
	sorted []int // reused by parcels
}

func (b *builder) swing() *swing {
	p := b.n
	if b.alg.args == nil {
		p -= b.n % 2
	}
	w := &swing{p: p, ports: swingPorts(p, b.alg.args), extra: -1}
	if p < b.n && b.Collective != AllReduce {
		w.extra = p
	}
	return w
}

// steps returns the number of steps of a reduce-scatter.
func (w *swing) steps() int { return len(w.ports[0].hops) }

// parcels calls f for the chunks that rank r sends over a port in step s of a reduce-scatter, in ascending order, and
// then for the extra chunk.
func (w *swing) parcels(port, s, r int, f func(chunk, count int)) {
	t := w.ports[port]
	extra := -1
	if w.placed && t.ranged {
		count := 1 << (w.steps() - 1 - s)
		lo := t.place[t.peer(r, s)] &^ (count - 1)
		f(w.chunk(port, 0)+lo, count)
		if lo == 0 { // the range contains the place of rank 0
			extra = w.extra
		}
	} else {
		w.sorted = w.sorted[:0]
		for _, far := range t.passed[s] {
			owner := t.at(r, far)
			w.sorted = append(w.sorted, w.chunk(port, owner))
			if owner == 0 {
				extra = w.extra
			}
		}
		slices.Sort(w.sorted)
		for _, chunk := range w.sorted {
			f(chunk, 1)
		}
	}
	if extra >= 0 {
		f(extra, 1)
	}
}

// swingReduceScatter computes the sum of rank r's chunks of buf at rank r.
func (b *builder) swingReduceScatter(w *swing, buf Buffer) {
	for s := range w.steps() {
		b.step()
		for r := range w.p {
			for port, t := range w.ports {
				to := t.peer(r, s)
				w.parcels(port, s, r, func(chunk, count int) {
					b.sendReduce(r, to, Ref{buf, chunk}, Ref{buf, chunk}, count)
				})
			}
		}
	}
}

// swingAllGather runs in reverse: it returns to each peer the chunks that the peer sent.
func (b *builder) swingAllGather(w *swing) {
	for s := w.steps() - 1; s >= 0; s-- {
		b.step()
		for r := range w.p {
			for port, t := range w.ports {
				to := t.peer(r, s)
				w.parcels(port, s, to, func(chunk, count int) {
					b.send(r, to, Ref{Output, chunk}, Ref{Output, chunk}, count)
				})
			}
		}
	}
}

// swingAllReduce has 2 log2 p steps and sends 2(p-1)/p m bytes per rank, with d ports 1/d of that on each.
func swingAllReduce(b *builder) {
	w := b.swing()
	w.placed = true
	w.chunk = func(port, owner int) int { return port*w.p + w.ports[port].place[owner] }
	b.Sub = len(w.ports) * w.p
	b.loadAll(Output)
	b.fold(w.p, Output)
	b.swingReduceScatter(w, Output)
	b.swingAllGather(w)
	b.unfold(w.p)
}

// swingReduceScatter is the first half of [swingAllReduce] on blocks. With one port, blocks are ordered by their
// owners' places. With several ports, they are ordered by owner and have a part for each port.
func swingReduceScatter(b *builder) {
	w := b.swing()
	b.Sub = len(w.ports)
	b.Blocks[Scratch] = b.n
	place := upTo(0, b.n)
	if b.Sub == 1 {
		w.placed = true
		copy(place, w.ports[0].place)
	}
	w.chunk = func(port, owner int) int { return place[owner]*b.Sub + port }
	for r := range b.n {
		for c := range b.n {
			b.load(r, c*b.Sub, Ref{Scratch, place[c] * b.Sub}, b.Sub)
		}
	}
	b.fold(w.p, Scratch)
	b.swingReduceScatter(w, Scratch)
	if w.p < b.n {
		b.step()
		b.send(0, w.p, Ref{Scratch, w.p}, Ref{Output, 0}, 1)
	}
	for r := range w.p {
		b.finish(r, Ref{Scratch, place[r] * b.Sub}, Ref{Output, 0}, b.Sub)
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
