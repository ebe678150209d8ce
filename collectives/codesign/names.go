package codesign

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"

	"lightpath/collectives/schedule"
	"lightpath/plans"
)

// maxFlows limits the flows of a schedule. It is the number of flows of a direct exchange between 2048 ranks.
const maxFlows = 1 << 22

// predictedFlows returns an upper estimate of the flows of a schedule, without building it.
func predictedFlows(algorithm string, n int) int {
	base, args, _ := strings.Cut(withoutOrder(algorithm), ":")
	switch base {
	case "bruck":
		r := radixOf(args)
		return 2 * n * min(n-1, (r-1)*digits(n, r))
	case "ring":
		return 2 * n * n
	case "pairwise", "pod-pairwise", "pairwise-xor", "round-robin", "direct", "hierarchical-ring":
		return n * n
	default:
		return 16 * n * (bits.Len(uint(n)) + 1)
	}
}

// radixOf returns the radix that the parameter of a Bruck algorithm states.
func radixOf(arg string) int {
	r, err := strconv.Atoi(arg)
	if err != nil {
		return 2
	}
	return r
}

// bySize orders algorithms for screening: families with few flows first, so that a plan exists early. Bruck's radices
// are in order of a rough estimate of their time, because a short time limit may leave no time for the last ones.
func (s *search) bySize(a, b string) int {
	key := func(name string) (flows int, us float64) {
		base, arg, _ := strings.Cut(withoutOrder(name), ":")
		if base == "bruck" {
			name, us = base, s.estimateUS(radixOf(arg))
		}
		return predictedFlows(name, s.Ranks), us
	}
	flowsA, usA := key(a)
	flowsB, usB := key(b)
	return cmp.Or(cmp.Compare(flowsA, flowsB), cmp.Compare(usA, usB))
}

// estimateUS estimates the time of Bruck's algorithm: all planes carry data at once, and switch once for every k flows
// of a rank.
func (s *search) estimateUS(radix int) float64 {
	f := s.Fabric
	steps := digits(s.Ranks, radix)
	sent := s.Bytes
	if s.Collective == schedule.AllToAll {
		sent *= float64(steps*(radix-1)) / float64(radix)
	}
	switches := max(0, (steps*(radix-1)-1)/f.Planes)
	return float64(steps)*f.AlphaUS + 8e-3*sent/(f.BandwidthGbps*float64(f.Planes)) + float64(switches)*f.ReconfigUS
}

func withoutOrder(algorithm string) string {
	base, _, _ := strings.Cut(algorithm, "@")
	return base
}

// names returns the algorithms to consider: first those without parameters, then variants of them.
func (s *search) names() []string {
	var plain, more []string
	for _, base := range schedule.Algorithms(s.Collective) {
		if !schedule.Defined(s.Collective, base, s.Ranks) {
			continue
		}
		plain = append(plain, base)
		more = append(more, s.seeds(base)...)
		for _, name := range s.parametrised(base) {
			if schedule.Defined(s.Collective, name, s.Ranks) {
				more = append(append(more, name), s.seeds(name)...)
			}
		}
	}
	return append(plain, more...)
}

// parametrised returns names of an algorithm with parameters that may suit the fabric.
func (s *search) parametrised(base string) []string {
	k := s.Fabric.Planes
	with := func(values ...int) (names []string) {
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			if v >= 1 {
				names = append(names, fmt.Sprintf("%s:%d", base, v))
			}
		}
		return names
	}
	switch base {
	case "ring":
		return with(2)
	case "pairwise", "pairwise-xor", "round-robin":
		return with(2, (k+1)/2, k, 2*k, 4*k)
	case "bruck":
		return with(radices(s.Ranks, k)...)
	case "hierarchical-ring":
		return with(divisors(s.Ranks)...)
	case "binary-tree", "double-binary-tree":
		return with(1, 4, 16, 64)
	case "swing":
		return tori(s.Ranks)
	}
	return nil
}

// radices returns radices of Bruck's algorithms for n ranks and k planes. Radix r has r-1 flows per rank and step. For
// each number of steps, the smallest radix has the fewest flows and the fewest bytes. The other radices have one flow
// for each plane, with the planes divided evenly over 1, 2, 3, ... steps, so that a plane need not switch between them.
func radices(n, k int) []int {
	var all []int
	for steps := 1; steps == 1 || 1<<(steps-1) < n; steps++ {
		all = append(all, smallestRadix(n, steps))
		if k/steps > 1 {
			all = append(all, k/steps+1)
		}
	}
	return append(all, 2*k+1)
}

// smallestRadix returns the smallest radix in which the numbers below n have that many digits at most.
func smallestRadix(n, steps int) int {
	return 2 + sort.Search(n, func(i int) bool { return digits(n, 2+i) <= steps })
}

// digits returns how many digits the numbers below n have.
func digits(n, radix int) int {
	count := 0
	for w := 1; w < n; w *= radix {
		count++
	}
	return count
}

// divisors returns the divisors of n except 1 and n.
func divisors(n int) (ds []int) {
	for d := 2; d < n; d++ {
		if n%d == 0 {
			ds = append(ds, d)
		}
	}
	return ds
}

// tori returns swing on all two- and three-dimensional tori of n ranks, with ascending dimensions.
func tori(n int) (names []string) {
	for _, a := range divisors(n) {
		for _, b := range divisors(n) {
			switch {
			case a > b:
			case a*b == n:
				names = append(names, fmt.Sprintf("swing:%dx%d", a, b))
			case n%(a*b) == 0 && n/(a*b) >= b:
				names = append(names, fmt.Sprintf("swing:%dx%dx%d", a, b, n/(a*b)))
			}
		}
	}
	return names
}

// seeds returns an order of a pairwise exchange for interleaved planes. It puts each offset next to its opposite,
// which uses the same circuits on a pair of planes. The name has no order yet.
func (s *search) seeds(name string) []string {
	base, _, _ := strings.Cut(name, ":")
	if s.FixedOrder || s.Fabric.Circuits != plans.Interleaved || base != "pairwise" {
		return nil
	}
	var order []string
	for i := 1; 2*i <= s.Ranks; i++ {
		order = append(order, strconv.Itoa(i))
		if 2*i < s.Ranks {
			order = append(order, strconv.Itoa(s.Ranks-i))
		}
	}
	return []string{name + "@" + strings.Join(order, ".")}
}
