package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// Plan is the plan of an operation, as far as it concerns the controller.
type Plan struct {
	Name   string       `json:"name"` // unique
	Title  string       `json:"title,omitempty"`
	EndUS  float64      `json:"end_us"` // completion time
	Planes [][]Interval `json:"planes"` // in time order
}

// Activities of a plane in an [Interval].
const (
	Transmit    = "transmit"
	Reconfigure = "reconfigure"
	Hold        = "hold"
)

// Interval is one activity of a plane; times are microseconds from the start of the operation.
type Interval struct {
	Kind    string              `json:"kind"`
	Step    int                 `json:"step"` // of a transmit
	StartUS float64             `json:"start_us"`
	EndUS   float64             `json:"end_us"`
	To      circuit.Permutation `json:"to,omitempty"` // of a reconfiguration
}

// Run is one execution of a plan, as found in the history.
type Run struct {
	Start    time.Time  `json:"start"` // best estimate of the plan's time 0; see [runs]
	Holder   string     `json:"holder,omitempty"`
	Planes   []int      `json:"planes"` // of the controller: those of the plan, in order
	Happened []Happened `json:"happened"`
	LateUS   float64    `json:"late_us"` // the latest of Happened
}

// Happened is a switch of a plane in a run; times are microseconds from the run's start.
type Happened struct {
	Plane    int     `json:"plane"`   // of the plan
	Planned  int     `json:"planned"` // index into the plan's intervals of the plane
	Epoch    uint32  `json:"epoch"`
	WaitedUS float64 `json:"waited_us"` // before StartUS: from the first post to the last
	StartUS  float64 `json:"start_us"`
	EndUS    float64 `json:"end_us"`
	LateUS   float64 `json:"late_us"` // of EndUS to what was planned
	Verified string  `json:"verified,omitempty"`
}

// Comparison is the answer of /api/plan.
type Comparison struct {
	Plan Plan   `json:"plan"`
	Runs []Run  `json:"runs"`           // newest first
	Note string `json:"note,omitempty"` // why there are none
}

// planSummary is an entry of the answer of /api/plans.
type planSummary struct {
	Name     string  `json:"name"`
	Title    string  `json:"title,omitempty"`
	EndUS    float64 `json:"end_us"`
	Planes   int     `json:"planes"`
	Switches int     `json:"switches"`
}

// maxRuns bounds the runs of an answer.
const maxRuns = 20

// runs finds the executions of p in events, which are in order. It returns them newest first. Between grant and release
// of as many planes as p has, a run is the sequence of p's maps on every one of them. Other switches in between do not
// belong to it, such as a switch away from the previous job's circuits.
//
// A controller does not know when an operation began. So runs assumes that the switch that was earliest, relative to
// its planned time, was on time. The lateness of the other switches is relative to that one.
func runs(p *Plan, events []controller.Event) []Run {
	var found []Run
	for _, w := range grants(len(p.Planes), events) {
		found = append(found, w.runs(p)...)
	}
	slices.Reverse(found)
	return found[:min(len(found), maxRuns)]
}

// grant is the part of the history in which a holder had planes.
type grant struct {
	holder uint64
	planes []int
	events []controller.Event
}

// grants cuts events into those of n planes each. A history without grants, because it is a part of
// one, is a grant of the first n planes.
func grants(n int, events []controller.Event) []grant {
	var all []grant
	for i := range events {
		e := &events[i]
		if e.Kind != controller.Granted || bits.OnesCount64(e.Mask) != n {
			continue
		}
		end := slices.IndexFunc(events[i+1:], func(r controller.Event) bool {
			return r.Kind == controller.Released && r.Port == e.Port && r.Mask&e.Mask != 0
		})
		if end < 0 {
			end = len(events) - i - 1
		}
		all = append(all, grant{e.Holder, planesOf(e.Mask), events[i+1 : i+1+end]})
	}
	granted := slices.ContainsFunc(events, func(e controller.Event) bool { return e.Kind == controller.Granted })
	if all == nil && !granted {
		g := grant{events: events}
		for j := range n {
			g.planes = append(g.planes, j)
		}
		all = append(all, g)
	}
	return all
}

// runs finds the executions of p in the grant, oldest first.
func (g *grant) runs(p *Plan) []Run {
	var all []Run
	for k, intervals := range p.Planes {
		planned := reconfigurations(intervals)
		if len(planned) == 0 {
			continue
		}
		times := occurrences(intervals, planned, g.switches(g.planes[k]))
		if all == nil {
			all = make([]Run, len(times))
		}
		all = all[:min(len(all), len(times))]
		for i := range all {
			for m, e := range times[i] {
				all[i].Happened = append(all[i].Happened, Happened{
					Plane: k, Planned: planned[m], Epoch: e.Epoch, Verified: e.Verified,
					WaitedUS: microseconds(e.Waited), StartUS: microseconds(-e.Took), EndUS: float64(e.Time.UnixMicro()),
				})
			}
		}
		if len(all) == 0 {
			return nil
		}
	}
	for i := range all {
		all[i].Planes = g.planes
		if g.holder != 0 {
			all[i].Holder = holderID(g.holder)
		}
		all[i].lay(p)
	}
	return all
}

// lay converts times of the clock to times of the run.
func (r *Run) lay(p *Plan) {
	start := math.Inf(1)
	for i := range r.Happened {
		h := &r.Happened[i]
		start = min(start, h.EndUS-p.Planes[h.Plane][h.Planned].EndUS)
	}
	r.Start = time.UnixMicro(int64(start))
	for i := range r.Happened {
		h := &r.Happened[i]
		h.EndUS -= start
		h.StartUS += h.EndUS
		h.LateUS = h.EndUS - p.Planes[h.Plane][h.Planned].EndUS
		r.LateUS = max(r.LateUS, h.LateUS)
	}
}

// reconfigurations returns the indices of the intervals that are reconfigurations.
func reconfigurations(intervals []Interval) []int {
	var at []int
	for i := range intervals {
		if intervals[i].Kind == Reconfigure {
			at = append(at, i)
		}
	}
	return at
}

// switches returns the events that moved a plane.
func (g *grant) switches(plane int) []controller.Event {
	var all []controller.Event
	for _, e := range g.events {
		if e.Kind == controller.Switched && e.Plane == plane {
			all = append(all, e)
		}
	}
	return all
}

// occurrences returns the positions in switched at which the planned maps follow each other, without overlap.
func occurrences(intervals []Interval, planned []int, switched []controller.Event) [][]controller.Event {
	var all [][]controller.Event
	for at := 0; at+len(planned) <= len(switched); {
		same := 0
		for same < len(planned) && switched[at+same].To.Equal(intervals[planned[same]].To) {
			same++
		}
		if same < len(planned) {
			at++
			continue
		}
		all = append(all, switched[at:at+same])
		at += same
	}
	return all
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// plans returns the plans to compare with the history.
func (s *Server) plans(ctx context.Context) (plans []Plan, err error) {
	if s.o.Plans == nil {
		return nil, nil
	}
	if plans, err = s.o.Plans(ctx); err != nil {
		err = fmt.Errorf("web: plans: %w", err)
	}
	return plans, err
}

func (s *Server) readPlans(r *http.Request) (any, error) {
	plans, err := s.plans(r.Context())
	list := []planSummary{}
	for i := range plans {
		p := &plans[i]
		sum := planSummary{Name: p.Name, Title: p.Title, EndUS: p.EndUS, Planes: len(p.Planes)}
		for _, intervals := range p.Planes {
			sum.Switches += len(reconfigurations(intervals))
		}
		list = append(list, sum)
	}
	return list, err
}

var errNoPlan = errors.New("there is no such plan")

// readPlan returns the plan of a name, and its executions.
func (s *Server) readPlan(r *http.Request) (any, error) {
	v := r.URL.Query()
	name := v.Get("name")
	v.Del("name")
	if !v.Has("limit") {
		v.Set("limit", fmt.Sprint(MaxEvents))
	}
	q, err := s.parseQuery(v)
	if err != nil {
		return nil, err
	}
	plans, err := s.plans(r.Context())
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(plans, func(p Plan) bool { return p.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("%w: %.80q", errNoPlan, name)
	}
	c := Comparison{Plan: plans[at]}
	q.Kinds = []controller.EventKind{controller.Switched, controller.Granted, controller.Released}
	events, err := s.readHistory(r.Context(), q)
	if err != nil {
		return nil, err
	}
	slices.Reverse(events)
	c.Runs = runs(&c.Plan, events)
	if len(c.Runs) == 0 {
		c.Runs, c.Note = []Run{}, "The history has no run of it: its maps do not follow each other on as many planes."
		if !slices.ContainsFunc(c.Plan.Planes, func(p []Interval) bool { return len(reconfigurations(p)) > 0 }) {
			c.Note = "It switches nothing, so the history cannot tell when it ran."
		}
	}
	return c, nil
}
