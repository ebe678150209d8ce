package weave

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/planner/internal/timing"
)

// A team is a set of units that change together. Its best answer is computed while the other units do not change. In
// step i the others transmit at rate R for work W (their overheads included). The step takes W/R without the team. It
// takes (W + r(o+s))/(R+r) if the team helps at rate r after an overhead o and a switch that costs s us of the step. If
// flows go in halves, the longer half counts.
//
// A dynamic program over (step, line-up) finds the sequence of line-ups that ends first. The units of a team switch
// together. A switch begins at the end of a step and the team joins a later step late; or the team leaves a step
// early, to be ready when a later one begins. For a team of all units this is the optimum in lockstep.

// lineup is the settings of a team's first and second half, which may be equal.
type lineup struct{ a, b int }

// help is the rate of a line-up for the flows up and down of a step, in one way; both are 0 if it does not serve the
// step.
type help struct {
	rate [2]float64
	o    float64
}

// The ways in which a line-up can serve a step: each half of the team may carry all flows or one
// half of them.
const ways = 3

// responder holds the tables of the dynamic program, reused.
type responder struct {
	size    int          // units of the team
	rate    [][2]float64 // per step, of the other units
	work    [][2]float64 // per step, theirs if they were alone
	alone   []float64    // per step: us without the team
	lineups []lineup     // that are considered
	helps   []help       // [step][lineup][way]
	best    []float64    // [step][lineup]: least time at which the step begins
	from    []origin     // how
}

// origin is how a state was reached: from the start of step, by a switch from another line-up to the state's own.
// The other line-up may have served that step (left); the state's own may have served the step before (joined).
type origin struct {
	step, lineup     int32
	left, joined     bool
	leaving, joining uint8
}

// horizon is the most steps that a switch may span while others work.
const horizon = 12

// respond replaces the cells of a team by its best answer to the others. Noise distorts the others' work and omits some
// line-ups, at random, so that answers differ. It reports whether every step is served.
func (s *Search) respond(l layout, team []int, noise float64) bool {
	w, a := s.w, &s.answer
	for _, u := range team {
		for i := range w.kind {
			l[i*w.m.Units+u] = idle
		}
	}
	s.others(l, noise)
	a.size = len(team)
	s.lineups(team, noise)
	n := len(a.lineups)
	a.best = slices.Grow(a.best[:0], (len(w.kind)+1)*n)[:(len(w.kind)+1)*n]
	a.from = slices.Grow(a.from[:0], len(a.best))[:len(a.best)]
	for at := range a.best {
		a.best[at] = math.Inf(1)
	}
	s.offers()
	s.plan(w.start[team[0]])
	at := -1
	for c, v := range a.best[len(w.kind)*n:] {
		if !math.IsInf(v, 1) && (at < 0 || v < a.best[len(w.kind)*n+at]) {
			at = c
		}
	}
	if at < 0 {
		return false
	}
	s.trace(l, team, at)
	return w.served(l)
}

// others sums up the work and rates of the units outside the team.
func (s *Search) others(l layout, noise float64) {
	w, a := s.w, &s.answer
	steps := len(w.kind)
	if a.rate == nil {
		a.rate, a.work, a.alone = make([][2]float64, steps), make([][2]float64, steps), make([]float64, steps)
	}
	clear(a.rate)
	clear(a.alone)
	w.load(l)
	for i := range steps {
		work := w.t.Work[i]
		if noise > 0 {
			work *= math.Exp(noise * (2*s.Rng.Float64() - 1))
		}
		a.work[i] = [2]float64{work, work}
	}
	for k := range w.t.Uses {
		u := &w.t.Uses[k]
		for g, h := range timing.UpDown {
			if u.Half.Carries(h) {
				a.rate[u.Step][g] += u.Rate
				a.work[u.Step][g] += u.Rate * u.O
			}
		}
	}
	for i := range steps {
		for g, r := range a.rate[i] {
			a.alone[i] = math.Max(a.alone[i], a.work[i][g]/r) // +Inf if no unit serves it
		}
	}
}

// lineups lists the settings to consider: every setting for the whole team, and for a team of
// several a ring for one half with its opposite for the other.
func (s *Search) lineups(team []int, noise float64) {
	w, a := s.w, &s.answer
	a.lineups = a.lineups[:0]
	for c := range w.sets {
		if c != w.start[team[0]] && noise > 0 && s.Rng.Float64() < noise {
			continue
		}
		a.lineups = append(a.lineups, lineup{c, c})
		if d := s.opposite[c]; len(team) > 1 && d != none && d != c {
			a.lineups = append(a.lineups, lineup{c, d})
		}
	}
}

// plan fills the table for a team that begins on a setting, or unset.
func (s *Search) plan(start int) {
	w, a := s.w, &s.answer
	n := len(a.lineups)
	change := plans.ReconfigPortsUS(w.m.P, w.m.P.Ranks)
	for c, at := range a.lineups {
		if start == unset || at.a == start && at.b == start {
			a.best[c] = 0
		}
	}
	for i := range w.kind {
		if s.Meter.Late() {
			return // and there is no answer
		}
		quickest := -1
		for c, v := range a.best[i*n : (i+1)*n] {
			if math.IsInf(v, 1) {
				continue
			}
			if quickest < 0 || v < a.best[i*n+quickest] {
				quickest = c
			}
			by := origin{step: int32(i), lineup: int32(c)}
			a.offer((i+1)*n+c, v+a.alone[i], by)
			if h, us := s.help(c, i, 0); !math.IsInf(us, 1) {
				by.left, by.leaving = true, uint8(h)
				a.offer((i+1)*n+c, v+us, by)
			}
		}
		if quickest >= 0 {
			s.switchLate(i, quickest, change)
			s.switchEarly(i, change)
		}
	}
}

// offer takes a better way to a state.
func (a *responder) offer(at int, us float64, by origin) {
	if us < a.best[at] {
		a.best[at], a.from[at] = us, by
	}
}

// offers fills the table of helps.
func (s *Search) offers() {
	w, a := s.w, &s.answer
	n := len(w.kind) * len(a.lineups) * ways
	a.helps = slices.Grow(a.helps[:0], n)[:n]
	clear(a.helps)
	at := 0
	for i := range w.kind {
		for _, c := range a.lineups {
			for way := range ways {
				x, y := c.cells(way)
				h := &a.helps[at]
				at++
				h.add(x, w.service(x, i), a.size-a.size/2)
				h.add(y, w.service(y, i), a.size/2)
			}
		}
	}
	w.t.Spend(8 * len(a.helps))
}

// cells returns the cells of a team's halves in one of the ways.
func (c lineup) cells(way int) (x, y cell) {
	x, y = cellOf(c.a, timing.Half(way)), cellOf(c.b, timing.Half(way))
	if c.a != c.b && way > 0 {
		y = cellOf(c.b, timing.Up+timing.Down-timing.Half(way))
	}
	return x, y
}

// add adds some units in a cell; units that do not serve the step there are idle.
func (h *help) add(c cell, v *service, units int) {
	if v.rate == 0 || units == 0 {
		return
	}
	for g, half := range timing.UpDown {
		if c.half().Carries(half) {
			h.rate[g] += float64(units) * v.rate
		}
	}
	h.o = math.Max(h.o, v.o)
}

// help returns the best way of a line-up to serve a step of which it misses lost us, and the resulting time of the
// step; +Inf if no way makes it shorter.
func (s *Search) help(lineup, i int, lost float64) (way int, us float64) {
	a := &s.answer
	way, us = -1, a.alone[i]
	rate, work := &a.rate[i], &a.work[i]
	at := (i*len(a.lineups) + lineup) * ways
	for v := range a.helps[at : at+ways] {
		h := &a.helps[at+v]
		if h.rate[0]+h.rate[1] == 0 || h.rate[0]+rate[0] == 0 || h.rate[1]+rate[1] == 0 {
			continue
		}
		late := h.o + lost
		took := max((work[0]+h.rate[0]*late)/(rate[0]+h.rate[0]), (work[1]+h.rate[1]*late)/(rate[1]+h.rate[1]))
		if took > late && took < us {
			way, us = v, took
		}
	}
	s.w.t.Spend(4 * ways)
	if way < 0 {
		return way, math.Inf(1)
	}
	return way, us
}

// switchLate begins a switch with step i, from the line-up that is quickest there. It lets the team join one of the
// steps that the switch takes, or the first after it.
func (s *Search) switchLate(i, from int, change float64) {
	a := &s.answer
	n := len(a.lineups)
	us, lag := a.best[i*n+from], change
	for j := i; j < len(s.w.kind) && j < i+horizon; j++ {
		by := origin{step: int32(i), lineup: int32(from), joined: true}
		for c := range a.lineups {
			h, took := s.help(c, j, lag)
			if by.joining = uint8(h); h < 0 {
				continue
			}
			a.offer((j+1)*n+c, us+took, by)
		}
		if us, lag = us+a.alone[j], lag-a.alone[j]; math.IsInf(us, 1) {
			return
		}
		if lag <= 0 {
			by.joined = false
			for c := range a.lineups {
				a.offer((j+1)*n+c, us, by)
			}
			return
		}
	}
}

// switchEarly ends a switch as some step after i begins: the steps between are idle, and
// for what they do not cover the team leaves step i early.
func (s *Search) switchEarly(i int, change float64) {
	a := &s.answer
	n, covered := len(a.lineups), 0.0
	for j := i + 1; j <= len(s.w.kind) && j <= i+horizon; j++ {
		least, by := math.Inf(1), origin{step: int32(i), left: true}
		for c, v := range a.best[i*n : (i+1)*n] {
			if math.IsInf(v, 1) {
				continue
			}
			h, took := s.help(c, i, math.Max(0, change-covered))
			if us := v + took + covered; us < least {
				least, by.lineup, by.leaving = us, int32(c), uint8(h)
			}
		}
		if !math.IsInf(least, 1) {
			for c := range a.lineups {
				a.offer(j*n+c, least, by)
			}
		}
		if covered >= change || j == len(s.w.kind) || math.IsInf(a.alone[j], 1) {
			return
		}
		covered += a.alone[j]
	}
}

// trace writes the way to the last state into the columns of the team.
func (s *Search) trace(l layout, team []int, at int) {
	a := &s.answer
	put := func(i, lineup int, way uint8) {
		x, y := a.lineups[lineup].cells(int(way))
		for k, u := range team {
			c := x
			if k >= len(team)-len(team)/2 {
				c = y
			}
			if s.w.can(c, i) {
				l[i*s.w.m.Units+u] = c
			}
		}
	}
	for step := len(s.w.kind); step > 0; {
		by := a.from[step*len(a.lineups)+at]
		if by.joined {
			put(step-1, at, by.joining)
		}
		if by.left {
			put(int(by.step), int(by.lineup), by.leaving)
		}
		step, at = int(by.step), int(by.lineup)
	}
}

// oppose finds pairs of settings with reversed circuits.
func (s *Search) oppose() {
	w := s.w
	s.opposite = make([]int, len(w.sets))
	for c, maps := range w.sets {
		s.opposite[c] = none
		if id, ok := w.index.Find(maps[0].Inverse()); ok && w.m.UnitPlanes == 1 {
			s.opposite[c] = id
		}
	}
}
