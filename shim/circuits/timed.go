package circuits

import (
	"slices"
	"time"

	"lightpath/collectives/program"
	"lightpath/plans"
)

// The time-based barrier: the leader tells the controller beforehand when each plane moves, and the ticket tells the
// ranks when the operation begins. All else follows from the program, so no rank posts. A rank that still uses a plane
// when the plane moves fails the operation.

// Due returns when the planes of a program move, by [plane][move], in nanoseconds of Unix time,
// for an operation that begins at start: the planned times with the slack, after the moves that
// take planes to where the plan begins. The result is reused by the next call.
func (p *Planes) Due(prog *program.Program, start int64) [][]int64 {
	setup := 0.0
	for j, moves := range prog.SwitchUS {
		if len(moves) > 0 && moves[0] < 0 {
			setup = max(setup, plans.ReconfigUS(p.Template, prog.Configs[j][0], prog.Configs[j][1]))
		}
	}
	p.times = p.times[:0]
	for _, moves := range prog.SwitchUS {
		for _, us := range moves {
			p.times = append(p.times, plannedAt(us, setup))
		}
	}
	slices.Sort(p.times)
	p.times = slices.Compact(p.times)
	for len(p.switchAt) < len(prog.SwitchUS) {
		p.switchAt = append(p.switchAt, nil)
	}
	for j, moves := range prog.SwitchUS {
		p.switchAt[j] = p.switchAt[j][:0]
		for _, us := range moves {
			at := plannedAt(us, setup)
			n, _ := slices.BinarySearch(p.times, at)
			p.switchAt[j] = append(p.switchAt[j], start+int64(p.c.Cfg.BarrierSlack.After(at, n+1)))
		}
	}
	return p.switchAt
}

// plannedAt is the time of a move that the plan has at us, where those that take planes to where it
// begins, at 0, take setup. Both are in microseconds.
func plannedAt(us, setup float64) time.Duration {
	if us < 0 {
		return 0
	}
	return time.Duration((setup + us) * float64(time.Microsecond))
}
