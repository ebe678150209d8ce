package circuits

import (
	"slices"
	"time"

	"lightpath/collectives/program"
	"lightpath/plans"
)

// The time-based barrier: the leader tells the controller in advance when each plane moves. The ticket tells the ranks
// when the operation begins. The program determines the rest, so no rank posts. A rank that still uses a plane when it
// moves fails the operation.

// Due returns when the planes of a program move, by [plane][move], in nanoseconds of Unix time. The operation begins
// at start. Each time is the planned time plus the slack. The moves to the plan's first maps come first. The next call
// reuses the result.
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

// plannedAt returns the time of a move after the start of the operation. us is the move's time in the plan. setup is
// the time of the moves to the plan's first maps, whose us is negative. Both are in microseconds.
func plannedAt(us, setup float64) time.Duration {
	if us < 0 {
		return 0
	}
	return time.Duration((setup + us) * float64(time.Microsecond))
}
