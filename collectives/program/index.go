package program

import "slices"

// indexScratch is memory that index reuses, so that indexing a reused program does not allocate.
type indexScratch struct {
	last  []ID // by rank: last instruction of its chain in the current stage
	ids   []ID // memory of Stage.Sends, Stage.Forwards and Lane.Sources
	heads []ID
}

// index computes chains, stages, dependency counts and successors. It reuses the memory of an earlier use of p.
func (p *Program) index() {
	n := len(p.Code)
	p.Next = resize(p.Next, n)
	p.NumDeps = resize(p.NumDeps, n)
	p.Reduces, p.Scales = false, false
	for i := range p.Code {
		in := &p.Code[i]
		p.Next[i] = None
		p.Reduces = p.Reduces || in.Kind == LocalReduce || in.Kind == RecvReduce
		p.Scales = p.Scales || in.Scale
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
	n := len(p.Code)
	p.succStart = resize(p.succStart, n+1)
	for i := range p.succStart {
		p.succStart[i] = 0
	}
	total := 0
	for i := range p.Code {
		p.NumDeps[i] = int32(len(p.Code[i].Deps))
		total += len(p.Code[i].Deps)
		for _, d := range p.Code[i].Deps {
			p.succStart[d+1]++
		}
	}
	for i := 0; i < n; i++ {
		p.succStart[i+1] += p.succStart[i]
	}
	p.succ = resize(p.succ, total)
	// Fill backwards from the end of each list; the ends become the starts.
	for i := n - 1; i >= 0; i-- {
		for _, d := range p.Code[i].Deps {
			p.succStart[d+1]--
			p.succ[p.succStart[d+1]] = ID(i)
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
		for end < len(l.TX) && p.Code[l.TX[end]].Kind != Reconfigure {
			end++
		}
		st := Stage{TX: l.TX[at:end:end], Reconf: None}
		for _, id := range st.TX {
			if in := &p.Code[id]; in.Kind == Forward {
				st.Transit += in.Bytes
			} else {
				if int32(in.Route-st.Route) > 0 { // negative if the route was made before the section
					st.Route = in.Route
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

// chain links the instructions of the given kinds by peer, in order. It returns the first instruction of each peer.
func (p *Program) chain(ids []ID, kinds ...Kind) []ID {
	last := p.scratch.last
	for i := range last {
		last[i] = None
	}
	start := len(p.scratch.ids)
	for _, id := range ids {
		in := &p.Code[id]
		if !slices.Contains(kinds, in.Kind) {
			continue
		}
		if prev := last[in.Peer]; prev == None {
			p.scratch.ids = append(p.scratch.ids, id)
		} else {
			p.Next[prev] = id
		}
		last[in.Peer] = id
	}
	return p.scratch.ids[start:len(p.scratch.ids):len(p.scratch.ids)]
}

// flowChains links the forwards by flow, in order. It returns the first forward of each flow.
func (p *Program) flowChains(ids []ID) []ID {
	start := len(p.scratch.ids)
	tails := p.scratch.heads[:0]
	for _, id := range ids {
		in := &p.Code[id]
		if in.Kind != Forward {
			continue
		}
		known := false
		for i, t := range tails {
			if p.Code[t].Peer == in.Peer && p.Code[t].FlowDst == in.FlowDst {
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
