package spectra

import "lightpath/plans"

// exchanger moves circuits between two permutations. Their union is a set of paths and
// cycles; in each of these (a Kempe chain, seen as an edge colouring) the two permutations
// may change roles, independently of the others, and both remain permutations.
type exchanger struct {
	w     *network
	ends  [][2]int32 // edge -> its two ports
	ports int
	mark  []int32 // port -> pair in which a chain has reached it
	pair  int32
	chain []link
	short []int32 // ports of a permutation whose entries are short
	turn  int
	work  int64
}

// link is an edge of a chain; own says that it belongs to the first permutation.
type link struct {
	edge int32
	own  bool
}

func newExchanger(w *network) *exchanger {
	x := &exchanger{w: w, ports: 2 * w.n, ends: make([][2]int32, len(w.to))}
	far := int32(w.n)
	if w.kind == plans.Duplex { // a port is both ends of its pairs
		far, x.ports = 0, w.n
	}
	for e := range x.ends {
		x.ends[e] = [2]int32{w.from[e], w.to[e] + far}
	}
	x.mark = make([]int32, x.ports)
	return x
}

// spread writes the edge of each port to at, or -1 if it has none.
func (x *exchanger) spread(edges []int32, at []int32) {
	for p := range at {
		at[p] = -1
	}
	for _, e := range edges {
		at[x.ends[e][0]], at[x.ends[e][1]] = e, e
	}
}

// gather is the inverse of spread.
func (x *exchanger) gather(at []int32) (edges []int32) {
	for p, e := range at {
		if e >= 0 && int(x.ends[e][0]) == p {
			edges = append(edges, e)
		}
	}
	return edges
}

// mostPartners is the number of permutations with which one exchanges in a pass.
const mostPartners = 24

// relieve lowers the sum of all positive shortfalls. It exchanges chains that have a shortfall in the shorter of two
// permutations if that helps. It repeats passes over all pairs while they help, up to the given number. at lists the
// edges by port and hold. left is the demand minus the held time; relieve updates it.
func (x *exchanger) relieve(holds []hold, at [][]int32, left []float64, passes int) {
	for range passes {
		gain := 0.0
		for i := range holds {
			x.short = x.short[:0]
			for p, e := range at[i] {
				if e >= 0 && int(x.ends[e][0]) == p && left[x.w.entry[e]] > 0 {
					x.short = append(x.short, int32(p))
				}
			}
			x.work += int64(len(at[i]))
			if len(x.short) == 0 {
				continue
			}
			// Of many partners some will do; which ones differs from time to time.
			partners := min(len(holds), mostPartners)
			x.turn++
			for k := range partners {
				j := (x.turn + k*len(holds)/partners) % len(holds)
				if shift := holds[i].weight - holds[j].weight; shift < 0 {
					gain += x.exchange(at[i], at[j], shift, left)
				}
			}
		}
		if gain == 0 {
			return
		}
	}
}

// exchange tries the chains through the short ports of permutation a, which is held for -shift less than b. It returns
// how much the shortfalls decreased.
func (x *exchanger) exchange(a, b []int32, shift float64, left []float64) float64 {
	if x.pair++; x.pair < 0 { // wrapped
		clear(x.mark)
		x.pair = 1
	}
	gain := 0.0
	for _, p := range x.short {
		if x.mark[p] == x.pair || a[p] < 0 || a[p] == b[p] || left[x.w.entry[a[p]]] <= 0 {
			continue
		}
		x.follow(p, a, b)
		change := 0.0
		for _, l := range x.chain {
			now := left[x.w.entry[l.edge]]
			then := now - shift
			if l.own {
				then = now + shift
			}
			change += max(0, then) - max(0, now)
		}
		if change < 1e-9*shift {
			x.flip(a, b, shift, left)
			gain -= change
		}
	}
	return gain
}

// follow collects the chain through port p, first along a, then along b.
func (x *exchanger) follow(p int32, a, b []int32) {
	x.chain = x.chain[:0]
	x.mark[p] = x.pair
	for _, first := range [2]bool{true, false} {
		at, own := p, first
		for {
			e := b[at]
			if own {
				e = a[at]
			}
			if e < 0 {
				break
			}
			next := x.ends[e][0] ^ x.ends[e][1] ^ at
			x.chain = append(x.chain, link{e, own})
			if next == at || x.ends[e][0] == x.ends[e][1] { // a pair of one rank
				break
			}
			if x.mark[next] == x.pair { // round a cycle
				x.work += int64(3 * len(x.chain))
				return
			}
			x.mark[next] = x.pair
			at, own = next, !own
		}
	}
	x.work += int64(3 * len(x.chain))
}

// flip exchanges the roles of a and b in the chain.
func (x *exchanger) flip(a, b []int32, shift float64, left []float64) {
	for _, l := range x.chain {
		u, v := x.ends[l.edge][0], x.ends[l.edge][1]
		if l.own {
			a[u], a[v] = -1, -1
		} else {
			b[u], b[v] = -1, -1
		}
	}
	for _, l := range x.chain {
		u, v := x.ends[l.edge][0], x.ends[l.edge][1]
		if l.own {
			b[u], b[v] = l.edge, l.edge
			left[x.w.entry[l.edge]] += shift
		} else {
			a[u], a[v] = l.edge, l.edge
			left[x.w.entry[l.edge]] -= shift
		}
	}
	x.work += int64(2 * len(x.chain))
}
