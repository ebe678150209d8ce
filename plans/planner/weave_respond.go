package planner

import "math"

// The best answer of a unit to what the other units do. Let the others hold still: in step
// i they transmit at rate R for work W (their overheads and delays included), so that the step
// takes W/R without the unit and (W + r(o+s))/(R+r) if the unit helps at rate r after an
// overhead o, s us of the step being lost to its switch. A dynamic program over
// (step, setting) finds the sequence of settings that ends first; a switch begins at the
// end of a step, and joins a later one late, or is ready as a step begins, having left an
// earlier one early. Several units that do the same are one unit of their common rate. For
// all units together, with no others, this is the optimum in lockstep.

// responder holds the tables of the dynamic program, reused.
type responder struct {
	rate, work []float64 // per step, of the other units
	alone      []float64 // per step: us without the unit
	best       []float64 // [step][setting]: least time at which the step begins
	from       []origin
	usable     []int
}

// origin is how a state was reached: from state (step, setting), serving the steps marked.
type origin struct {
	step    int32
	setting int16
	leaves  bool // the setting before serves its step, at least in part
	joins   bool // the new one serves the step before its own
}

// follows is for how many steps a switch is followed while others work.
const follows = 12

// respond replaces what the units of group do by the best answer to the others. With noise, the
// others' work is seen distorted and some settings are left out, at random, so that
// answers differ. It reports whether every step is served.
func (s *weaving) respond(l layout, group []int, noise float64) bool {
	w, a := s.w, &s.answer
	units, steps := w.m.units, len(w.kind)
	for _, u := range group {
		for i := range steps {
			l[i*units+u] = idle
		}
	}
	a.rate, a.work, a.alone = resize(a.rate, steps), resize(a.work, steps), resize(a.alone, steps)
	w.load(l)
	for i := range steps {
		a.work[i] = w.t.work[i]
		if noise > 0 {
			a.work[i] *= math.Exp(noise * (2*s.rng.Float64() - 1))
		}
	}
	for k := range w.t.uses {
		u := &w.t.uses[k]
		a.rate[u.step] += u.rate
		a.work[u.step] += u.rate * u.o
	}
	for i := range steps {
		a.alone[i] = math.Inf(1)
		if a.rate[i] > 0 {
			a.alone[i] = a.work[i] / a.rate[i]
		}
	}
	a.usable = a.usable[:0]
	for c := range w.sets {
		if c == w.start[group[0]] || noise == 0 || s.rng.Float64() > noise {
			a.usable = append(a.usable, c)
		}
	}
	n := len(w.sets)
	a.best, a.from = resize(a.best, (steps+1)*n), resize(a.from, (steps+1)*n)
	for at := range a.best {
		a.best[at] = math.Inf(1)
	}
	s.plan(group)
	at := -1
	for _, c := range a.usable {
		if v := a.best[steps*n+c]; !math.IsInf(v, 1) && (at < 0 || v < a.best[steps*n+at]) {
			at = c
		}
	}
	if at < 0 {
		return false
	}
	s.trace(l, group, at)
	return w.served(l)
}

// plan fills the table.
func (s *weaving) plan(group []int) {
	w, a := s.w, &s.answer
	n, g := len(w.sets), float64(len(group))
	change := w.m.p.ReconfigUS + w.m.p.ReconfigPerPort*float64(w.m.p.Ranks)
	first := w.start[group[0]]
	for _, c := range a.usable {
		if first == unset || c == first {
			a.best[c] = 0
		}
	}
	for i := range w.kind {
		quickest := -1
		for _, c := range a.usable {
			v := a.best[i*n+c]
			if math.IsInf(v, 1) {
				continue
			}
			if quickest < 0 || v < a.best[i*n+quickest] {
				quickest = c
			}
			a.offer((i+1)*n+c, v+a.alone[i], origin{step: int32(i), setting: int16(c)})
			if o := w.service(c, i); o.rate > 0 {
				a.offer((i+1)*n+c, v+a.with(i, g*o.rate, o.o, 0), origin{step: int32(i), setting: int16(c), leaves: true})
			}
		}
		if quickest >= 0 {
			s.switchLate(i, quickest, change, g)
			s.switchEarly(i, change, g)
		}
		w.t.greeds += int64(4 * len(a.usable))
	}
}

// offer takes a better way to a state.
func (a *responder) offer(at int, us float64, by origin) {
	if us < a.best[at] {
		a.best[at], a.from[at] = us, by
	}
}

// with is how long step i takes if the unit helps; +Inf if it does not get to.
func (a *responder) with(i int, rate, o, lost float64) float64 {
	us := (a.work[i] + rate*(o+lost)) / (a.rate[i] + rate)
	if us <= o+lost || us >= a.alone[i] {
		return math.Inf(1)
	}
	return us
}

// switchLate begins a switch with step i, from whatever setting is quickest there, and lets
// the unit join one of the steps it takes, or the first after it.
func (s *weaving) switchLate(i, from int, change, g float64) {
	w, a := s.w, &s.answer
	n := len(w.sets)
	us, lag := a.best[i*n+from], change
	by := origin{step: int32(i), setting: int16(from)}
	for j := i; j < len(w.kind) && j < i+follows; j++ {
		by.joins = true
		for _, c := range a.usable {
			if o := w.service(c, j); o.rate > 0 {
				a.offer((j+1)*n+c, us+a.with(j, g*o.rate, o.o, lag), by)
			}
		}
		w.t.greeds += int64(4 * len(a.usable))
		if us, lag = us+a.alone[j], lag-a.alone[j]; math.IsInf(us, 1) {
			return
		}
		if lag <= 0 {
			by.joins = false
			for _, c := range a.usable {
				a.offer((j+1)*n+c, us, by)
			}
			return
		}
	}
}

// switchEarly ends a switch as some step after i begins: the steps between are idle, and
// for what they do not cover the unit leaves step i early.
func (s *weaving) switchEarly(i int, change, g float64) {
	w, a := s.w, &s.answer
	n, covered := len(w.sets), 0.0
	for j := i + 1; j <= len(w.kind) && j <= i+follows; j++ {
		least, by := math.Inf(1), origin{step: int32(i), leaves: true}
		for _, c := range a.usable {
			v, o := a.best[i*n+c], w.service(c, i)
			if math.IsInf(v, 1) || o.rate == 0 {
				continue
			}
			if us := v + a.with(i, g*o.rate, o.o, math.Max(0, change-covered)) + covered; us < least {
				least, by.setting = us, int16(c)
			}
		}
		if !math.IsInf(least, 1) {
			for _, c := range a.usable {
				a.offer(j*n+c, least, by)
			}
		}
		w.t.greeds += int64(8 * len(a.usable))
		if covered >= change || j == len(w.kind) || math.IsInf(a.alone[j], 1) {
			return
		}
		covered += a.alone[j]
	}
}

// trace writes the way to the last state into the columns of group.
func (s *weaving) trace(l layout, group []int, setting int) {
	w, a := s.w, &s.answer
	put := func(i, c int) {
		for _, u := range group {
			l[i*w.m.units+u] = int16(c)
		}
	}
	for step := len(w.kind); step > 0; {
		by := a.from[step*len(w.sets)+setting]
		if by.joins {
			put(step-1, setting)
		}
		if by.leaves {
			put(int(by.step), int(by.setting))
		}
		step, setting = int(by.step), int(by.setting)
	}
}
