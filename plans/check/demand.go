package check

import (
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// demand checks a plan for a demand matrix: planes begin dark, every map costs a
// reconfiguration, and a hold serves bandwidth x duration on each of its circuits. Alpha,
// hops, initial and final maps do not apply. The matrix's diagonal counts.
func (c *checker) demand() {
	n := c.p.Ranks
	held := make([]float64, n*n) // us that circuit r -> s was held, over all planes
	for j := range c.plan.Planes {
		c.demandPlane(j, held)
	}
	for r, row := range c.p.Demand {
		for s, bytes := range row {
			if got, need := held[r*n+s], plans.WireUS(c.p, bytes); !plans.AtLeastUS(got, need) {
				c.bad.Addf("demand[%d][%d]: is served for %v us, its %v bytes need %v us", r, s, got, bytes, need)
			}
		}
	}
}

func (c *checker) demandPlane(j int, held []float64) {
	var k clock
	n := c.p.Ranks
	current := circuit.AllDark(n)
	configured := false
	for i := range c.plan.Planes[j] {
		e := &c.plan.Planes[j][i]
		k.advance(c, j, i, e)
		if e.Kind == plans.Reconfigure {
			c.lasts(j, i, e, plans.ReconfigUS(c.p, current, e.To))
			current, configured = e.To, true
			continue
		}
		if !configured || !e.To.Equal(current) {
			c.entryf(j, i, "no reconfiguration to this map precedes it (P1)")
			continue
		}
		for r, s := range e.To {
			if s != circuit.Dark {
				held[r*n+s] += max(0, e.EndUS-e.StartUS)
			}
		}
	}
}
