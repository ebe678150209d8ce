package spectra

import (
	"lightpath/plans"
)

// Spread plans a demand problem on circuits that do not depend on the demand. Each rank serves its peers by their
// distance, as in [Plain]. The planes share the distances evenly: where a plane has its part, the next one goes on.
// So matrices that change from round to round leave nearly the same circuits, and [From] begins without a switch. The
// second result is the time of the plan when all planes begin so. It takes O(ranks^2).
//
// Errors wrap [plans.ErrProblem] or [ErrNoDemand].
func Spread(p *plans.Problem) (*plans.Plan, float64, error) {
	if err := p.Validate(); err != nil {
		return nil, 0, err
	}
	if p.Demand == nil {
		return nil, 0, ErrNoDemand
	}
	d := wireTimes(p)
	var list []held
	total := 0.0
	for distance := range p.Ranks {
		if h := atDistance(p, d, distance); h.us > 0 {
			list = append(list, h)
			total += h.us
		}
	}
	units := p.Planes / p.Circuits.UnitPlanes()
	most := plans.ReconfigPortsUS(p, p.Ranks)
	low, high := total/float64(units), (total+most*float64(len(list)))*(1+1e-9) // more than rounding
	for range 40 {
		if middle := (low + high) / 2; spread(list, units, middle, most) == nil {
			low = middle
		} else {
			high = middle
		}
	}
	plan := &plans.Plan{Version: plans.Version, Planner: "spread", Planes: make([][]plans.Entry, p.Planes)}
	plan.LowerBoundUS, plan.BoundProof = newNetwork(d, p.Circuits).bound(p.Planes, p.ReconfigUS, p.ReconfigPerPort, 0)
	layHolds(p, plan, spread(list, units, high, most))
	plan.LowerBoundUS = min(plan.LowerBoundUS, plan.CCTUS)
	return plan, high, nil
}

// spread divides holds among units in order, each for at most a time, with a switch between two holds. nil: they do not
// fit.
func spread(list []held, units int, most, reconfigure float64) [][]held {
	all := make([][]held, units)
	at, now := 0, 0.0
	for _, h := range list {
		for h.us > 0 {
			if at == units {
				return nil
			}
			if len(all[at]) > 0 {
				now += reconfigure
			}
			part := min(h.us, most-now)
			if part <= 0 {
				at, now = at+1, 0
				continue
			}
			all[at] = append(all[at], held{h.to, part})
			now += part
			if h.us -= part; h.us > 0 {
				at, now = at+1, 0
			}
		}
	}
	return all
}
