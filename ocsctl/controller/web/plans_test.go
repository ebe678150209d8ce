package web

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// twoPlanes switches plane 0 twice and plane 1 once.
func twoPlanes() Plan {
	return Plan{Name: "a", EndUS: 1000, Planes: [][]Interval{
		{
			{Kind: Transmit, Step: 0, EndUS: 200}, {Kind: Reconfigure, StartUS: 200, EndUS: 400, To: circuit.Xor(4, 2)},
			{Kind: Transmit, Step: 1, StartUS: 400, EndUS: 700}, {Kind: Reconfigure, StartUS: 700, EndUS: 900,
				To: circuit.Xor(4, 1)},
		},
		{{Kind: Transmit, Step: 0, EndUS: 500}, {Kind: Reconfigure, StartUS: 500, EndUS: 700, To: circuit.Xor(4, 3)}},
	}}
}

// carryOut makes the events of a run of p on planes from start on, each switch late by some time.
func carryOut(p *Plan, planes []int, start time.Time, late func() time.Duration) []controller.Event {
	var all []controller.Event
	for k, intervals := range p.Planes {
		for _, i := range intervals {
			if i.Kind == Reconfigure {
				at := start.Add(time.Duration(i.EndUS)*time.Microsecond + late())
				all = append(all, controller.Event{Kind: controller.Switched, Plane: planes[k], Time: at, To: i.To,
					Took: 200 * time.Microsecond, Waited: 50 * time.Microsecond})
			}
		}
	}
	return all
}

// Runs are found again where they were put, with the lateness that they were given, however many
// there are, on whichever planes, and with other switches before them.
func TestRunsAreFoundAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := twoPlanes()
		planes := [][]int{{0, 1}, {1, 3}, {0, 2}}[rng.IntN(3)]
		now := time.UnixMicro(1_700_000_000_000_000)
		events := []controller.Event{{Kind: controller.Granted, Plane: -1, Time: now, Mask: 1<<planes[0] | 1<<planes[1],
			Holder: 5}}
		if rng.IntN(2) == 0 { // the circuits that another left
			events = append(events, controller.Event{Kind: controller.Switched, Plane: planes[0], Time: now,
				To: circuit.Xor(4, 1)})
		}
		count := rng.IntN(5)
		var starts []time.Time
		var latest []time.Duration
		for range count {
			now = now.Add(time.Duration(1+rng.IntN(50)) * time.Millisecond)
			first, worst := true, time.Duration(0)
			events = append(events, carryOut(&p, planes, now, func() time.Duration {
				if first { // one in time, so that the start is known
					first = false
					return 0
				}
				d := time.Duration(rng.IntN(400)) * time.Microsecond
				worst = max(worst, d)
				return d
			})...)
			starts, latest = append(starts, now), append(latest, worst)
		}
		events = append(events, controller.Event{Kind: controller.Released, Plane: -1, Time: now, Mask: events[0].Mask})
		// without a holder: not counted
		events = append(events, carryOut(&p, planes, now.Add(time.Second), func() time.Duration { return 0 })...)
		found := runs(&p, events)
		if len(found) != count {
			t.Fatalf("%d runs, want %d", len(found), count)
		}
		for i, r := range found {
			want := count - 1 - i // newest first
			if !r.Start.Equal(starts[want]) || math.Abs(r.LateUS-microseconds(latest[want])) > 1 || len(r.Happened) != 3 ||
				r.Planes[1] != planes[1] {
				t.Fatalf("run %d: %+v, want start %v, late %v", i, r, starts[want], latest[want])
			}
			for _, h := range r.Happened {
				if math.Abs(h.EndUS-h.StartUS-200) > 1 || h.WaitedUS != 50 ||
					math.Abs(h.EndUS-h.LateUS-p.Planes[h.Plane][h.Planned].EndUS) > 1 {
					t.Fatalf("%+v", h)
				}
			}
		}
	}
}

func TestRunsThatAreNot(t *testing.T) {
	p := twoPlanes()
	full := carryOut(&p, []int{0, 1}, time.UnixMicro(1e15), func() time.Duration { return 0 })
	if n := len(runs(&p, full)); n != 1 {
		t.Fatalf("%d runs in a part of a history", n)
	}
	if n := len(runs(&p, full[1:])); n != 0 {
		t.Errorf("%d runs with a switch missing", n)
	}
	other := append([]controller.Event{{Kind: controller.Granted, Plane: -1, Mask: 1, Holder: 1}}, full...)
	if n := len(runs(&p, other)); n != 0 {
		t.Errorf("%d runs on one plane of two", n)
	}
	there := Interval{Kind: Reconfigure, To: circuit.Xor(4, 1)}
	back := Interval{Kind: Reconfigure, To: circuit.Xor(4, 2)}
	var sway []controller.Event // there, back, there, back, there: two would share the middle
	for i := range 5 {
		sway = append(sway, controller.Event{Kind: controller.Switched, To: []Interval{there, back}[i%2].To})
	}
	if n := len(runs(&Plan{Planes: [][]Interval{{there, back, there}}}, sway)); n != 1 {
		t.Errorf("%d runs where there is room for one", n)
	}
	if n := len(runs(&Plan{Planes: [][]Interval{{{Kind: Transmit, EndUS: 1}}}}, full)); n != 0 {
		t.Errorf("%d runs of a plan that switches nothing", n)
	}
}

func TestPlanEndpoints(t *testing.T) {
	f := newFake(4, 2)
	p := twoPlanes()
	still := Plan{Name: "still", Planes: [][]Interval{{{Kind: Transmit, EndUS: 9}}}}
	fail := false
	r := newRig(t, f, Options{Plans: func(context.Context) ([]Plan, error) {
		if fail {
			return nil, errors.New("no such directory")
		}
		return []Plan{p, still}, nil
	}})
	f.emit(controller.Event{Kind: controller.Granted, Plane: -1, Mask: 3, Holder: 1})
	for _, e := range carryOut(&p, []int{0, 1}, time.Now(), func() time.Duration { return 0 }) {
		f.emit(e)
	}
	var list []planSummary
	if r.get(t, "/api/plans", &list); len(list) != 2 || list[0].Switches != 3 || list[0].Planes != 2 {
		t.Errorf("%+v", list)
	}
	var c Comparison
	if r.get(t, "/api/plan?name=a&since=1h", &c); len(c.Runs) != 1 || c.Runs[0].LateUS > 1 || len(c.Plan.Planes) != 2 {
		t.Errorf("%+v", c)
	}
	if r.get(t, "/api/plan?name=still", &c); len(c.Runs) != 0 || c.Note == "" {
		t.Errorf("%+v", c)
	}
	if code, _ := r.get(t, "/api/plan?name=%3Cb%3E", nil); code != 404 {
		t.Error(code)
	}
	if code, _ := r.get(t, "/api/plan?name=a&since=x", nil); code != 400 {
		t.Error(code)
	}
	fail = true
	if code, body := r.get(t, "/api/plans", nil); code != 503 {
		t.Error(code, body)
	}
}
