package cluster

import "lightpath/plans/lumos/place"

// hop is a flow from one leaf to another through a spine.
type hop struct {
	from, to, spine int32
	share           float64
}

// take adds a flow to the load of its links.
func (o *optical) take(h hop) {
	o.put(o.up(h.from, h.spine), h.share)
	o.put(o.down(h.to, h.spine), h.share)
}

// route assigns spines to the flows of a phase inside pods. Flows between pods have theirs already, and at most most of
// them share a link.
func (o *optical) route(t *tenant, phase place.Phase, inside, between []hop, most int) {
	known := t.inside[phase]
	if o.central && len(inside) > 0 {
		known = o.colour(inside, between, most)
	}
	for i, h := range inside {
		if i < len(known) && known[i] >= 0 {
			h.spine = known[i]
			o.take(h)
		}
	}
	for i, h := range inside { // the others see where those are
		if i >= len(known) {
			known = append(known, -1)
		}
		if known[i] < 0 {
			known[i] = o.least(h)
		}
	}
	t.inside[phase] = known
}

// least puts a flow on the best of the spines that it tries, and returns this spine.
func (o *optical) least(h hop) (spine int32) {
	first := o.choose(h.share, func(choice uint64, path []int32) []int32 {
		s := int32(choice % uint64(o.fabric.Spines()))
		return append(path, o.up(h.from, s), o.down(h.to, s))
	})
	return first % int32(o.fabric.Spines())
}

// colour returns spines for flows inside pods, or -1 for flows that do not fit. No link has more flows of the phase
// than it carries at the rate of the flows between pods.
func (o *optical) colour(inside, between []hop, most int) []int32 {
	share := inside[0].share // that of all: a phase divides what GPUs send evenly
	room := int(float64(o.fabric.Tau*most)/share + tolerance)
	c := newColouring(o.fabric.Spines(), room)
	for _, h := range between {
		for range int(h.share/share + tolerance) {
			c.bind(0, h.from, h.spine)
			c.bind(1, h.to, h.spine)
		}
	}
	for _, h := range inside {
		c.add(h.from, h.to, func(colour int32) float64 {
			spine := colour % int32(o.fabric.Spines())
			// Where links have room for more, flows are spread.
			return float64(colour/int32(o.fabric.Spines()))*share + max(o.busy[o.up(h.from, spine)], o.busy[o.down(h.to, spine)])
		})
	}
	spines := make([]int32, len(inside))
	for i := range inside {
		spines[i] = -1
		if s, ok := c.spine(i); ok {
			spines[i] = s
		}
	}
	return spines
}

// tolerance is above the rounding errors of shares of flows, and far below one flow.
const tolerance = 1e-6
