package network

import (
	"container/heap"
	"math"
)

// Graph is a directed graph with bounds and costs on its arcs. It is for one goroutine, and
// is solved once.
type Graph struct {
	to, next  []int32 // arcs; 2i+1 is the reverse of 2i
	room      []int   // residual capacity
	cost      []int
	first     []int32 // by node
	lower     []int   // by arc of the caller
	imbalance []int   // by node: what lower bounds bring in, less what they take out
	level     []int32
	at        []int32
	potential []int
}

// New returns a graph of n nodes without arcs; arcs is how many to expect.
func New(n, arcs int) *Graph {
	g := &Graph{first: make([]int32, n), imbalance: make([]int, n), lower: make([]int, 0, arcs),
		to: make([]int32, 0, 2*arcs), next: make([]int32, 0, 2*arcs), room: make([]int, 0, 2*arcs),
		cost: make([]int, 0, 2*arcs)}
	for v := range g.first {
		g.first[v] = -1
	}
	return g
}

// Arc adds an arc that must carry from lower to upper units, 0 <= lower <= upper, each at the
// given cost, and returns its number.
func (g *Graph) Arc(from, to, lower, upper, cost int) int {
	g.lower = append(g.lower, lower)
	id := g.arc(from, to, upper-lower, cost)
	carried := lower
	if cost < 0 { // it begins full, so that what is left to pay for is taking back
		carried = upper
		g.room[id], g.room[id+1] = 0, upper-lower
	}
	g.imbalance[from] -= carried
	g.imbalance[to] += carried
	return id / 2
}

func (g *Graph) arc(from, to, room, cost int) int {
	id := len(g.to)
	g.to = append(g.to, int32(to), int32(from))
	g.next = append(g.next, g.first[from], g.first[to])
	g.room = append(g.room, room, 0)
	g.cost = append(g.cost, cost, -cost)
	g.first[from], g.first[to] = int32(id), int32(id+1)
	return id
}

// Flow returns what arc id carries after Circulate or Cheapest.
func (g *Graph) Flow(id int) int { return g.lower[id] + g.room[2*id+1] }

// Circulate finds a circulation: every bound kept, and at every node as much in as out. It
// reports false where there is none.
func (g *Graph) Circulate() bool {
	source, sink, need := g.balance()
	for need > 0 && g.levels(source, sink) {
		need -= g.block(source, sink)
	}
	return need == 0
}

// Cheapest is Circulate for a circulation of least cost.
func (g *Graph) Cheapest() bool {
	source, sink, need := g.balance()
	g.potential = make([]int, len(g.first))
	for need > 0 && g.distances(source, sink) {
		for g.levels(source, sink) {
			need -= g.block(source, sink)
		}
	}
	return need == 0
}

// balance adds a source and a sink through which a flow of need makes up for lower bounds.
func (g *Graph) balance() (source, sink, need int) {
	source, sink = len(g.first), len(g.first)+1
	g.first = append(g.first, -1, -1)
	for v, excess := range g.imbalance {
		switch {
		case excess > 0:
			g.arc(source, v, excess, 0)
			need += excess
		case excess < 0:
			g.arc(v, sink, -excess, 0)
		}
	}
	g.level, g.at = make([]int32, len(g.first)), make([]int32, len(g.first))
	return source, sink, need
}

// usable reports whether arc e out of u has room, and in the search for least cost lies on a shortest path.
func (g *Graph) usable(u, e int32) bool {
	return g.room[e] > 0 && (g.potential == nil || g.cost[e]+g.potential[u]-g.potential[g.to[e]] == 0)
}

// levels numbers nodes by their distance from the source over usable arcs.
func (g *Graph) levels(source, sink int) bool {
	for v := range g.level {
		g.level[v] = -1
	}
	g.level[source] = 0
	queue := append(make([]int32, 0, len(g.level)), int32(source))
	for len(queue) > 0 {
		u := queue[0]
		queue = queue[1:]
		for e := g.first[u]; e >= 0; e = g.next[e] {
			if v := g.to[e]; g.level[v] < 0 && g.usable(u, e) {
				g.level[v] = g.level[u] + 1
				queue = append(queue, v)
			}
		}
	}
	return g.level[sink] >= 0
}

// block saturates the paths of the levels and returns how much went through.
func (g *Graph) block(source, sink int) int {
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
func (g *Graph) push(u, sink int32, limit int) int {
	if u == sink {
		return limit
	}
	for ; g.at[u] >= 0; g.at[u] = g.next[g.at[u]] {
		e := g.at[u]
		v := g.to[e]
		if g.level[v] != g.level[u]+1 || !g.usable(u, e) {
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

// distances adds to the potentials the shortest distances from the source in reduced costs,
// and reports whether the sink can be reached.
func (g *Graph) distances(source, sink int) bool {
	dist := make([]int, len(g.first))
	for v := range dist {
		dist[v] = math.MaxInt
	}
	dist[source] = 0
	queue := &byDistance{{0, int32(source)}}
	for queue.Len() > 0 {
		item := heap.Pop(queue).(reached)
		if item.dist > dist[item.node] {
			continue
		}
		for e := g.first[item.node]; e >= 0; e = g.next[e] {
			if g.room[e] == 0 {
				continue
			}
			v := g.to[e]
			if d := item.dist + g.cost[e] + g.potential[item.node] - g.potential[v]; d < dist[v] {
				dist[v] = d
				heap.Push(queue, reached{d, v})
			}
		}
	}
	if dist[sink] == math.MaxInt {
		return false
	}
	for v, d := range dist { // beyond the sink nothing needs to be known
		g.potential[v] += min(d, dist[sink])
	}
	return true
}

type reached struct {
	dist int
	node int32
}

type byDistance []reached

func (q byDistance) Len() int           { return len(q) }
func (q byDistance) Less(i, j int) bool { return q[i].dist < q[j].dist }
func (q byDistance) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *byDistance) Push(x any)        { *q = append(*q, x.(reached)) }
func (q *byDistance) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
