package optical_test

import (
	"fmt"
	"testing"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/path/optical"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
	"lightpath/shim/ticket"
)

// plannedMove is a reconfiguration and when it is due, from the start of the operation.
type plannedMove struct {
	at time.Duration
	to circuit.Permutation
}

// timetable lists the moves of every plane, read off the plan itself: first, at 0, those that
// take planes where it begins, which delay all others.
func timetable(p *plans.Problem, plan *plans.Plan, current []circuit.Permutation) [][]plannedMove {
	moves := make([][]plannedMove, len(plan.Planes))
	setup := 0.0
	for i, now := range current {
		if to := plan.Initial[i]; !now.Equal(to) {
			moves[i] = append(moves[i], plannedMove{to: to})
			setup = max(setup, p.ReconfigUS+p.ReconfigPerPort*float64(now.Changes(to)))
		}
	}
	for i, entries := range plan.Planes {
		now := plan.Initial[i]
		for k := range entries {
			if e := &entries[k]; e.Kind == plans.Reconfigure && !now.Equal(e.To) {
				moves[i] = append(moves[i], plannedMove{time.Duration((setup + e.StartUS) * float64(time.Microsecond)), e.To})
				now = e.To
			}
		}
	}
	return moves
}

// TestDue: programs are told the times of the plan, with the slack, whichever planes are in use
// and wherever they stand, and no plane is asked to move while it moves.
func TestDue(t *testing.T) {
	for _, name := range []string{"static", "perstep", "harvest", "swot", "weave"} {
		for _, use := range []planeset.Set{0b111, 0b101, 0b010} {
			t.Run(fmt.Sprintf("%s/%b", name, use), func(t *testing.T) {
				shimtest.UseEmulator(t, 4, 3, func(f *fabric.Fabric) { f.OCS[0].Reconfig = 100 * time.Microsecond })
				slack := settings.Slack{Part: 0.5, Fixed: time.Millisecond}
				w := shimtest.NewWorld(t, 4)
				o, p := optical.Of(w.Comms[1]), circuits.Of(w.Comms[1])
				p.Cfg.Planner, p.Cfg.BarrierSlack = name, slack
				problem, stepOf, err := p.Pose(calls.Shape{Kind: calls.AllToAll, Count: 50000}, use.Len(), nil)
				if err != nil {
					t.Fatal(err)
				}
				plan, id, err := planning.Solve(name, problem, planner.Options{TimeLimit: 50 * time.Millisecond, SinglePlane: true})
				if err != nil {
					t.Skip(err)
				}
				for shift := range 2 {
					now := make([]ticket.Plane, 3)
					for j := range now {
						now[j] = ticket.At(0, circuit.Shift(4, j*shift))
					}
					e, err := o.Entry(calls.Shape{Kind: calls.AllToAll, Count: 50000}, &planning.Agreed{ID: id, Plan: plan, Problem: problem, StepOf: stepOf}, use, now)
					if err != nil {
						t.Fatal(err)
					}
					due := p.Due(e.Prog, 7)
					want := timetable(problem, plan, ticket.MapsOf(now, use))
					for j := range now {
						if !use.Has(j) && len(due[j]) > 0 {
							t.Errorf("plane %d is not in use, and moves at %v", j, due[j])
						}
					}
					i := 0
					for j := range use.Each() {
						compareMoves(t, j, due[j], e.Prog.Configs[j][1:], want, i, slack)
						i++
					}
				}
			})
		}
	}
}

// compareMoves checks the times and maps of plane j, the i-th in use.
func compareMoves(t *testing.T, j int, due []int64, maps []circuit.Permutation, all [][]plannedMove, i int, slack settings.Slack) {
	t.Helper()
	want := all[i]
	before := func(at time.Duration) int { // how often anything moves up to then
		times := map[time.Duration]bool{}
		for _, moves := range all {
			for _, m := range moves {
				if m.at <= at {
					times[m.at] = true
				}
			}
		}
		return len(times)
	}
	if len(due) != len(want) || len(maps) != len(want) {
		t.Fatalf("plane %d: %d moves at %d times, the plan has %d", j, len(maps), len(due), len(want))
	}
	for k, m := range want {
		if !m.to.Equal(maps[k]) || due[k] != 7+int64(slack.After(m.at, before(m.at))) {
			t.Errorf("plane %d move %d: to %v at %d, the plan says %v at %v", j, k, maps[k], due[k], m.to, m.at)
		}
		if k > 0 && due[k]-due[k-1] < 100e3 {
			t.Errorf("plane %d move %d: %d ns after the one before", j, k, due[k]-due[k-1])
		}
	}
}

// TestBarrierByTimeOnRings: collectives whose planes move by the clock, frames and circuits judged
// by the switch: the same results, and nothing lost.
func TestBarrierByTimeOnRings(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, func(f *fabric.Fabric) { f.OCS[0].Reconfig = 5 * time.Millisecond })
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	if shimtest.UseClock(t, server.Core()) {
		shimtest.NoLosses(t, server)
	}
}

// sluggish is an endpoint whose planes take nothing until some time has passed.
type sluggish struct {
	transport.Endpoint
	planes []transport.Plane
}

func (s *sluggish) Planes() []transport.Plane { return s.planes }

// sluggishPlane is a plane of it, sluggishForwarder one that forwards.
type sluggishPlane struct {
	transport.Plane
	until time.Time
}

type sluggishForwarder struct {
	transport.Forwarder
	until time.Time
}

// TrySend implements transport.Plane.
func (p sluggishPlane) TrySend(h *wire.Header, payload []byte) (int, error) {
	if time.Now().Before(p.until) {
		return 0, nil
	}
	return p.Plane.TrySend(h, payload)
}

// TrySend implements transport.Plane.
func (p sluggishForwarder) TrySend(h *wire.Header, payload []byte) (int, error) {
	return sluggishPlane{p.Forwarder, p.until}.TrySend(h, payload)
}

// delay keeps a rank from sending anything on circuits for d.
func delay(w *shimtest.World, rank int, d time.Duration) {
	o := circuits.Of(w.Comms[rank])
	slow := &sluggish{Endpoint: o.End}
	for _, p := range o.End.Planes() {
		until := time.Now().Add(d)
		if f, ok := p.(transport.Forwarder); ok {
			p = sluggishForwarder{f, until}
		} else {
			p = sluggishPlane{p, until}
		}
		slow.planes = append(slow.planes, p)
	}
	o.End = slow
}

// TestDelayedBeyondItsSwitch: a rank that gets to send only after its plane has moved fails the
// operation for everyone, before it sends anything.
func TestDelayedBeyondItsSwitch(t *testing.T) {
	shimtest.UseEmulator(t, 4, 1, func(f *fabric.Fabric) { f.OCS[0].Reconfig = 5 * time.Millisecond })
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_BARRIER", "time")
	t.Setenv("LIGHTPATH_BARRIER_SLACK", "1000%+1s") // that only rank 2 is late
	w := shimtest.NewWorld(t, 4)
	delay(w, 2, time.Minute)
	for _, err := range w.Each(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1000))}) }) {
		shimtest.WantLateError(t, err, "rank 2 plane 0 epoch")
	}
}

// TestWhoIsWaitedFor: where a rank does not get to its part of a barrier, the others say which
// port is missing, whoever the controller is.
func TestWhoIsWaitedFor(t *testing.T) {
	for name, start := range map[string]func(*testing.T){
		"here":      func(t *testing.T) { shimtest.UseEmulator(t, 4, 1, nil) },
		"elsewhere": func(t *testing.T) { shimtest.UseControllers(t, 4, 1, shimtest.SiteOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			start(t)
			t.Setenv("LIGHTPATH_PLANNER", "perstep")
			w := shimtest.NewWorld(t, 4)
			w.SetTimeout(time.Second)
			delay(w, 2, time.Minute)
			for _, err := range w.Each(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1000))}) }) {
				shimtest.WantError(t, err, exec.ErrTimeout, "rank ", "plane 0 epoch 1: waiting for ports 2")
			}
		})
	}
}
