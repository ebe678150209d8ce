package schedule

// Swing (De Sensi et al. 2024) on a torus of even dimensions, equal in pattern to the Bine
// butterfly (De Sensi et al. 2025). In one dimension rank r exchanges in step s with r +
// rho(s) where r is even and r - rho(s) where it is odd, rho(s) = 1, -1, 3, -5, 11, ...
// being the sum of the first powers of -2. On a torus a step does so with one coordinate.
//
// Rank r has coordinate r / (dims[0] ... dims[i-1]) mod dims[i] in dimension i, as the tori
// of the planners have. By name: swing alone is one dimension and one port. swing:n and
// swing:4x4x4 use all ports of a torus, two a dimension: as many allreduces at once, each
// on its share of the data. Port k takes the dimensions in turn, beginning with k, until
// each is done; the second half of the ports mirrors the first, with -rho for rho. Where the
// dimensions are equal, and more than 2, the ports of a step have a neighbour each.
//
// Any even number of ranks, or of each dimension, will do: where it is no power of two some
// ranks can be reached in several ways, and each block takes the one whose first step is the
// latest, so that every rank passes it on once and the bytes stay optimal. An odd number of
// ranks, in one dimension on one port, folds its last rank into rank 0.

// torus is the parameter of swing: the dimensions.
var torus = &parameter{
	what: "dimensions of a torus, like 4x4", most: 6, least: 2,
	fits: func(n int, args []int) bool {
		for _, d := range args {
			if d%2 != 0 || n%d != 0 {
				return false
			}
			n /= d
		}
		return n == 1
	},
}

// swingPort is the part of an allreduce that leaves over one port of every rank.
type swingPort struct {
	dims []int
	sign int   // -1: mirrored
	hops []hop // by step
	// passed[s] are the distances of the owners of what a rank passes on in step s of a
	// reduce-scatter: the same for all ranks, since each measures from its own side.
	passed [][]int
	place  []int // where an owner's chunk lies
	// ranged: on a power of two, what a rank passes on in a step is one range of places.
	ranged bool
}

// hop is a step's: the distance in one dimension.
type hop struct{ dim, far int }

// swingPorts returns the ports of swing for the named parameters on p ranks.
func swingPorts(p int, dims []int) []*swingPort {
	if dims == nil {
		return []*swingPort{newSwingPort([]int{p}, 0, 1)}
	}
	var ports []*swingPort
	for _, sign := range []int{1, -1} {
		for first := range dims {
			ports = append(ports, newSwingPort(dims, first, sign))
		}
	}
	return ports
}

func newSwingPort(dims []int, first, sign int) *swingPort {
	t := &swingPort{dims: dims, sign: sign}
	used := make([]int, len(dims)) // steps of a dimension so far
	stepOf := make([][]int, len(dims))
	for i, idle := first, 0; idle < len(dims); i = (i + 1) % len(dims) {
		if 1<<used[i] >= dims[i] {
			idle++
			continue
		}
		idle = 0
		stepOf[i] = append(stepOf[i], len(t.hops))
		t.hops = append(t.hops, hop{i, rho(used[i])})
		used[i]++
	}
	t.route(stepOf)
	return t
}

// rho is the distance of step s.
func rho(s int) int {
	sum, term := 0, 1
	for range s + 1 {
		sum, term = sum+term, term*-2
	}
	return sum
}

// firstHops returns the step, of so many, in which a block leaves an even rank, for every
// distance that it may have to go in a dimension of d ranks; -1 for 0. An odd rank is the
// mirror image.
func firstHops(d, steps int) []int {
	first := make([]int, d)
	for i := range first {
		first[i] = -1
	}
	reached := []int{0} // in the steps after s
	for s := steps - 1; s >= 0; s-- {
		for _, x := range reached {
			if x = ((rho(s)-x)%d + d) % d; x != 0 && first[x] < 0 {
				first[x] = s
				reached = append(reached, x)
			}
		}
	}
	return first
}

// route fills in passed and place. stepOf[i][s] is the step of all that is step s of
// dimension i.
func (t *swingPort) route(stepOf [][]int) {
	n := 1
	first := make([][]int, len(t.dims))
	for i, d := range t.dims {
		n *= d
		first[i] = firstHops(d, len(stepOf[i]))
	}
	step := make([]int, n) // by distance: the step in which a block leaves
	t.passed = make([][]int, len(t.hops))
	for far := 1; far < n; far++ {
		step[far] = len(t.hops)
		x := far
		for i, d := range t.dims {
			if s := first[i][x%d]; s >= 0 {
				step[far] = min(step[far], stepOf[i][s])
			}
			x /= d
		}
		t.passed[step[far]] = append(t.passed[step[far]], far)
	}
	t.place = upTo(0, n)
	if t.ranged = n == 1<<len(t.hops); t.ranged {
		for o := range t.place {
			t.place[o] = t.position(o, step)
		}
	}
}

// position returns where the chunk of owner o lies on a power of two of ranks: the steps
// of its way from rank 0, as bits from the highest. What a rank passes on in a step is then
// one range: what its peer's place has in common with the owner's but for the bits of later
// steps.
func (t *swingPort) position(o int, step []int) int {
	at := 0
	for r := 0; r != o; {
		s := step[t.distance(r, o)]
		at |= 1 << (len(t.hops) - 1 - s)
		r = t.peer(r, s)
	}
	return at
}

// peer returns the rank with which r exchanges in step s.
func (t *swingPort) peer(r, s int) int {
	far := t.hops[s].far
	for _, d := range t.dims[:t.hops[s].dim] {
		far *= d
	}
	return t.at(r, far)
}

// A distance is the rank that is so far from rank 0. Ranks measure each coordinate in their
// own direction: upwards where theirs is even and downwards where it is odd, or the other
// way round on a mirrored port.

// at returns the rank at a distance from r.
func (t *swingPort) at(r, far int) int {
	return t.each(r, far, func(x, y, up int) int { return x + up*y })
}

// distance returns how far o is from r.
func (t *swingPort) distance(r, o int) int {
	return t.each(r, o, func(x, y, up int) int { return up * (y - x) })
}

// each returns the rank whose coordinates are f of those of r and o and the direction of r.
func (t *swingPort) each(r, o int, f func(x, y, up int) int) int {
	rank, size := 0, 1
	for _, d := range t.dims {
		x, up := r%d, t.sign
		if x%2 != 0 {
			up = -up
		}
		rank += (f(x, o%d, up)%d + d) % d * size
		size, r, o = size*d, r/d, o/d
	}
	return rank
}
