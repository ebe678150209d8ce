package program

import "slices"

// indexScratch is memory that index reuses, so that indexing a reused program does not allocate.
type indexScratch struct {
	last  []OpID // by rank: last operation of its chain in the current stage
	ids   []OpID // memory of Stage.Sends, Stage.Forwards and Lane.Sources
	heads []OpID
}

// index computes chains, stages, dependency counts and successors. It reuses the memory of an earlier use of p.
func (p *Program) index() {
	n := len(p.Ops)
	p.Next = resize(p.Next, n)
	p.NumDeps = resize(p.NumDeps, n)
	p.Reduces, p.Scales = false, false
	for i := range p.Ops {
		op := &p.Ops[i]
		p.Next[i] = None
		p.Reduces = p.Reduces || op.Kind == LocalReduce || op.Kind == RecvReduce
		p.Scales = p.Scales || op.Scale
	}
	p.indexSuccessors()
	p.scratch.last = resize(p.scratch.last, p.Ranks)
	p.scratch.ids = p.scratch.ids[:0]
	for l := range p.Lanes {
		p.indexTX(&p.Lanes[l])
		p.indexRX(&p.Lanes[l])
	}
}

func (p *Program) indexSuccessors() {
	n := len(p.Ops)
	p.succStart = resize(p.succStart, n+1)
	for i := range p.succStart {
		p.succStart[i] = 0
	}
	total := 0
	for i := range p.Ops {
		p.NumDeps[i] = int32(len(p.Ops[i].Deps))
		total += len(p.Ops[i].Deps)
		for _, d := range p.Ops[i].Deps {
			p.succStart[d+1]++
		}
	}
	for i := 0; i < n; i++ {
		p.succStart[i+1] += p.succStart[i]
	}
	p.succ = resize(p.succ, total)
	// Fill backwards from the end of each list; the ends become the starts.
	for i := n - 1; i >= 0; i-- {
		for _, d := range p.Ops[i].Deps {
			p.succStart[d+1]--
			p.succ[p.succStart[d+1]] = OpID(i)
		}
	}
	// succStart[i+1] now is the start of list i. Successors expects it at i.
	for i := 0; i < n; i++ {
		p.succStart[i] = p.succStart[i+1]
	}
	p.succStart[n] = int32(total)
}

func (p *Program) indexTX(l *Lane) {
	l.Stages = l.Stages[:0]
	for at := 0; ; {
		end := at
		for end < len(l.TX) && p.Ops[l.TX[end]].Kind != Reconfigure {
			end++
		}
		st := Stage{TX: l.TX[at:end:end], Ops: int32(end - at), Reconf: None}
		for _, id := range st.TX {
			if op := &p.Ops[id]; op.Kind == Forward {
				st.Transit += op.Bytes
			} else {
				if int32(op.Route-st.Route) > 0 { // negative if the route was made before the section
					st.Route = op.Route
				}
			}
		}
		st.Sends = p.chain(l.TX[at:end], Send)
		st.Forwards = p.flowChains(l.TX[at:end])
		if end < len(l.TX) {
			st.Reconf = l.TX[end]
		}
		l.Stages = append(l.Stages, st)
		if end >= len(l.TX) {
			return
		}
		at = end + 1
	}
}

func (p *Program) indexRX(l *Lane) { l.Sources = p.chain(l.RX, Recv, RecvReduce) }

// chain links the operations of the given kinds by peer, in order. It returns the first operation of each peer.
func (p *Program) chain(ids []OpID, kinds ...Kind) []OpID {
	last := p.scratch.last
	for i := range last {
		last[i] = None
	}
	start := len(p.scratch.ids)
	for _, id := range ids {
		op := &p.Ops[id]
		if !slices.Contains(kinds, op.Kind) {
			continue
		}
		if prev := last[op.Peer]; prev == None {
			p.scratch.ids = append(p.scratch.ids, id)
		} else {
			p.Next[prev] = id
		}
		last[op.Peer] = id
	}
	return p.scratch.ids[start:len(p.scratch.ids):len(p.scratch.ids)]
}

// flowChains links the forwards by flow, in order. It returns the first forward of each flow.
func (p *Program) flowChains(ids []OpID) []OpID {
	start := len(p.scratch.ids)
	tails := p.scratch.heads[:0]
	for _, id := range ids {
		op := &p.Ops[id]
		if op.Kind != Forward {
			continue
		}
		known := false
		for i, t := range tails {
			if p.Ops[t].Peer == op.Peer && p.Ops[t].FlowDst == op.FlowDst {
				p.Next[t] = id
				tails[i] = id
				known = true
				break
			}
		}
		if !known {
			p.scratch.ids = append(p.scratch.ids, id)
			tails = append(tails, id)
		}
	}
	p.scratch.heads = tails[:0]
	return p.scratch.ids[start:len(p.scratch.ids):len(p.scratch.ids)]
}

// resize returns a slice of length n with undefined contents. It reuses the memory of s if that is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
