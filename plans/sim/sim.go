package sim

import (
	"errors"
	"fmt"

	"lightpath/internal/heap"
	"lightpath/plans"
)

// ErrPlan is wrapped by errors about a plan that cannot be played: it does not fit the problem, needs missing circuits,
// or waits for itself.
var ErrPlan = errors.New("sim: plan cannot be played")

// Span is when an entry ran, in us.
type Span struct{ StartUS, EndUS float64 }

// Plane is the record of one plane.
type Plane struct {
	Spans      []Span  // one for each entry of the plan
	TransmitUS float64 // time spent on transmits and holds
	ReconfigUS float64 // time spent on reconfigurations
}

// Result is a played plan.
type Result struct {
	CCTUS  float64 // end of the last transmit or hold
	EndUS  float64 // end of the last entry
	Planes []Plane
}

// Utilization returns the part of the completion time that plane j spent transmitting, 0
// where nothing was sent.
func (r *Result) Utilization(j int) float64 {
	if r.CCTUS == 0 {
		return 0
	}
	return r.Planes[j].TransmitUS / r.CCTUS
}

// Retimed returns a copy of plan, the one that r came from, with the times of r and no
// digest. Entries share their lists with plan.
func (r *Result) Retimed(plan *plans.Plan) *plans.Plan {
	q := *plan
	q.CCTUS, q.Digest = r.CCTUS, ""
	q.Planes = make([][]plans.Entry, len(plan.Planes))
	for j, entries := range plan.Planes {
		q.Planes[j] = append([]plans.Entry(nil), entries...)
		for i := range entries {
			q.Planes[j][i].StartUS, q.Planes[j][i].EndUS = r.Planes[j].Spans[i].StartUS, r.Planes[j].Spans[i].EndUS
		}
	}
	return &q
}

// Run plays plan on the fabric of problem. Errors wrap [plans.ErrProblem] or [ErrPlan].
func Run(problem *plans.Problem, plan *plans.Plan) (*Result, error) {
	if err := problem.Validate(); err != nil {
		return nil, err
	}
	s := &simulator{p: problem, plan: plan}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	s.play()
	if err := s.stuck(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	return &s.result, nil
}

// play runs entries until none can begin, and returns the number of events. Every event ends an entry, so there are
// never more events than entries, for any rounding of times.
func (s *simulator) play() (events int) {
	for s.start(); len(s.events) > 0; events++ {
		e := s.events.Pop()
		s.now = e.at
		s.finish(e.plane)
		s.start()
	}
	return events
}

// simulator is the state of the fabric at time now.
type simulator struct {
	p        *plans.Problem
	plan     *plans.Plan
	duration [][]float64 // us, by plane and entry
	joints   map[jointKey][]member
	left     []int  // entries not finished, by step
	frontier int    // first step with entries left: steps up to it may transmit (P3)
	next     []int  // first entry of each plane that has not finished
	busy     []bool // whether that entry runs
	now      float64
	events   heap.Heap[event]
	result   Result
}

// event is the end of the running entry of a plane.
type event struct {
	at    float64
	plane int
}

// Before implements [heap.Ordered].
func (e event) Before(o event) bool { return e.at < o.at || e.at == o.at && e.plane < o.plane }

// head returns the next entry of plane j, or nil if the plane runs one or has finished.
func (s *simulator) head(j int) *plans.Entry {
	if s.busy[j] || s.next[j] == len(s.plan.Planes[j]) {
		return nil
	}
	return &s.plan.Planes[j][s.next[j]]
}

// start begins every entry that can run now. One pass is enough: a start enables nothing.
func (s *simulator) start() {
	for j := range s.plan.Planes {
		e := s.head(j)
		switch {
		case e == nil:
		case e.Kind == plans.Transmit && e.Step > s.frontier:
		case e.Kind == plans.Transmit && e.Joint != "":
			s.startJoint(s.joints[jointKey{e.Step, e.Joint}])
		case e.Kind == plans.Reconfigure && s.p.Circuits == plans.Interleaved:
			if f := s.head(j ^ 1); f != nil && f.Kind == plans.Reconfigure {
				s.begin(j)
				s.begin(j ^ 1)
			}
		default:
			s.begin(j)
		}
	}
}

// startJoint begins the members of a joint transmit when the planes of all are at them.
func (s *simulator) startJoint(members []member) {
	for _, m := range members {
		if s.busy[m.plane] || s.next[m.plane] != m.entry {
			return
		}
	}
	for _, m := range members {
		s.begin(m.plane)
	}
}

func (s *simulator) begin(j int) {
	i := s.next[j]
	end := s.now + s.duration[j][i]
	s.busy[j] = true
	s.result.Planes[j].Spans[i] = Span{s.now, end}
	s.events.Push(event{end, j})
}

// finish ends the running entry of plane j.
func (s *simulator) finish(j int) {
	i := s.next[j]
	e := &s.plan.Planes[j][i]
	out := &s.result.Planes[j]
	s.result.EndUS = s.now
	if e.Kind == plans.Reconfigure {
		out.ReconfigUS += s.duration[j][i]
	} else {
		out.TransmitUS += s.duration[j][i]
		s.result.CCTUS = s.now
	}
	s.busy[j] = false
	s.next[j]++
	if e.Kind == plans.Transmit {
		s.left[e.Step]--
		for s.frontier < len(s.left) && s.left[s.frontier] == 0 {
			s.frontier++
		}
	}
}

// stuck reports an entry that never became able to run.
func (s *simulator) stuck() error {
	for j := range s.plan.Planes {
		e := s.head(j)
		if e == nil {
			continue
		}
		where := fmt.Sprintf("planes[%d][%d]", j, s.next[j])
		switch {
		case e.Kind == plans.Transmit && e.Step > s.frontier:
			return fmt.Errorf("%s: the transmit of step %d waits for step %d, which waits for it", where, e.Step, s.frontier)
		case e.Kind == plans.Transmit:
			return fmt.Errorf("%s: joint %q of step %d never has all its planes", where, e.Joint, e.Step)
		default:
			return fmt.Errorf("%s: the interleaved partner planes[%d] never switches with it", where, j^1)
		}
	}
	return nil
}
