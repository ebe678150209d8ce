package spectra

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"lightpath/plans"
)

// The bounds look at one port at a time (Property 2 of the paper): whatever serves the
// demand serves that of each row and column. Seen from a port, a schedule is a set of
// chunks, each a part of one entry on one switch, each costing delta first.
//
// Join the entries and switches that share a chunk. A component of a entries with weight W and b switches has at least
// a+b-1 chunks, so its switches take at least (W + delta (a+b-1)) / b. That is enough: fill one switch after the other,
// and cut the entries that do not fit. So the makespan of a port alone is exactly
//
//	min over partitions of its entries into groups, and of the switches among them,
//	of max over groups (W + delta (a+b-1)) / b.
//
// With T given and c = T-delta this says: the groups' sums of x+delta must be at most
// b c + delta each, b switches to a group, s to all of them. Lower bound 1 follows with as
// many groups as there can be.

// Bound1 is the paper's lower bound 1 (Theorem 1), the largest over all rows and columns.
func Bound1(d Matrix, s int, delta float64) float64 {
	best := 0.0
	for _, port := range newNetwork(d, plans.Simplex).portEntries() {
		best = max(best, bound1(port, s, delta))
	}
	return best
}

func bound1(x []float64, s int, delta float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return (sum(x) + delta*float64(max(len(x), s))) / float64(s)
}

// Bound2 is the paper's lower bound 2 (Theorem 2), the largest over the rows and columns
// that have exactly s positive entries; 0 where there are none.
func Bound2(d Matrix, s int, delta float64) float64 {
	best := 0.0
	for _, x := range newNetwork(d, plans.Simplex).portEntries() {
		if len(x) == s {
			best = max(best, bound2(x, delta))
		}
	}
	return best
}

// bound2 is Eq. 8; x is in falling order.
func bound2(x []float64, delta float64) float64 {
	s := len(x)
	at := func(i int) float64 { // x_i, counted from 1
		if i > s {
			return 0
		}
		return x[i-1]
	}
	w := sum(x)
	average := func(m int) float64 { return (w + float64(m)*delta) / float64(s) }
	least := min(at(1), max(at(2), average(1), at(s)+delta))
	for m := 2; m <= s*s; m++ {
		least = min(least, max(at(m+1), average(m)))
	}
	return delta + least
}

func sum(x []float64) float64 {
	total := 0.0
	for _, v := range x {
		total += v
	}
	return total
}

// portEntries lists the demands of every port, in falling order. On simplex planes the ports are rows and columns. Else
// they are ranks, and each entry counts at both ends: a circuit of a rank to another one serves both directions (on
// interleaved planes: with the inverse).
func (w *network) portEntries() [][]float64 {
	ports := make([][]float64, 2*w.n)
	for i, x := range w.demand {
		a, b := w.row[i][0], w.row[i][1]
		if w.kind == plans.Simplex {
			ports[a] = append(ports[a], x)
			ports[w.n+int(b)] = append(ports[w.n+int(b)], x)
			continue
		}
		if a == b && w.kind == plans.Interleaved {
			x *= 2
		}
		ports[a] = append(ports[a], x)
		if a != b {
			ports[b] = append(ports[b], x)
		}
	}
	for _, x := range ports {
		slices.SortFunc(x, func(a, b float64) int { return cmp.Compare(b, a) })
	}
	return ports
}

// Bound returns a lower bound on the makespan of every timetable of d on s switches. It is at least the larger of
// [Bound1] and [Bound2]. proof says how it is proven.
func Bound(d Matrix, s int, delta float64) (value float64, proof string) {
	return newNetwork(d, plans.Simplex).bound(s, delta, 0, exactRows)
}

// Limits of the exact bound of a port, whose cost is entries * 2^entries.
const (
	exactEntries = 16
	exactRows    = 64
)

// countRange is how many numbers of holds above the degree [countBound] tells apart.
const countRange = 24

// bound is Bound for every kind of plane; s counts planes. Each new circuit costs perPort in addition to delta: a chunk
// has at least one, and all chunks of all ports share the switches' time. At most rows ports get their exact makespan.
func (w *network) bound(s int, delta, perPort float64, rows int) (value float64, proof string) {
	ports := w.portEntries()
	chunk := delta + perPort
	type candidate struct {
		x     []float64
		bound float64
	}
	all := make([]candidate, 0, len(ports))
	for _, x := range ports {
		if len(x) == 0 {
			continue
		}
		b := wholeBound(x, s, chunk)
		all = append(all, candidate{x, b})
		if b > value {
			value, proof = b, "port: its bytes, and a reconfiguration for each part of an entry, over all planes"
		}
		if len(x) == s {
			if b := bound2(x, chunk); b > value {
				value, proof = b, "port: lower bound 2 of SPECTRA"
			}
		}
		if perPort > 0 {
			if b := (sum(x) + delta*float64(len(x)) + perPort*w.circuits()) / float64(s); b > value {
				value, proof = b, "port: its bytes and reconfigurations, and every circuit's change, over all planes"
			}
		}
	}
	if b := countBound(ports, s, delta, perPort*w.circuits()); b > value {
		value, proof = b, "all ports: for each number of reconfigurations, the least durations that fit every port"
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.bound, a.bound) })
	var part partitioner
	for _, c := range all[:min(rows, len(all))] {
		if len(c.x) > exactEntries || part.feasible(c.x, s, chunk, value) {
			continue
		}
		value, proof = part.least(c.x, s, chunk, value),
			"port: the best partition of its entries over the planes, by exhaustion"
	}
	return value, proof
}

// countBound considers all ports together: they share the holds. Let there be N of them, with durations a_1 >= a_2 >=
// ... A port with q entries x_1 >= x_2 >= ... has m = N-q holds to spare, so at most m of its entries are served by
// more than one hold.
//
//   - The others fit into one hold each: a_i >= x_(i+m).
//   - The q-r smallest entries take q-r holds at least, so the r largest have at most r+m:
//     a_1 + ... + a_(r+m) >= x_1 + ... + x_r.
//
// With e_i the largest x_(i+m) of any port, the durations sum to at least x_1 + ... + x_r +
// the e_i with i > r+m, for every port and r. They and N reconfigurations share s switches;
// where N is the degree, each a_i moreover is on one switch. The bound is the least over N.
// fixed is the time that the switches spend on changing circuits.
func countBound(ports [][]float64, s int, delta, fixed float64) float64 {
	degree, widest := 0, 0.0
	for _, x := range ports {
		degree, widest = max(degree, len(x)), max(widest, sum(x))
	}
	least := math.Inf(1)
	tail := make([]float64, degree+1) // e_i + e_(i+1) + ..., i from 0
	for n := degree; (widest+delta*float64(n)+fixed)/float64(s) < least; n++ {
		if n == degree+countRange {
			return min(least, (widest+delta*float64(n)+fixed)/float64(s)) // at least, for n and more
		}
		clear(tail)
		for _, x := range ports {
			for i := n - len(x); i < len(x); i++ {
				tail[i-n+len(x)] = max(tail[i-n+len(x)], x[i])
			}
		}
		whole := 0.0
		if n == degree {
			whole = delta + tail[0]
			if s < degree {
				whole = max(whole, 2*delta+tail[s-1]+tail[s])
			}
		}
		for i := degree - 1; i >= 0; i-- {
			tail[i] += tail[i+1]
		}
		total := 0.0
		for _, x := range ports {
			top := 0.0
			for r := 0; r <= len(x); r++ {
				total = max(total, top+tail[min(degree, r+n-len(x))])
				if r < len(x) {
					top += x[r]
				}
			}
		}
		least = min(least, max(whole, (total+delta*float64(n)+fixed)/float64(s)))
	}
	return least
}

// circuits returns the least number of circuits that all planes must make.
func (w *network) circuits() float64 {
	count := 0
	for _, pair := range w.row {
		count++
		if w.kind == plans.Interleaved || w.kind == plans.Duplex && pair[0] != pair[1] {
			count++
		}
	}
	return float64(count)
}

// wholeBound is lower bound 1, improved for entries that do not fit into the time of one switch. An entry that needs b
// switches is in a group with at least b. That leaves fewer groups.
func wholeBound(x []float64, s int, delta float64) float64 {
	total := sum(x)
	low := (total + delta*float64(max(len(x), s))) / float64(s)
	possible := func(t float64) bool {
		chunks := float64(len(x))
		for _, v := range x {
			more := math.Ceil(v/(t-delta)*(1-1e-12)) - 1
			if more <= 0 {
				break
			}
			chunks += more
		}
		return total+delta*chunks <= float64(s)*t*(1+1e-12)
	}
	if possible(low) {
		return low
	}
	return bisect(low, delta+x[0]+total+delta*float64(len(x)), possible)
}

// bisect returns a value at which possible is false, close below the least value from which it is true. possible must
// be false at low.
func bisect(low, high float64, possible func(float64) bool) float64 {
	for range 40 {
		if mid := (low + high) / 2; possible(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return low
}

// partitioner decides by dynamic programming over subsets whether a port can be served in a
// given time. Switches are laid end to end, c each; a group begins where a switch does and
// may end up to delta behind the end of one, which costs nothing. level[S] is the least position that the entries S
// reach, in any order. It is always right to close a group if possible, because this only moves the position back.
type partitioner struct {
	level []float64
}

// feasible reports whether the exact makespan of a port with entries x is at most t. In case of rounding errors it
// returns true.
func (p *partitioner) feasible(x []float64, s int, delta, t float64) bool {
	c := t - delta
	if c <= 0 {
		return false
	}
	full := 1<<len(x) - 1
	p.level = resize(p.level, full+1)
	level := p.level
	inv := 1 / c
	slack := delta + 1e-9*t
	limit := float64(s)*c + slack
	for set := 1; set <= full; set++ {
		best := math.Inf(1)
		for rest := uint(set); rest != 0; rest &= rest - 1 {
			i := bits.TrailingZeros(rest)
			best = min(best, level[set&^(1<<i)]+x[i])
		}
		best += delta
		if best > limit {
			best = math.Inf(1)
		} else {
			best = min(best, math.Ceil((best-slack)*inv)*c)
		}
		level[set] = best
	}
	return level[full] <= limit
}

// least returns a lower bound on the makespan of a port, close to exact; low is infeasible.
func (p *partitioner) least(x []float64, s int, delta, low float64) float64 {
	high := low
	for gap := low * 0.02; !p.feasible(x, s, delta, high); gap *= 2 {
		low, high = high, high+gap
	}
	for range 24 {
		if mid := (low + high) / 2; p.feasible(x, s, delta, mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return low
}
