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
	var us float64
	plan, err := byDistance(p, "spread", func(list []held, units int) [][]held {
		total, most := 0.0, plans.ReconfigPortsUS(p, p.Ranks)
		for _, h := range list {
			total += h.us
		}
		low, high := total/float64(units), (total+most*float64(len(list)))*(1+1e-9) // more than rounding
		for range 40 {
			if middle := (low + high) / 2; spread(list, units, middle, most) == nil {
				low = middle
			} else {
				high = middle
			}
		}
		us = high
		return spread(list, units, high, most)
	})
	return plan, us, err
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
