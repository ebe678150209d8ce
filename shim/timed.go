package shim

import (
	"fmt"
	"slices"
	"time"

	"lightpath/collectives/program"
	"lightpath/shim/calls"
	"lightpath/shim/planning"
)

// The time-based barrier: the leader tells the controller beforehand when each plane moves,
// and the ticket tells the ranks when the operation begins. All else follows from the program,
// so nobody posts; a rank that is not done with a plane when that moves fails the operation.

// due returns when the planes of a program move, by [plane][move], in nanoseconds of Unix time,
// for an operation that begins at start: the planned times with the slack, after the moves that
// take planes to where the plan begins. The result is reused by the next call.
func (o *optical) due(p *program.Program, start int64) [][]int64 {
	setup := 0.0
	for j, moves := range p.SwitchUS {
		if len(moves) > 0 && moves[0] < 0 {
			changes := p.Configs[j][0].Changes(p.Configs[j][1])
			setup = max(setup, o.Template.ReconfigUS+o.Template.ReconfigPerPort*float64(changes))
		}
	}
	o.times = o.times[:0]
	for _, moves := range p.SwitchUS {
		for _, us := range moves {
			o.times = append(o.times, plannedAt(us, setup))
		}
	}
	slices.Sort(o.times)
	o.times = slices.Compact(o.times)
	for len(o.switchAt) < len(p.SwitchUS) {
		o.switchAt = append(o.switchAt, nil)
	}
	for j, moves := range p.SwitchUS {
		o.switchAt[j] = o.switchAt[j][:0]
		for _, us := range moves {
			at := plannedAt(us, setup)
			n, _ := slices.BinarySearch(o.times, at)
			o.switchAt[j] = append(o.switchAt[j], start+int64(o.c.Cfg.BarrierSlack.After(at, n+1)))
		}
	}
	return o.switchAt
}

// plannedAt is the time of a move that the plan has at us, where those that take planes to where it
// begins, at 0, take setup. Both are in microseconds.
func plannedAt(us, setup float64) time.Duration {
	if us < 0 {
		return 0
	}
	return time.Duration((setup + us) * float64(time.Microsecond))
}

// headStart is how many times as long as the leader has taken for the program of an operation the
// others get for theirs: nothing where it is known, more than once where they share processors.
const headStart = 4

// schedule has the controller move the planes of the next operation at their times.
func (a *arbiter) schedule(s calls.Shape, plan *planning.Agreed) error {
	o := a.o
	// A move that is due while another is under way would fail the plane.
	for j := range a.t.Use.Each() {
		if err := a.await(j); err != nil {
			return fmt.Errorf("shim: plane %d epoch %d: %w", j, o.now[j].epoch, err)
		}
	}
	began := time.Now()
	e, err := o.entry(s, plan, a.t.Use)
	if err != nil {
		return err
	}
	now := time.Now()
	a.t.Start = now.Add(headStart * now.Sub(began)).UnixNano()
	for j, times := range o.due(e.Prog, a.t.Start) {
		for k, at := range times {
			epoch := o.now[j].epoch + uint32(k)
			if err := o.switches.Schedule(j, epoch, e.Prog.Configs[j][k+1], time.Unix(0, at)); err != nil {
				return fmt.Errorf("shim: plane %d epoch %d: %w", j, epoch, err)
			}
		}
	}
	return nil
}
