package cluster

import (
	"slices"

	"lightpath/plans/lumos/place"
)

// maxTiers bounds the length of paths: one link up and one down per tier above leaves.
const maxTiers = 6

// clos is a folded Clos network of switches with k ports down and k up (the highest tier has all
// down). A flow that must rise h tiers has k^h paths: it chooses an upward port at each tier, which fixes the way down.
type clos struct {
	*router
	shape  place.Shape
	k      int
	rate   float64
	levels int // of links above leaves
	links  int // of a level, one way
	flows  []place.Flow
}

func newClos(f *Fabric, seed uint64) *clos {
	c := &clos{shape: f.Shape(), k: f.radix(), rate: f.rate(), levels: f.Tiers - 1}
	// A part of the tree with fewer servers has all its switches, too.
	for level, part := 0, 1; level < c.levels; level, part = level+1, part*c.k {
		leaves := f.GPUs / c.k
		c.links = max(c.links, (leaves+part-1)/part*part*c.k)
	}
	c.router = newRouter(f, 2*c.levels*c.links, seed)
	return c
}

func (c *clos) capacities() []float64 {
	all := slices.Repeat([]float64{c.rate}, 2*c.levels*c.links)
	return all
}

func (c *clos) admit(job int, a *place.Arrangement, shares place.Volume) (admission, error) {
	var p paths
	for phase := range place.NumPhases {
		c.flows = a.Flows(c.shape, phase, c.flows[:0])
		for _, f := range c.flows {
			c.route(f)
		}
		p[phase] = path{c.phase(), c.rate}
	}
	c.settle(job, p, shares)
	return admission{paths: p}, nil
}

func (c *clos) route(f place.Flow) {
	from, to := int(f.From)/c.k, int(f.To)/c.k // leaves
	if from == to {
		return
	}
	rise := 1
	for a, b := from/c.k, to/c.k; a != b && rise < c.levels; a, b = a/c.k, b/c.k {
		rise++
	}
	c.choose(f.Share, func(choice uint64, path []int32) []int32 {
		// A switch is numbered by its part of the tree and the choices on the way up.
		a, b, chosen, width := from, to, 0, 1
		for level := range rise {
			port := int(choice % uint64(c.k))
			choice /= uint64(c.k)
			up := (a*width+chosen)*c.k + port
			down := (b*width+chosen)*c.k + port
			path = append(path, int32(2*level*c.links+up), int32((2*level+1)*c.links+down))
			chosen = chosen*c.k + port
			width *= c.k
			a, b = a/c.k, b/c.k
		}
		return path
	})
}
