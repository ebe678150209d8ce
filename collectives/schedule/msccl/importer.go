package msccl

import (
	"errors"
	"fmt"

	"lightpath/collectives/schedule"
)

// importer executes the nodes of a graph in order on places, and records the moves between cells.
type importer struct {
	*graph
	*memory
	use       inputUse
	position  []int32   // of a node in the order
	sentCells [][]int32 // of a send node
	pre       []piece
	transfers [][]piece // by step
	posts     [][]piece // by step + 1
}

// piece is a move of one chunk.
type piece struct {
	from, to int32
	reduce   bool
}

// keepUnusedSums lets an rrs step store its sum if the destination chunk is never read again. This saves a staging
// cell.
func (b *importer) keepUnusedSums() {
	needed := map[int32]bool{}
	for i := range b.places {
		if b.places[i].hasHome && b.places[i].home.Buf == schedule.Output {
			needed[int32(i)] = true
		}
	}
	for k := len(b.order) - 1; k >= 0; k-- {
		x := &b.nodes[b.order[k]]
		if x.do == doWait || x.do == doSend && x.forwards {
			continue
		}
		if x.do == doRecv && x.forwards {
			dead := true
			for c := range x.count {
				dead = dead && !needed[b.place(x.gpu, x.dst, c)]
			}
			if dead {
				x.forwards, b.nodes[b.order[k]+1].forwards = false, false
			}
		}
		for c := range x.count {
			if x.do != doSend {
				needed[b.place(x.gpu, x.dst, c)] = x.reduce
			}
			if x.do != doRecv {
				needed[b.place(x.gpu, x.src, c)] = true
			}
		}
	}
}

func (b *importer) place(gpu int32, ref schedule.Ref, chunk int) int32 {
	ref.Chunk += chunk
	return b.at(gpu, ref)
}

func (b *importer) run(i int32) error {
	x := &b.nodes[i]
	for _, j := range x.deps {
		b.raise(x, j)
	}
	if x.prev >= 0 {
		b.raise(x, x.prev)
	}
	switch x.do {
	case doSend:
		return b.send(i, x)
	case doRecv:
		return b.receive(i, x)
	case doLocal:
		return b.local(i, x)
	}
	return nil
}

// read returns the cell of a place. It loads input into the place first, if necessary.
func (b *importer) read(gpu, at int32) (int32, error) {
	p := &b.places[at]
	if p.part < 0 && p.input >= 0 {
		b.load(gpu, at)
	}
	if p.part < 0 {
		return 0, errors.New("reads a chunk before any step writes it")
	}
	return p.cell, nil
}

// load adds a Pre move that copies the input of a place to its cell.
func (b *importer) load(gpu, at int32) {
	p := &b.places[at]
	p.part = p.input % int32(b.s.Sub)
	p.cell = b.cellFor(gpu, at, p.part)
	b.pre = append(b.pre, piece{from: b.inputCell(gpu, p), to: p.cell})
}

func (b *importer) send(i int32, x *node) error {
	if x.forwards { // the receiving half has set sentCells
		for _, c := range b.sentCells[i] {
			b.touch(c, x.level)
		}
		return nil
	}
	for k := range x.count {
		at := b.place(x.gpu, x.src, k)
		c, err := b.read(x.gpu, at)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", x.src.Chunk+k, err)
		}
		b.sentCells[i] = append(b.sentCells[i], c)
		x.level = max(x.level, b.places[at].lastWrite+1)
	}
	for k := range x.count {
		at := b.place(x.gpu, x.src, k)
		p := &b.places[at]
		p.lastRead = max(p.lastRead, x.level)
		b.touch(b.sentCells[i][k], x.level)
	}
	return nil
}

// receive records a message. If some step suits both ranks, it is a transfer in that step. Otherwise it is a transfer
// to a staging cell in the sender's step and a local move in the receiver's step.
func (b *importer) receive(i int32, x *node) error {
	from := b.sentCells[x.match]
	to := make([]int32, x.count)
	x.level = max(x.level, b.nodes[x.match].level)
	for k := range x.count {
		at := b.place(x.gpu, x.dst, k)
		part := b.cells[from[k]].part
		if x.reduce {
			c, err := b.read(x.gpu, at)
			if err == nil && b.places[at].part != part {
				err = fmt.Errorf("reduces part %d of a block with part %d", b.places[at].part, part)
			}
			if err != nil {
				return fmt.Errorf("chunk %d: %w", x.dst.Chunk+k, err)
			}
			to[k] = c
		} else {
			to[k] = b.cellFor(x.gpu, at, part)
		}
		x.level = max(x.level, b.places[at].lastWrite)
		if !x.forwards {
			x.level = max(x.level, b.places[at].lastRead)
		}
	}
	switch step, ok := b.commonStep(x, from, to); {
	case x.forwards:
		b.forward(i, x, from, to)
		return nil
	case ok:
		for k := range from {
			b.transfer(step, piece{from: from[k], to: to[k], reduce: x.reduce})
			b.touch(from[k], step)
			b.written(to[k], write{at: b.position[i], step: step})
		}
	default:
		for k, s := range b.stageAll(x, from) {
			b.post(x.level, piece{from: s, to: to[k], reduce: x.reduce})
			b.written(to[k], write{at: b.position[i], step: x.level, local: true})
		}
	}
	for k, c := range to {
		b.store(b.place(x.gpu, x.dst, k), c, x.level)
	}
	return nil
}

// store records that a node of a level has written a place, which is in a cell now.
func (b *importer) store(at, cell, level int32) {
	p := &b.places[at]
	p.cell, p.part, p.input, p.lastWrite = cell, b.cells[cell].part, -1, level
}

// commonStep returns a step in which a message can be transferred from its source to its destination. It prefers the
// receiver's step.
func (b *importer) commonStep(x *node, from, to []int32) (step int32, ok bool) {
	sent := b.nodes[x.match].level
	earliest := sent
	for _, c := range to {
		earliest = max(earliest, b.cells[c].last+1)
	}
	if earliest > x.level {
		return 0, false
	}
	latest := x.level
	for _, c := range from {
		writes := b.cells[c].writes
		for k := len(writes) - 1; k >= 0 && writes[k].at > b.position[x.match]; k-- {
			step := writes[k].step
			if !writes[k].local {
				step--
			}
			latest = min(latest, step)
		}
	}
	switch {
	case latest == x.level:
		return x.level, true
	case latest >= earliest:
		return earliest, true
	}
	return 0, false
}

// stageAll records a transfer of a message to staging cells, in the sender's step.
func (b *importer) stageAll(x *node, from []int32) []int32 {
	cells := make([]int32, len(from))
	sent := b.nodes[x.match].level
	for k := range from {
		cells[k] = b.stage(x.gpu, b.cells[from[k]].part, sent)
		b.transfer(sent, piece{from: from[k], to: cells[k]})
		b.touch(cells[k], x.level)
	}
	return cells
}

// forward adds this GPU's contribution to a message in staging cells, from which the sending half sends it.
func (b *importer) forward(i int32, x *node, from, local []int32) {
	cells := b.stageAll(x, from)
	for k, c := range cells {
		b.post(x.level, piece{from: local[k], to: c, reduce: true})
		b.written(c, write{at: b.position[i], step: x.level, local: true})
		b.touch(local[k], x.level)
		at := b.place(x.gpu, x.dst, k)
		p := &b.places[at]
		p.lastRead = max(p.lastRead, x.level)
	}
	b.sentCells[i+1] = cells
}

func (b *importer) local(i int32, x *node) error {
	for k := range x.count {
		src, dst := b.place(x.gpu, x.src, k), b.place(x.gpu, x.dst, k)
		if !x.reduce && b.copyInput(x, src, dst) {
			continue
		}
		from, err := b.read(x.gpu, src)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", x.src.Chunk+k, err)
		}
		if x.reduce {
			_, err := b.read(x.gpu, dst)
			if err == nil && b.places[dst].part != b.places[src].part {
				err = fmt.Errorf("reduces part %d of a block with part %d", b.places[dst].part, b.places[src].part)
			}
			if err != nil {
				return fmt.Errorf("chunk %d: %w", x.dst.Chunk+k, err)
			}
		} else if src == dst {
			continue
		}
		x.level = max(x.level, b.places[src].lastWrite, b.places[dst].lastWrite, b.places[dst].lastRead)
		to := b.cellFor(x.gpu, dst, b.places[src].part)
		b.post(x.level, piece{from: from, to: to, reduce: x.reduce})
		b.touch(from, x.level)
		b.written(to, write{at: b.position[i], step: x.level, local: true})
		p := &b.places[src]
		p.lastRead = max(p.lastRead, x.level)
		b.store(dst, to, x.level)
	}
	return nil
}

// copyInput records a copy of unchanged input as a Pre move. It returns false if the copy must come later.
func (b *importer) copyInput(x *node, src, dst int32) bool {
	p, q := &b.places[src], &b.places[dst]
	if b.use < copyFrom || src == dst || p.input < 0 || max(x.level, q.lastWrite, q.lastRead) >= 0 {
		return false
	}
	part := p.input % int32(b.s.Sub)
	to := b.cellFor(x.gpu, dst, part)
	if b.cells[to].last != never {
		return false
	}
	b.pre = append(b.pre, piece{from: b.inputCell(x.gpu, p), to: to})
	b.store(dst, to, x.level)
	return true
}

// inputCell returns a cell for the chunk of Input that a place holds at the beginning.
func (b *importer) inputCell(gpu int32, p *place) int32 {
	return b.newCell(int(gpu), int(p.input)%b.s.Sub, schedule.Ref{Buf: schedule.Input, Chunk: int(p.input)})
}

func (b *importer) transfer(step int32, p piece) {
	for int(step) >= len(b.transfers) {
		b.transfers = append(b.transfers, nil)
	}
	b.transfers[step] = append(b.transfers[step], p)
}

func (b *importer) post(step int32, p piece) {
	for int(step)+1 >= len(b.posts) {
		b.posts = append(b.posts, nil)
	}
	b.posts[step+1] = append(b.posts[step+1], p)
}

// finish writes the moves to the schedule. A step without transfers becomes part of the previous step.
func (b *importer) finish() {
	for r := range b.s.Ranks {
		for c := range b.s.BlocksAt(r, schedule.Output) * b.s.Sub {
			at := b.at(int32(r), schedule.Ref{Buf: schedule.Output, Chunk: c})
			if b.places[at].part < 0 && b.places[at].input >= 0 {
				b.load(int32(r), at) // output that is in-place input and that no step used
			}
		}
	}
	b.placeStaging()
	b.s.Pre = b.moves(nil, b.pre)
	for t := range max(len(b.transfers), len(b.posts)-1) + 1 {
		var transfers, posts []piece
		if t > 0 && t-1 < len(b.transfers) {
			transfers = b.transfers[t-1]
		}
		if t < len(b.posts) {
			posts = b.posts[t]
		}
		if len(transfers) > 0 || len(posts) > 0 && len(b.s.Steps) == 0 {
			b.s.Steps = append(b.s.Steps, schedule.Step{Transfers: b.moves(nil, transfers)})
		}
		if len(posts) > 0 {
			last := &b.s.Steps[len(b.s.Steps)-1]
			last.Post = b.moves(last.Post, posts)
		}
	}
}

// moves appends pieces to list. It joins a piece with the last move if it continues it.
func (b *importer) moves(list []schedule.Move, pieces []piece) []schedule.Move {
	for _, p := range pieces {
		from, to := &b.cells[p.from], &b.cells[p.to]
		m := schedule.Move{Src: int(from.rank), Dst: int(to.rank), From: from.ref, To: to.ref, Count: 1, Reduce: p.reduce}
		if k := len(list) - 1; k < 0 || !list[k].Extend(&m) {
			list = append(list, m)
		}
	}
	return list
}
