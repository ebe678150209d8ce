package decompose

import "math"

// graph is a directed graph with bounds on its arcs. circulate solves it, once. The method is Dinic's, with lower
// bounds as supplies and demands of the nodes.
type graph struct {
	to, next  []int32 // arcs; 2i+1 is the reverse of 2i
	room      []int   // residual capacity
	first     []int32 // by node
	lower     []int   // by arc of the caller
	imbalance []int   // by node: lower bounds of its incoming arcs less those of its outgoing arcs
	level     []int32
	at        []int32
}

// newGraph returns a graph of n nodes without arcs, with room for so many arcs.
func newGraph(n, arcs int) *graph {
	g := &graph{first: make([]int32, n), imbalance: make([]int, n), lower: make([]int, 0, arcs),
		to: make([]int32, 0, 2*arcs), next: make([]int32, 0, 2*arcs), room: make([]int, 0, 2*arcs)}
	for v := range g.first {
		g.first[v] = -1
	}
	return g
}

// arc adds an arc that must carry from lower to upper units, 0 <= lower <= upper, and returns its number.
func (g *graph) arc(from, to, lower, upper int) int {
	g.lower = append(g.lower, lower)
	id := g.pair(from, to, upper-lower)
	g.imbalance[from] -= lower
	g.imbalance[to] += lower
	return id / 2
}

// pair adds an arc with that capacity and its reverse.
func (g *graph) pair(from, to, room int) int {
	id := len(g.to)
	g.to = append(g.to, int32(to), int32(from))
	g.next = append(g.next, g.first[from], g.first[to])
	g.room = append(g.room, room, 0)
	g.first[from], g.first[to] = int32(id), int32(id+1)
	return id
}

// carried returns how many units an arc carries in the circulation.
func (g *graph) carried(id int) int { return g.lower[id] + g.room[2*id+1] }

// circulate finds a circulation: it keeps every bound, and as much enters each node as leaves it. It reports false
// if there is none.
func (g *graph) circulate() bool {
	source, sink, need := g.balance()
	for need > 0 && g.levels(source, sink) {
		need -= g.block(source, sink)
	}
	return need == 0
}

// balance adds a source and a sink. A flow of need units between them is a circulation that keeps the lower bounds.
func (g *graph) balance() (source, sink, need int) {
	source, sink = len(g.first), len(g.first)+1
	g.first = append(g.first, -1, -1)
	for v, excess := range g.imbalance {
		switch {
		case excess > 0:
			g.pair(source, v, excess)
			need += excess
		case excess < 0:
			g.pair(v, sink, -excess)
		}
	}
	g.level, g.at = make([]int32, len(g.first)), make([]int32, len(g.first))
	return source, sink, need
}

// levels numbers nodes by their distance from the source over arcs with room.
func (g *graph) levels(source, sink int) bool {
	for v := range g.level {
		g.level[v] = -1
	}
	g.level[source] = 0
	queue := append(make([]int32, 0, len(g.level)), int32(source))
	for len(queue) > 0 {
		u := queue[0]
		queue = queue[1:]
		for e := g.first[u]; e >= 0; e = g.next[e] {
			if v := g.to[e]; g.level[v] < 0 && g.room[e] > 0 {
				g.level[v] = g.level[u] + 1
				queue = append(queue, v)
			}
		}
	}
	return g.level[sink] >= 0
}

// block saturates the paths of the levels and returns how many units it sent.
func (g *graph) block(source, sink int) int {
	copy(g.at, g.first)
	sum := 0
	for {
		pushed := g.push(int32(source), int32(sink), math.MaxInt)
		if pushed == 0 {
			return sum
		}
		sum += pushed
	}
}

// push sends up to limit along one path of the levels. Its depth is that of the levels.
func (g *graph) push(u, sink int32, limit int) int {
	if u == sink {
		return limit
	}
	for ; g.at[u] >= 0; g.at[u] = g.next[g.at[u]] {
		e := g.at[u]
		v := g.to[e]
		if g.level[v] != g.level[u]+1 || g.room[e] == 0 {
			continue
		}
		if pushed := g.push(v, sink, min(limit, g.room[e])); pushed > 0 {
			g.room[e] -= pushed
			g.room[e^1] += pushed
			return pushed
		}
	}
	return 0
}
