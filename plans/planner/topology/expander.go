package topology

import (
	"fmt"
	"math"
	"math/rand/v2"

	"lightpath/plans/circuit"
)

// expanderDraws is how many random graphs Expander chooses from. Almost every one is
// within a few percent of the best expansion possible, so few suffice.
const expanderDraws = 8

// Expander returns, of a few random graphs in which each port is one cycle through all n
// ranks, the one whose second singular value is smallest: the best expander of the draw.
// It is connected, and the same for the same seed.
func Expander(n, ports int, seed uint64) (Graph, error) {
	if n < 2 || ports < 1 {
		return Graph{}, shapef("an expander of %d ranks and %d ports", n, ports)
	}
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	return bestExpander(fmt.Sprintf("expander %d", ports), func() []circuit.Permutation {
		maps := make([]circuit.Permutation, ports)
		for i := range maps {
			maps[i] = randomCycle(n, rng)
		}
		return maps
	}), nil
}

// MatchingExpander is Expander with involutions for ports: random perfect matchings, with
// one dark rank where n is odd. For 2 or more ports, as a rule, it is connected.
func MatchingExpander(n, ports int, seed uint64) (Graph, error) {
	if n < 2 || ports < 1 {
		return Graph{}, shapef("an expander of %d ranks and %d matchings", n, ports)
	}
	rng := rand.New(rand.NewPCG(seed, 0xd1b54a32d192ed03))
	return bestExpander(fmt.Sprintf("expander %d of matchings", ports), func() []circuit.Permutation {
		maps := make([]circuit.Permutation, ports)
		for i := range maps {
			maps[i] = circuit.AllDark(n)
			order := rng.Perm(n)
			for k := 0; k+1 < n; k += 2 {
				maps[i][order[k]], maps[i][order[k+1]] = order[k+1], order[k]
			}
		}
		return maps
	}), nil
}

func randomCycle(n int, rng *rand.Rand) circuit.Permutation {
	p := make(circuit.Permutation, n)
	order := rng.Perm(n)
	for k, r := range order {
		p[r] = order[(k+1)%n]
	}
	return p
}

func bestExpander(name string, draw func() []circuit.Permutation) Graph {
	var best Graph
	least := math.Inf(1)
	for range expanderDraws {
		g := Graph{name, draw()}
		if s := g.Expansion(); s < least {
			best, least = g, s
		}
	}
	return best
}

// Expansion returns the second largest singular value of the adjacency matrix of g over its
// ports, estimated by power iteration: 0 mixes at once, 1 (as of every graph of one port)
// not at all. It measures graphs whose ports leave no rank dark.
func (g Graph) Expansion() float64 {
	n, d := g.Ranks(), float64(g.Ports())
	x, y := make([]float64, n), make([]float64, n)
	for r := range x {
		x[r] = math.Sin(float64(3*r + 1)) // any fixed start that no graph is built for
	}
	value := 0.0
	for range 60 {
		center(x)
		clear(y)
		for _, p := range g.Maps {
			for r, s := range p {
				if s != circuit.Dark {
					y[s] += x[r] / d
				}
			}
		}
		clear(x)
		for _, p := range g.Maps {
			for r, s := range p {
				if s != circuit.Dark {
					x[r] += y[s] / d
				}
			}
		}
		norm := 0.0
		for _, v := range x {
			norm += v * v
		}
		if norm = math.Sqrt(norm); norm == 0 {
			return 0
		}
		for r := range x {
			x[r] /= norm
		}
		value = norm
	}
	return math.Sqrt(value)
}

// center makes x orthogonal to the uniform vector, which every regular graph keeps, and of
// length 1.
func center(x []float64) {
	mean := 0.0
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	norm := 0.0
	for r := range x {
		x[r] -= mean
		norm += x[r] * x[r]
	}
	if norm = math.Sqrt(norm); norm > 0 {
		for r := range x {
			x[r] /= norm
		}
	}
}
