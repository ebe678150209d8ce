package flow

import (
	"math"
	"slices"

	"lightpath/plans"
)

// result copies the routings of all blocks to all sources.
func (s *solver) result() *Result {
	r := &Result{Theta: math.Inf(1), Upper: math.Inf(1), Work: s.spent()}
	for _, b := range s.w.blocks {
		l := lifter{w: s.w, b: b}
		l.pour()
		r.Theta = math.Min(r.Theta, 1/l.busiest())
		r.Upper = math.Min(r.Upper, b.upper)
		for i := range l.pieces {
			r.Hops = max(r.Hops, len(l.pieces[i].ports))
		}
		r.Routes = l.lift(r.Routes)
	}
	if r.Upper < r.Theta && r.Upper > r.Theta*(1-exactEpsilon) {
		r.Upper = r.Theta // rounding
	}
	return r
}

// piece is a part whose planes are chosen.
type piece struct {
	source int32
	ports  []int32 // plane of each hop
	class  []int32 // of each hop
	share  float64
	done   int // hops that divide has been over
}

// lifter turns the parts of a block into routes. Parallel circuits share the flow of their edge, and every source of an
// orbit takes the same planes as its representative.
type lifter struct {
	w      *network
	b      *block
	pieces []piece
}

// pour divides the flow on an edge of several planes evenly over them. It cuts parts when a plane is full.
func (l *lifter) pour() {
	f := 0
	total := make([]float64, len(l.b.capacity))
	for _, src := range l.b.sources {
		for range l.w.dst[src] {
			for _, p := range l.b.parts[f] {
				l.pieces = append(l.pieces, l.piece(src, p, total))
			}
			f++
		}
	}
	for c, k := range l.b.capacity {
		if k > 1 {
			l.divide(int32(c), total[c]/k)
		}
	}
}

func (l *lifter) piece(src int32, p part, total []float64) piece {
	hops := len(p.edges)
	q := piece{source: src, share: p.share, ports: make([]int32, hops), class: make([]int32, hops)}
	for i, e := range p.edges {
		q.ports[hops-1-i], q.class[hops-1-i] = l.w.port[e], l.w.class[e]
		total[l.w.class[e]] += p.share
	}
	return q
}

// divide spreads the pieces over the planes of class c, quota on each.
func (l *lifter) divide(c int32, quota float64) {
	ports := l.parallel(c)
	at, room := 0, quota
	for i := 0; i < len(l.pieces); i++ {
		h := l.pieces[i].done
		l.pieces[i].done = 0
		for ; h < len(l.pieces[i].class); h++ {
			if l.pieces[i].class[h] != c {
				continue
			}
			for at < len(ports)-1 && room <= 1e-12*quota {
				at, room = at+1, quota
			}
			if p := &l.pieces[i]; at < len(ports)-1 && p.share > room*(1+1e-12) {
				rest := *p
				rest.ports, rest.share, rest.done = slices.Clone(p.ports), p.share-room, h
				p.share = room
				l.pieces = append(l.pieces, rest)
			}
			l.pieces[i].ports[h] = ports[at]
			room -= l.pieces[i].share
		}
	}
}

// parallel lists the planes that hold the edges of class c.
func (l *lifter) parallel(c int32) []int32 {
	e := l.b.member[c]
	tail := l.tail(e)
	var ports []int32
	for j, p := range l.w.maps {
		if p[tail] == int(l.w.head[e]) {
			ports = append(ports, int32(j))
		}
	}
	return ports
}

// tail returns the rank that edge e leaves, by the inverse map of the first plane that has the edge.
func (l *lifter) tail(e int32) int { return l.w.inverse[l.w.port[e]][l.w.head[e]] }

// busiest returns the largest load of a circuit.
func (l *lifter) busiest() float64 {
	load := make(map[[2]int32]float64)
	most := 0.0
	for i := range l.pieces {
		p := &l.pieces[i]
		for h, c := range p.class {
			key := [2]int32{c, p.ports[h]}
			load[key] += p.share
			most = math.Max(most, load[key])
		}
	}
	return most
}

// lift appends the routes of every rank in the orbits of the block's sources.
func (l *lifter) lift(routes []plans.Route) []plans.Route {
	bySource := make(map[int32][]*piece, len(l.b.sources))
	for i := range l.pieces {
		p := &l.pieces[i]
		bySource[p.source] = append(bySource[p.source], p)
	}
	for r, rep := range l.w.rep {
		for _, p := range bySource[rep] {
			path := make([][2]int, len(p.ports))
			at := r
			for h, j := range p.ports {
				at = l.w.maps[j][at]
				path[h] = [2]int{int(j), at}
			}
			routes = append(routes, plans.Route{Flow: [2]int{r, at}, Bytes: p.share, Path: path})
		}
	}
	return routes
}
