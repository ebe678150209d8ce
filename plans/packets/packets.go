package packets

import (
	"context"
	"math"
	"time"

	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/plans/spectra"
)

// Costs are the costs of packet planes, all of them together, and of circuits what their plans do not state.
type Costs struct {
	AlphaUS float64 // of a round of messages that do not wait for each other
	Gbps    float64 // payload of a rank in one direction
	Stated  bool    // in the fabric file; else they are rough
	AgreeUS float64 // ranks agree on a ticket before a call on circuits: costs.barrier of the fabric file
}

// Of returns the costs that a fabric file states. Stated is false if it states none of packet planes, or is nil.
func Of(f *fabric.Fabric) Costs {
	if f == nil {
		return Costs{}
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return Costs{AlphaUS: us(f.Packets.Alpha), Gbps: float64(f.Packets.Bandwidth) / 1e9, Stated: f.Packets.Bandwidth > 0,
		AgreeUS: us(f.Costs.Barrier)}
}

// US returns the time of rounds in which the busiest ranks send or receive bytes.
func (c *Costs) US(rounds int, bytes float64) float64 {
	return float64(rounds)*c.AlphaUS + 8e-3*bytes/c.Gbps
}

// effort is the search for the plan with which packet planes are compared. Operations count, not time, so the plan is
// the same each time. It is the best known plan of most small calls.
const effort = 2 * time.Millisecond

// Faster reports whether a call that takes us on packet planes uses these. p is its problem on circuits, and planes the
// number of planes of the fabric. The answer depends on the arguments only, so each run of a job gives the same.
//
// Stated costs are compared with the plan of the call, from free circuits, which has to be faster by [noise]. Rough
// ones are good enough only for a call that is faster than any plan, and whose bytes take no longer than the fixed
// costs of circuits: a small one.
func (c *Costs) Faster(us float64, p *plans.Problem, planes int) bool {
	if c.Stated {
		us *= 1 - noise
	}
	free := *p
	free.Planes, free.Initial, free.Final = planes, nil, plans.Final{}
	fixed, wire := c.least(&free)
	switch {
	case us < fixed+wire:
		return c.Stated || wire <= fixed
	case !c.Stated:
		return false
	}
	if free.Demand != nil {
		return us < c.AgreeUS+demandUS(&free, us-c.AgreeUS)
	}
	plan, err := plan(&free)
	return err == nil && us < c.AgreeUS+plan.CCTUS
}

// AlwaysFaster reports whether no matrix gains by circuits. By SPECTRA's lower bound 1, a plan takes at least the time
// of one hold besides its bytes, and the bytes of the busiest port over all planes, which carry gbps together.
func (c *Costs) AlwaysFaster(holdUS, gbps float64) bool {
	return c.Stated && c.AlphaUS < c.AgreeUS+holdUS && c.Gbps >= (1-noise)*gbps
}

// noise is the part by which measured rates of equal planes differ. For so small a gain, ranks do not wait for each
// other on circuits, nor ask the leader before each message.
const noise = 0.05

// plan returns the plan of a call with which packet planes are compared. No clock ends the search.
func plan(p *plans.Problem) (*plans.Plan, error) {
	return planner.Solve(context.Background(), planner.Auto, p, planner.Options{TimeLimit: time.Hour, Effort: effort,
		SinglePlane: true})
}

// demandUS returns the time of a matrix on circuits, of the plan that a leader finds while ranks wait. If the bound or
// plain order say whether that is more than a given time, it looks no further.
func demandUS(p *plans.Problem, than float64) float64 {
	plain, err := spectra.Plain(p)
	switch {
	case err != nil: // the matrix is no valid one, and has no plan
		return math.Inf(1)
	case than < plain.LowerBoundUS || than >= plain.CCTUS:
		return plain.CCTUS
	}
	fast, err := spectra.Solve(context.Background(), p, spectra.Options{Mode: spectra.Fast})
	if err != nil {
		return plain.CCTUS
	}
	return min(plain.CCTUS, fast.CCTUS)
}

// least returns a time that no plan beats, in two parts. fixed does not depend on the size: agreement on the ticket,
// and alpha and one hop per step. wire is the time of the bytes of steps on all planes. Reconfigurations come on top.
func (c *Costs) least(p *plans.Problem) (fixed, wire float64) {
	fixed = c.AgreeUS
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Bytes > 0 {
			fixed += p.AlphaUS + p.HopUS
			wire += plans.WireUS(p, s.Bytes) / float64(p.Planes)
		}
	}
	return fixed, wire
}
