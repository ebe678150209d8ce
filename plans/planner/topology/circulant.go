package topology

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lightpath/plans/circuit"
)

// Limits of the search for better shifts in BestCirculant: the most ranks, and the most circuits that it follows.
const (
	searchRanks = 512
	searchWork  = 1 << 26
)

// Circulant returns the graph of n ranks in which port i of rank r leads to r + shifts[i]
// (mod n). One shift s makes the shifted ring of stride s, which is gcd(n, s) separate
// rings; no shift may be 0 mod n.
func Circulant(n int, shifts ...int) (Graph, error) {
	if n < 2 || len(shifts) == 0 {
		return Graph{}, shapef("a circulant of %d ranks and %d ports", n, len(shifts))
	}
	g := Graph{Maps: make([]circuit.Permutation, len(shifts))}
	names := make([]string, len(shifts))
	for i, s := range shifts {
		if s%n == 0 {
			return Graph{}, shapef("shift %d leads every of %d ranks to itself", s, n)
		}
		g.Maps[i] = circuit.Shift(n, s)
		names[i] = fmt.Sprintf("%+d", s)
	}
	kind := "circulant "
	if len(shifts) == 1 {
		kind = "ring "
	}
	g.Name = kind + strings.Join(names, " ")
	return g, nil
}

// BestCirculant returns the circulant of n ranks and ports shifts with small mean distance, hence large theta for
// total exchange. It takes the powers of the best base. Up to 512 ranks it then changes one shift after the other as
// long as that shortens the mean distance, unless this takes long or stop, which may be nil, returns true. ports >= 1;
// if it exceeds n-1 some ports share a shift.
func BestCirculant(n, ports int, stop func() bool) (Graph, error) {
	if n < 2 || ports < 1 {
		return Graph{}, shapef("a circulant of %d ranks and %d ports", n, ports)
	}
	c := circulantSearch{n: n, dist: make([]int, n), work: searchWork, stop: stop}
	best, least := []int(nil), int64(math.MaxInt64)
	top := 2 // the base whose powers reach round once; a single port has just the shift by 1
	if ports > 1 {
		top = int(math.Ceil(math.Pow(float64(n), 1/float64(ports)))) + 1
	}
	for base := 2; base <= top; base++ {
		shifts := powers(n, ports, base)
		if d := c.total(shifts); d < least {
			best, least = shifts, d
		}
	}
	if n <= searchRanks {
		best = c.improve(best, least)
	}
	slices.Sort(best)
	return Circulant(n, best...)
}

// powers returns 1, base, base^2, ... mod n, with 0 replaced by 1.
func powers(n, ports, base int) []int {
	shifts := make([]int, ports)
	s := 1
	for i := range shifts {
		shifts[i] = s
		if s = s * base % n; s == 0 {
			s = 1
		}
	}
	return shifts
}

// circulantSearch measures circulants by the distances from rank 0: all ranks are alike.
type circulantSearch struct {
	n     int
	dist  []int
	queue []int
	work  int // circuits that improve may still follow
	stop  func() bool
}

// total returns the sum of the distances from rank 0; a rank without a path counts n.
func (c *circulantSearch) total(shifts []int) int64 {
	for r := range c.dist {
		c.dist[r] = c.n
	}
	c.dist[0] = 0
	c.queue = append(c.queue[:0], 0)
	sum := int64(0)
	for i := 0; i < len(c.queue); i++ {
		u := c.queue[i]
		sum += int64(c.dist[u])
		for _, s := range shifts {
			if v := (u + s) % c.n; c.dist[v] == c.n {
				c.dist[v] = c.dist[u] + 1
				c.queue = append(c.queue, v)
			}
		}
	}
	return sum + int64(c.n)*int64(c.n-len(c.queue))
}

// improve replaces one shift at a time by the best other one, until none helps. The first
// shift stays: of a set with a unit among its shifts, multiples are the same graph.
func (c *circulantSearch) improve(shifts []int, least int64) []int {
	for better := true; better; {
		better = false
		for i := 1; i < len(shifts); i++ {
			keep := shifts[i]
			for s := 1; s < c.n; s++ {
				if c.work -= c.n * len(shifts); c.work < 0 || c.stop != nil && c.stop() {
					shifts[i] = keep
					return shifts
				}
				shifts[i] = s
				if d := c.total(shifts); d < least {
					keep, least, better = s, d, true
				}
			}
			shifts[i] = keep
		}
	}
	return shifts
}
