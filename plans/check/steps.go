package check

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// stepState is the state of one step after its entries so far.
type stepState struct {
	all  float64   // bytes that every flow got
	each []float64 // bytes beyond those, by flow; nil while no entry lists flows
	end  float64   // of its last entry
}

// add counts bytes for one of the step's flows.
func (s *stepState) add(flow, flows int, bytes float64) {
	if s.each == nil {
		s.each = make([]float64, flows)
	}
	s.each[flow] += bytes
}

// stepsChecker checks a plan for a problem with steps.
type stepsChecker struct {
	*checker
	state  []stepState
	joints jointSet
	loader plans.Loader
	listed [][2]int // buffer of flows
	subset [][2]int // buffer of pick
}

// flows returns the flows of a step in their canonical order ([plans.Step.FlowList]), valid until the next call. It
// does not keep them: the flows of all steps could take more memory than the problem.
func (c *stepsChecker) flows(step int) [][2]int {
	s := &c.p.Steps[step]
	if s.To == nil {
		return s.Flows
	}
	c.listed = c.listed[:0]
	for r, d := range s.To {
		if d != circuit.Dark && d != r {
			c.listed = append(c.listed, [2]int{r, d})
		}
	}
	return c.listed
}

func (c *checker) steps() {
	s := &stepsChecker{checker: c, state: make([]stepState, len(c.p.Steps))}
	for j := range c.plan.Planes {
		s.plane(j)
	}
	s.joints.check(s)
	s.order()
	s.conservation()
}

// plane follows the circuits of plane j through its entries.
func (c *stepsChecker) plane(j int) {
	var k clock
	begin := c.initialOf(j)
	current := begin
	c.loader.SetMap(current)
	for i := range c.plan.Planes[j] {
		e := &c.plan.Planes[j][i]
		k.advance(c.checker, j, i, e)
		switch e.Kind {
		case plans.Reconfigure:
			c.lasts(j, i, e, plans.ReconfigUS(c.p, current, e.To))
			current = e.To
			c.loader.SetMap(current)
		case plans.Transmit:
			c.state[e.Step].end = math.Max(c.state[e.Step].end, e.EndUS)
			if e.Joint != "" {
				c.joints.add(j, i, e, current)
			} else {
				c.transmit(j, i, e)
			}
		case plans.Hold: // refused with the structure
		}
	}
	c.final(j, begin, current)
}

// final checks the map that plane j has at the end.
func (c *stepsChecker) final(j int, begin, current circuit.Permutation) {
	switch c.p.Final.Kind {
	case plans.FinalInitial:
		if !current.Equal(begin) {
			c.bad.Addf("planes[%d]: does not end on the map that it began with", j)
		}
	case plans.FinalGiven:
		if !current.Equal(c.p.Final.Maps[j]) {
			c.bad.Addf("planes[%d]: does not end on final[%d] of the problem", j, j)
		}
	case plans.FinalAny:
	}
}

// transmit checks one entry that is not joint, and counts its bytes.
func (c *stepsChecker) transmit(j, i int, e *plans.Entry) {
	s := &c.state[e.Step]
	if e.Routes != nil {
		c.entryf(j, i, "routes: only a joint transmit has routes")
	}
	flows := c.flows(e.Step)
	if e.Flows != nil {
		all := len(flows)
		if flows = c.pick(j, i, e, flows); flows == nil {
			return
		}
		for _, f := range e.Flows {
			s.add(f, all, e.Bytes)
		}
	} else {
		s.all += e.Bytes
	}
	if e.Bytes == 0 || len(flows) == 0 {
		return // nothing is sent: no circuit is needed and nothing is paid
	}
	hops, load, bad := c.loader.Measure(flows)
	switch {
	case bad >= 0:
		c.entryf(j, i, "flow %d -> %d has no circuits on the plane's map (P1)", flows[bad][0], flows[bad][1])
		return
	case !c.p.Forwarding && hops > 1:
		c.entryf(j, i, "a flow needs %d hops, and forwarding is off", hops)
	}
	c.lasts(j, i, e, plans.TransmitUS(c.p, hops, load, e.Bytes))
}

// pick returns the flows that e lists, or nil after reporting a wrong list.
func (c *stepsChecker) pick(j, i int, e *plans.Entry, flows [][2]int) [][2]int {
	c.subset = c.subset[:0]
	for k, f := range e.Flows {
		if f < 0 || f >= len(flows) {
			c.entryf(j, i, "flows[%d]: step %d has no flow %d, only %d", k, e.Step, f, len(flows))
			return nil
		}
		c.subset = append(c.subset, flows[f])
	}
	sorted := slices.Clone(e.Flows)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(e.Flows) {
		c.entryf(j, i, "flows: lists a flow twice")
		return nil
	}
	if c.subset == nil {
		return [][2]int{}
	}
	return c.subset
}

// order checks P3: no entry of a step starts before the steps before it have ended.
func (c *stepsChecker) order() {
	ended := make([]float64, len(c.state)) // when all steps before this one have ended
	last := 0
	for i := 1; i < len(c.state); i++ {
		if c.state[i-1].end > c.state[last].end {
			last = i - 1
		}
		ended[i] = c.state[last].end
	}
	for j, entries := range c.plan.Planes {
		for i := range entries {
			e := &entries[i]
			if e.Kind == plans.Transmit && !plans.AtLeastUS(e.StartUS, ended[e.Step]) {
				c.entryf(j, i, "starts at %v us, before the steps before it end at %v us (P3)", e.StartUS, ended[e.Step])
			}
		}
	}
}

// conservation checks that every flow of every step got its bytes.
func (c *stepsChecker) conservation() {
	for i := range c.state {
		s := &c.state[i]
		for f, flow := range c.flows(i) {
			sent := s.all
			if s.each != nil {
				sent += s.each[f]
			}
			if asked := c.p.Steps[i].Bytes; !plans.CarriesAll(c.p, sent, asked) {
				c.bad.Addf("steps[%d]: flow %d (%d -> %d) gets %v of %v bytes", i, f, flow[0], flow[1], sent, asked)
				break // the other flows of the step are most often short as well
			}
		}
	}
}
