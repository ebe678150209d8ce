package codesign

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"lightpath/collectives/schedule"
	"lightpath/plans"
)

// maxFlows limits the flows of a schedule. It is the number of flows of a direct exchange between 2048 ranks.
const maxFlows = 1 << 22

// predictedFlows returns an upper estimate of the flows of a schedule, without building it.
func predictedFlows(algorithm string, n int) int {
	base, _, _ := strings.Cut(withoutOrder(algorithm), ":")
	switch base {
	case "ring":
		return 2 * n * n
	case "pairwise", "pod-pairwise", "pairwise-xor", "round-robin", "direct", "hierarchical-ring":
		return n * n
	default:
		return 16 * n * (bits.Len(uint(n)) + 1)
	}
}

func withoutOrder(algorithm string) string {
	base, _, _ := strings.Cut(algorithm, "@")
	return base
}

// names returns the algorithms to consider: first those without parameters, then variants of them.
func (s *search) names() []string {
	var plain, more []string
	if s.Algorithms != nil {
		plain = slices.Clone(s.Algorithms)
		for _, name := range plain {
			more = append(more, s.seeds(name)...)
		}
		return append(plain, more...)
	}
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
		// Radix r has r-1 flows per rank and step. These values use every plane, every second plane, or all but one.
		return with(3, 4, k/2+1, k, k+1, 2*k+1, int(math.Round(math.Sqrt(float64(s.Ranks)))))
	case "hierarchical-ring":
		return with(divisors(s.Ranks)...)
	case "binary-tree", "double-binary-tree":
		return with(1, 4, 16, 64)
	case "swing":
		return tori(s.Ranks)
	}
	return nil
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
// which uses the same circuits on a pair of planes.
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
