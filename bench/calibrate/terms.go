package calibrate

import (
	"errors"
	"fmt"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Positions of the costs in [terms] and in what a fit returns.
const (
	perCall     = iota // us, whatever the plan is: below zero where a shaper lets a burst through first
	perTransmit        // alpha, us
	perHop             // us
	perByte            // us on one circuit
	perMove            // a reconfiguration, us
	costs
)

// terms is the time of a plan as a sum: how often it has each cost, along its critical path.
type terms struct {
	times [costs]float64
	fixed float64 // us that are known: what circuits that change add to a reconfiguration
}

func (t terms) at(cost [costs]float64) float64 {
	sum := t.fixed
	for i, n := range t.times {
		sum += n * cost[i]
	}
	return sum
}

// moment is a point of time of a plan: when, under the problem's costs, and what led to it.
type moment struct {
	us float64
	terms
}

func later(a, b moment) moment {
	if b.us > a.us {
		return b
	}
	return a
}

// termsOf walks a plan along the cost model's rules: planes do one thing at a time, and a step begins
// when the one before has ended on all planes. Joint transmissions have no place here.
func termsOf(p *plans.Problem, plan *plans.Plan) (terms, error) {
	planes := make([]moment, len(plan.Planes)) // when each is free
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
					return terms{}, errors.New("calibrate: the plan is not one of single transmissions")
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

// move adds a reconfiguration in which so many circuits are new.
func (m moment) move(p *plans.Problem, changes int) moment {
	m.us += plans.ReconfigPortsUS(p, changes)
	m.times[perMove]++
	m.fixed += plans.ReconfigPortsUS(p, changes) - p.ReconfigUS
	return m
}

// transmit adds an entry of a plan.
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
