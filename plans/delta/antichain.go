package delta

// heaviestAntichain returns the largest weight of a set of elements of which none is before another.
// before must be a strict partial order.
//
// By Dilworth's theorem, weighted, that is the fewest chains that cover every element as often as its weight: a minimum
// flow. At first, every element is its weight of chains. A chain that ends in x can be joined to one that begins with
// y, if x is before y. Every joint saves a chain. The most joints are a maximum flow from ends to beginnings, whose
// capacities are the weights.
func heaviestAntichain(weights []int, before func(x, y int) bool) int {
	f := newJoints(weights, before)
	chains := 0
	for _, w := range weights {
		chains += w
	}
	for x := range weights {
		for f.ends[x] > 0 {
			pushed := f.augment(x)
			if pushed == 0 {
				break
			}
			chains -= pushed
		}
	}
	return chains
}

// joints is a flow in the bipartite graph of ends and beginnings.
type joints struct {
	after  [][]int       // by end: beginnings that it may be joined to
	flow   []map[int]int // by beginning: from which ends
	ends   []int         // weight of each that no joint uses yet
	begins []int
	seen   []bool // beginnings of the search at hand
}

func newJoints(weights []int, before func(x, y int) bool) *joints {
	n := len(weights)
	f := &joints{
		after: make([][]int, n), flow: make([]map[int]int, n),
		ends: append([]int(nil), weights...), begins: append([]int(nil), weights...), seen: make([]bool, n),
	}
	for x := range n {
		f.flow[x] = make(map[int]int)
		for y := range n {
			if before(x, y) {
				f.after[x] = append(f.after[x], y)
			}
		}
	}
	return f
}

// augment pushes flow out of end x and returns how much; 0 if no path is left.
func (f *joints) augment(x int) int {
	clear(f.seen)
	pushed := f.push(x, f.ends[x])
	f.ends[x] -= pushed
	return pushed
}

// push adds at most want units of flow from end x: directly, or by moving the flow of another end to another beginning.
func (f *joints) push(x, want int) int {
	for _, y := range f.after[x] {
		if f.seen[y] {
			continue
		}
		f.seen[y] = true
		if n := min(want, f.begins[y]); n > 0 {
			f.begins[y] -= n
			f.flow[y][x] += n
			return n
		}
		for other, has := range f.flow[y] {
			if other == x || has == 0 {
				continue
			}
			if n := f.push(other, min(want, has)); n > 0 {
				f.flow[y][other] -= n
				f.flow[y][x] += n
				return n
			}
		}
	}
	return 0
}
