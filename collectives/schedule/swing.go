package schedule

import "slices"

// Swing (De Sensi et al. 2024) runs on a torus of even dimensions. It has the same pattern as the Bine butterfly (De
// Sensi et al. 2025). In one dimension and step s, an even rank r exchanges with r + rho(s) and an odd rank with r -
// rho(s), where rho(s) = 1, -1, 3, -5, 11, ... is the sum of the first powers of -2. On a torus, a step does this in
// one coordinate.
//
// Rank r has coordinate r / (dims[0] ... dims[i-1]) mod dims[i] in dimension i, as in the tori of the planners. The
// name "swing" means one dimension and one port. The names swing:n and swing:4x4x4 use all ports of a torus, two per
// dimension, with one allreduce per port on a share of the data. Port k uses the dimensions in turn, beginning with k,
// until each is done. The second half of the ports mirrors the first, with -rho instead of rho. If the dimensions are
// equal and larger than 2, each port of a step has another neighbour.
//
// The size of each dimension may be any even number. If it is not a power of two, some ranks can be reached in several
// ways. Each block takes the way whose first step is the latest. So every rank sends it once, and the bytes stay
// optimal. With an odd number of ranks (one dimension, one port), the last rank is folded into rank 0.

// torus is the parameter of swing: the dimensions.
var torus = &parameter{
	what: "dimensions of a torus, like 4x4", maxCount: 6, minValue: 2,
	valid: func(n int, args []int) bool {
		for _, d := range args {
			if d%2 != 0 || n%d != 0 {
				return false
			}
			n /= d
		}
		return n == 1
	},
}

// swingPort is the part of an allreduce that uses one port of every rank.
type swingPort struct {
	dims []int
	sign int   // -1 for a mirrored port
	hops []hop // by step
	// passed[s] are the distances to the owners of the chunks that a rank sends in step s of a reduce-scatter. They are
	// the same for all ranks, because each rank measures in its own direction.
	passed [][]int
	place  []int // position of each owner's chunk
	// ranged is set for powers of two: the chunks that a rank sends in a step are one range of places.
	ranged bool
}

// hop is the dimension and the distance of a step.
type hop struct{ dim, far int }

// swingPorts returns the ports of swing for the given dimensions on p ranks.
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

// rho returns the distance of step s.
func rho(s int) int {
	sum, term := 0, 1
	for range s + 1 {
		sum, term = sum+term, term*-2
	}
	return sum
}

// firstHops returns, for every distance in a dimension of d ranks, the step in which a block leaves an even rank; -1
// for distance 0. An odd rank is the mirror image.
func firstHops(d, steps int) []int {
	first := slices.Repeat([]int{-1}, d)
	reached := []int{0} // distances covered by the steps after s
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

// route sets passed and place. stepOf[i][s] is the number of step s of dimension i among all steps.
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

// position returns the position of the chunk of owner o for a power of two of ranks. Its bits, from the highest, are
// the steps of the way from rank 0 to o. So the chunks that a rank sends in a step are one range: they agree with the
// peer's place in all bits except those of later steps.
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

// A distance is represented by the rank at that distance from rank 0. A rank measures a coordinate upwards if its own
// coordinate is even and downwards if it is odd, and the opposite on a mirrored port.

// at returns the rank at a distance from r.
func (t *swingPort) at(r, far int) int {
	return t.each(r, far, func(x, y, up int) int { return x + up*y })
}

func (t *swingPort) distance(r, o int) int {
	return t.each(r, o, func(x, y, up int) int { return up * (y - x) })
}

// each returns the rank whose coordinates are f of the coordinates of r and o and the direction of r.
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
