package plans

import (
	"errors"
	"fmt"
	"math"

	"lightpath/plans/circuit"
)

// The tolerance of every comparison of times: two times are the same when they differ by
// at most ToleranceUS + ToleranceRel * the larger one.
const (
	ToleranceRel = 1e-9
	ToleranceUS  = 1e-6
)

// ErrUnreachable is the error of a flow without a route on a plane's circuits.
var ErrUnreachable = errors.New("no route on these circuits")

// Tolerance returns the slack, in us, of a comparison of the times a and b. It is finite for infinite times, so that no
// finite time equals a cost that overflows.
func Tolerance(a, b float64) float64 {
	return ToleranceUS + ToleranceRel*math.Min(math.MaxFloat64, math.Max(math.Abs(a), math.Abs(b)))
}

// SameUS reports whether the times a and b are equal within tolerance.
func SameUS(a, b float64) bool { return math.Abs(a-b) <= Tolerance(a, b) }

// AtLeastUS reports whether time a is not below b, within tolerance.
func AtLeastUS(a, b float64) bool { return a-b >= -Tolerance(a, b) }

// CarriesAll reports whether sent bytes cover the asked bytes: the missing bytes, as time on one circuit, are within
// tolerance. They are also at most a millionth of the flow: else a plan could omit a small flow on a fast plane.
func CarriesAll(p *Problem, sent, asked float64) bool {
	slack := math.Min(ToleranceUS*p.BandwidthGbps/8e-3, 1e-6*asked)
	return sent >= asked-slack-ToleranceRel*asked
}

// WireUS returns the time in us that bytes take on one circuit.
func WireUS(p *Problem, bytes float64) float64 { return 8e-3 * bytes / p.BandwidthGbps }

// TransmitUS returns the duration in us of a transmit entry that carries bytes of each of its flows: alpha + hop*H +
// 8e-3*bytes*L/bandwidth, where hops (H) and load (L) come from [Loader.Load]. An entry without flows or without bytes
// costs nothing.
func TransmitUS(p *Problem, hops, load int, bytes float64) float64 {
	if load == 0 || bytes == 0 {
		return 0
	}
	return p.AlphaUS + p.HopUS*float64(hops) + 8e-3*bytes*float64(load)/p.BandwidthGbps
}

// JointUS returns the duration in us of a joint transmit. hops is its longest path, and bytes are the most bytes that
// cross one circuit of any plane.
func JointUS(p *Problem, hops int, bytes float64) float64 {
	return TransmitUS(p, hops, 1, bytes)
}

// JointLoad returns the longest path of a joint transmit's routes, and the most bytes that cross one circuit. Routes
// without bytes do not count.
func JointLoad(routes []Route) (hops int, bytes float64) {
	crossing := make(map[[2]int]float64) // by {plane, transmitter}
	for _, r := range routes {
		if r.Bytes == 0 {
			continue
		}
		hops = max(hops, len(r.Path))
		at := r.Flow[0]
		for _, hop := range r.Path {
			c := [2]int{hop[0], at}
			crossing[c] += r.Bytes
			bytes = math.Max(bytes, crossing[c])
			at = hop[1]
		}
	}
	return hops, bytes
}

// ReconfigUS returns the duration in us of a reconfiguration of one plane. Each transmit port that gets a new target
// adds p.ReconfigPerPort; a port that only goes dark adds nothing ([circuit.Permutation.Changes]). A reconfiguration
// that changes nothing takes p.ReconfigUS.
func ReconfigUS(p *Problem, from, to circuit.Permutation) float64 {
	if p.ReconfigPerPort == 0 {
		return p.ReconfigUS
	}
	return ReconfigPortsUS(p, from.Changes(to))
}

// ReconfigPortsUS returns [ReconfigUS] for a given number of transmit ports that get a new target, from 1 to p.Ranks.
func ReconfigPortsUS(p *Problem, ports int) float64 {
	return p.ReconfigUS + p.ReconfigPerPort*float64(ports)
}

// Load counts the hops of the longest flow on perm, and the most flows that cross one circuit. For many calls, use a
// [Loader].
func Load(perm circuit.Permutation, flows [][2]int) (hops, load int, err error) {
	var l Loader
	l.SetMap(perm)
	return l.Load(flows)
}

// Loader measures flows on permutations in O(ranks + flows) and without allocating, once
// its buffers have grown. A circuit map is a set of disjoint cycles and chains. If ranks are numbered along them, the
// hops of a flow are a difference of two numbers, and its circuits an interval. The zero value is ready. Not safe for
// concurrent use.
type Loader struct {
	n     int
	order []int // ranks, component by component, along the circuits
	pos   []int // rank -> index in order
	base  []int // rank -> index in order at which its component begins
	size  []int // rank -> ranks of its component, negated for a chain
	diff  []int // load differences over order; the circuit out of order[i] is i
}

// SetMap selects the permutation that Load and Measure use. perm must be valid (see
// [circuit.Permutation.Validate]) and is not kept.
func (l *Loader) SetMap(perm circuit.Permutation) {
	n := len(perm)
	l.grow(n)
	pos := l.pos
	// diff marks the ranks that receive: chains begin at the others.
	for r := range n {
		pos[r], l.diff[r] = -1, 0
	}
	for _, s := range perm {
		if s != circuit.Dark {
			l.diff[s] = 1
		}
	}
	at := 0
	for r := range n {
		if l.diff[r] == 0 {
			at = l.walk(perm, r, at, -1)
		}
	}
	for r := range n {
		if pos[r] < 0 {
			at = l.walk(perm, r, at, 1)
		}
	}
}

func (l *Loader) grow(n int) {
	l.n = n
	if cap(l.order) < n {
		buf := make([]int, 5*n+1)
		l.order, l.pos, l.base, l.size, l.diff = buf[:n:n], buf[n:2*n:2*n], buf[2*n:3*n:3*n], buf[3*n:4*n:4*n], buf[4*n:]
		return
	}
	l.order, l.pos, l.base, l.size, l.diff = l.order[:n], l.pos[:n], l.base[:n], l.size[:n], l.diff[:n+1]
}

// walk numbers the component that begins at r, starting with index at. It returns the next free index. sign is 1 for a
// cycle and -1 for a chain.
func (l *Loader) walk(perm circuit.Permutation, r, at, sign int) int {
	begin := at
	for ; r != circuit.Dark && l.pos[r] < 0; r = perm[r] {
		l.pos[r], l.order[at] = at, r
		at++
	}
	for i := begin; i < at; i++ {
		l.base[l.order[i]], l.size[l.order[i]] = begin, sign*(at-begin)
	}
	return at
}

// Hops counts the circuits from src to dst on the bound permutation; false if there is no route. Constant time.
func (l *Loader) Hops(src, dst int) (int, bool) {
	if l.base[src] != l.base[dst] {
		return 0, false
	}
	h := l.pos[dst] - l.pos[src]
	if h < 0 {
		if l.size[src] < 0 {
			return 0, false
		}
		h += l.size[src]
	}
	return h, true
}

// Load returns H and L of flows on the bound permutation, or an error that wraps
// [ErrUnreachable] and names the first flow without a route.
func (l *Loader) Load(flows [][2]int) (hops, load int, err error) {
	hops, load, bad := l.Measure(flows)
	if bad >= 0 {
		return 0, 0, fmt.Errorf("flow %d -> %d: %w", flows[bad][0], flows[bad][1], ErrUnreachable)
	}
	return hops, load, nil
}

// Measure is Load without an error: bad is the index of the first flow without a route, or -1. It never allocates.
// Ranks of flows must be in range.
func (l *Loader) Measure(flows [][2]int) (hops, load, bad int) {
	diff := l.diff[:l.n+1]
	clear(diff)
	for i, f := range flows {
		h, ok := l.Hops(f[0], f[1])
		if !ok {
			return 0, 0, i
		}
		hops = max(hops, h)
		from := l.pos[f[0]]
		to := from + h // one past the last circuit used
		diff[from]++
		if end := l.base[f[0]] + l.size[f[0]]; l.size[f[0]] > 0 && to > end { // round the cycle
			diff[end]--
			diff[l.base[f[0]]]++
			to -= l.size[f[0]]
		}
		diff[to]--
	}
	sum := 0
	for _, d := range diff {
		sum += d
		load = max(load, sum)
	}
	return hops, load, -1
}
