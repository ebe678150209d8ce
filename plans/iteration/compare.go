package iteration

import (
	"math"

	"lightpath/plans"
)

// The names of the ways to run an iteration that [Compare] compares.
const (
	PerCall   = "percall"   // each call its best plan, which returns; a setup reconfiguration when the call has come
	Greedy    = "greedy"    // each call the plan that is done first from the circuits that it finds, planned alone
	Static    = "static"    // one setting for all calls
	Iteration = "iteration" // the plan
	Free      = "free"      // each call its best plan, and setup costs nothing: no way to run it
	Packet    = "packet"    // all calls on packet planes: those of the fabric file, else of the circuits' bandwidth
)

// Outcome is what one way to run the iteration takes. Times are in us for an iteration.
type Outcome struct {
	Name        string
	IterationUS float64
	ExposedUS   float64 // communication that the iteration waits for
	// SwitchingUS is the time in which planes switch, and ExposedSwitchingUS the part that makes the iteration longer:
	// the difference to the same plans if switching cost nothing.
	SwitchingUS, ExposedSwitchingUS float64
}

// Hidden returns the part of the switching that does not make the iteration longer; 1 if there is no switching.
func (o *Outcome) Hidden() float64 {
	if o.SwitchingUS == 0 {
		return 1
	}
	return math.Max(0, 1-o.ExposedSwitchingUS/o.SwitchingUS)
}

// Comparison is a plan beside its baselines.
type Comparison struct {
	Plan     *Plan
	Outcomes []Outcome // in the order above; without static if no setting serves all calls
	Shapes   int       // different problems of calls
	Tried    int       // plans of calls
}

// Of returns the outcome with a name, or nil.
func (c *Comparison) Of(name string) *Outcome {
	for i := range c.Outcomes {
		if c.Outcomes[i].Name == name {
			return &c.Outcomes[i]
		}
	}
	return nil
}

// baselines are choices of candidates in the order of the trace; static is nil where no setting serves all calls.
type baselines struct{ perCall, greedy, static []int }

func (s *solver) baselines() baselines {
	order := s.inOrder()
	b := baselines{perCall: make([]int, len(order))}
	for i, shape := range s.p.Of {
		b.perCall[i] = s.best[shape]
	}
	b.greedy = s.greedy()
	var t timed
	least := math.Inf(1)
	for setting := range s.settings.all {
		choice, ok := s.resident(setting)
		if !ok {
			continue
		}
		if us := s.time(&t, order, choice, early); us < least {
			least, b.static = us, choice
		}
	}
	return b
}

// greedy returns for each call the candidate that ends first if its planes switch when it has come. The second
// iteration counts: it begins on the circuits that the first one leaves.
func (s *solver) greedy() []int {
	n := len(s.p.Of)
	choice := make([]int, n)
	before := s.best[s.p.Of[n-1]]
	for range 2 {
		for i, shape := range s.p.Of {
			least := math.Inf(1)
			for _, k := range s.byShape[shape] {
				if us := s.lagIn(late, before, k).setup + s.all[k].us; us < least {
					least, choice[i] = us, k
				}
			}
			before = choice[i]
		}
	}
	return choice
}

// resident returns a choice that stays on one setting and never switches.
func (s *solver) resident(setting int) (choice []int, ok bool) {
	of := make([]int, len(s.p.Shapes))
	for shape, list := range s.byShape {
		of[shape] = -1
		for _, i := range list {
			c := s.all[i]
			if c.first == setting && c.last == setting && c.switching == 0 &&
				(of[shape] < 0 || c.us < s.all[of[shape]].us) {
				of[shape] = i
			}
		}
		if of[shape] < 0 {
			return nil, false
		}
	}
	choice = make([]int, len(s.p.Of))
	for i, shape := range s.p.Of {
		choice[i] = of[shape]
	}
	return choice, true
}

func (s *solver) comparison(plan *Plan, best solution, base baselines) *Comparison {
	c := &Comparison{Plan: plan, Tried: len(s.all)}
	in := s.inOrder()
	c.Outcomes = append(c.Outcomes, s.outcome(PerCall, in, base.perCall, late), s.outcome(Greedy, in, base.greedy, late))
	if base.static != nil {
		c.Outcomes = append(c.Outcomes, s.outcome(Static, in, base.static, early))
	}
	c.Outcomes = append(c.Outcomes, s.outcome(Iteration, best.order, best.choice, early),
		s.outcome(Free, in, base.perCall, never))
	return c
}

func (s *solver) outcome(name string, order, choice []int, m mode) Outcome {
	var t timed
	us := s.time(&t, order, choice, m)
	o := Outcome{Name: name, IterationUS: us}
	if m == never {
		for _, k := range choice {
			o.SwitchingUS += s.all[k].switching
		}
	} else {
		o.SwitchingUS = s.switching(choice, m)
	}
	o.ExposedSwitchingUS = math.Max(0, us-s.time(&t, order, choice, gratis))
	if plans.SameUS(o.ExposedSwitchingUS, 0) {
		o.ExposedSwitchingUS = 0
	}
	return o
}
