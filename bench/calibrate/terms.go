package calibrate

import (
	"errors"
	"fmt"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Indexes of the costs in [terms] and in the result of a fit. All costs are in us.
const (
	perCall     = iota // once per plan; negative if a shaper lets a burst pass first
	perTransmit        // alpha
	perHop
	perByte // on one circuit
	perMove // a reconfiguration
	costs   // their number
)

// terms is the time of a plan as a sum: how often each cost occurs on its critical path.
type terms struct {
	times [costs]float64
	fixed float64 // us that are not fitted: the part of reconfigurations that depends on the changed circuits
}

// at returns the sum for given costs, in us.
func (t terms) at(cost [costs]float64) float64 {
	sum := t.fixed
	for i, n := range t.times {
		sum += n * cost[i]
	}
	return sum
}

// moment is a time of a plan under the problem's costs, with the terms whose sum it is.
type moment struct {
	us float64
	terms
}

// later returns the later moment, a if both are equal.
func later(a, b moment) moment {
	if b.us > a.us {
		return b
	}
	return a
}

// termsOf follows a plan by the rules of the cost model: a plane does one thing at a time, and a step begins when the
// step before has ended on all planes. It refuses plans with joint transmissions.
func termsOf(p *plans.Problem, plan *plans.Plan) (terms, error) {
	planes := make([]moment, len(plan.Planes)) // when each plane becomes free
	maps := append([]circuit.Permutation(nil), plan.Initial...)
	next := make([]int, len(plan.Planes))
	begin := moment{}
	begin.times[perCall] = 1
	for j := range planes {
		planes[j] = begin
	}
	for step := range p.Steps {
		end := begin
		for j, entries := range plan.Planes {
			for ; next[j] < len(entries); next[j]++ {
				e := &entries[next[j]]
				if e.Kind == plans.Reconfigure {
					planes[j] = planes[j].move(p, maps[j].Changes(e.To))
					maps[j] = e.To
					continue
				}
				if e.Kind != plans.Transmit || e.Joint != "" {
					return terms{}, errors.New("calibrate: the plan has other entries than single transmissions")
				}
				if e.Step != step {
					break
				}
				sent, err := later(planes[j], begin).transmit(p, maps[j], e)
				if err != nil {
					return terms{}, fmt.Errorf("calibrate: plane %d: %w", j, err)
				}
				planes[j], end = sent, later(end, sent)
			}
		}
		begin = end
	}
	return begin.terms, nil
}

// move returns the moment after a reconfiguration with this number of changed circuits.
func (m moment) move(p *plans.Problem, changes int) moment {
	m.us += plans.ReconfigPortsUS(p, changes)
	m.times[perMove]++
	m.fixed += plans.ReconfigPortsUS(p, changes) - p.ReconfigUS
	return m
}

// transmit returns the moment after the transmission e over the circuits on.
func (m moment) transmit(p *plans.Problem, on circuit.Permutation, e *plans.Entry) (moment, error) {
	flows := p.Steps[e.Step].FlowList()
	if e.Flows != nil {
		all := flows
		flows = nil
		for _, i := range e.Flows {
			flows = append(flows, all[i])
		}
	}
	hops, load, err := plans.Load(on, flows)
	if err != nil || load == 0 || e.Bytes == 0 {
		return m, err
	}
	m.us += plans.TransmitUS(p, hops, load, e.Bytes)
	m.times[perTransmit]++
	m.times[perHop] += float64(hops)
	m.times[perByte] += float64(load) * e.Bytes
	return m, nil
}
