package iteration

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/sim"
)

// candidate is a plan that a shape may run.
type candidate struct {
	shape       int
	plan        *plans.Plan
	us          float64 // its completion time
	first, last int     // settings on which it begins and ends; first is anySetting for a demand
	// idle is, by plane, the time from the end of the plane's last entry to the completion time.
	idle []float64
	// switching is the time in which at least one plane reconfigures, and free the completion time without switching
	// costs.
	switching, free float64
}

// settings numbers the circuits of all planes.
type settings struct {
	maps   circuit.Index
	known  map[string]int
	all    [][]circuit.Permutation
	planes [][]int // by setting and plane: number of the map
}

func (s *settings) add(maps []circuit.Permutation) int {
	ids := make([]int, len(maps))
	key := make([]byte, 0, 4*len(maps))
	for j, m := range maps {
		ids[j], _ = s.maps.Add(m)
		key = append(key, byte(ids[j]), byte(ids[j]>>8), byte(ids[j]>>16), byte(ids[j]>>24))
	}
	if at, ok := s.known[string(key)]; ok {
		return at
	}
	if s.known == nil {
		s.known = map[string]int{}
	}
	at := len(s.all)
	s.known[string(key)] = at
	s.all, s.planes = append(s.all, maps), append(s.planes, ids)
	return at
}

// newCandidate measures a plan of a shape. The plan may lack initial circuits: then planes begin dark.
func (s *solver) newCandidate(shape int, plan *plans.Plan) *candidate {
	p := s.p.Shapes[shape]
	if plan.Initial == nil {
		own := *plan
		own.Initial = make([]circuit.Permutation, p.Planes)
		for j := range own.Initial {
			own.Initial[j] = circuit.AllDark(p.Ranks)
		}
		plan = &own
	}
	plan = trimmed(plan, p.Circuits)
	c := &candidate{shape: shape, plan: plan, us: plan.CCTUS, idle: make([]float64, p.Planes)}
	c.first, c.last = s.settings.add(plan.Initial), s.settings.add(Final(plan))
	if p.Demand != nil {
		c.first = anySetting
	}
	for j, entries := range plan.Planes {
		end := 0.0
		if n := len(entries); n > 0 {
			end = entries[n-1].EndUS
		}
		c.idle[j] = plan.CCTUS - end
	}
	c.switching, c.free = switchingUnion(plan), -1
	return c
}

// trimmed returns the plan without the reconfigurations after the last transmit of a plane: the next call of an
// iteration says to which circuits planes switch then.
func trimmed(plan *plans.Plan, kind plans.CircuitKind) *plans.Plan {
	own := *plan
	own.Planes = slices.Clone(plan.Planes)
	last := func(j int) bool {
		n := len(own.Planes[j])
		return n > 0 && own.Planes[j][n-1].Kind == plans.Reconfigure
	}
	unit := kind.UnitPlanes()
	for j := 0; j < len(own.Planes); j += unit {
		for last(j) && last(j+unit-1) {
			for k := j; k < j+unit; k++ {
				own.Planes[k] = own.Planes[k][:len(own.Planes[k])-1]
			}
			own.Digest, own.Repeats = "", nil
		}
	}
	return &own
}

// switchingUnion returns the time up to the completion time in which at least one plane reconfigures.
func switchingUnion(plan *plans.Plan) float64 {
	next := make([]int, len(plan.Planes))
	sum, until := 0.0, 0.0
	for { // the reconfiguration that starts next, over all planes
		best := -1
		for j, entries := range plan.Planes {
			for next[j] < len(entries) && entries[next[j]].Kind != plans.Reconfigure {
				next[j]++
			}
			if next[j] < len(entries) && (best < 0 || entries[next[j]].StartUS < plan.Planes[best][next[best]].StartUS) {
				best = j
			}
		}
		if best < 0 {
			return sum
		}
		e := &plan.Planes[best][next[best]]
		next[best]++
		end := math.Min(e.EndUS, plan.CCTUS)
		if from := math.Max(e.StartUS, until); end > from {
			sum += end - from
			until = end
		}
	}
}

// freeUS returns the completion time of the candidate's order if switching cost nothing.
func (s *solver) freeUS(c *candidate) float64 {
	if c.free >= 0 {
		return c.free
	}
	c.free = c.us
	if c.switching > 0 {
		p := *s.p.Shapes[c.shape]
		p.ReconfigUS, p.ReconfigPerPort = 0, 0
		if r, err := sim.Run(&p, c.plan); err == nil {
			c.free = math.Min(c.us, r.CCTUS)
		}
	}
	return c.free
}

// switchUS returns how long plane j takes from one setting to another; false if it has the circuits already, or any do.
func (s *solver) switchUS(from, to, j int) (float64, bool) {
	if to == anySetting {
		return 0, false
	}
	a, b := s.settings.planes[from][j], s.settings.planes[to][j]
	if a == b {
		return 0, false
	}
	us := plans.ReconfigUS(s.p.Fabric, s.settings.maps.At(a), s.settings.maps.At(b))
	if s.p.Fabric.Circuits == plans.Interleaved { // the pair switches together
		m := j ^ 1
		us = math.Max(us, plans.ReconfigUS(s.p.Fabric, s.settings.all[from][m], s.settings.all[to][m]))
	}
	return us, true
}

// idleOf returns how long plane j, with the planes that switch with it, is idle at the end of c.
func (s *solver) idleOf(c *candidate, j int) float64 {
	if s.p.Fabric.Circuits == plans.Interleaved {
		return math.Min(c.idle[j], c.idle[j^1])
	}
	return c.idle[j]
}

// lag is what a transition from one candidate to the next needs, in us after the end of the first.
type lag struct {
	early float64 // until all planes have switched, each from its last entry on; may be negative
	gap   float64 // the longest of these switches
	moves bool    // there is a switch
	setup float64 // the longest switch after the call has come; see lagIn
	known bool
}

// lagIn returns the lag between two candidates in a mode. In late mode, planes return to the circuits on which the first
// one began, as plans of single calls do at run time. They switch to those of the second one when its call has come.
func (s *solver) lagIn(m mode, a, b int) lag {
	if m != late {
		return s.lagOf(a, b)
	}
	l, from := lag{early: math.Inf(-1)}, s.all[a].last
	if s.all[a].first != anySetting { // planes stay where the plan of a demand ends
		l, from = s.lagOf(a, a), s.all[a].first
	}
	for j := range s.all[a].idle {
		us, _ := s.switchUS(from, s.all[b].first, j)
		l.setup = math.Max(l.setup, us)
	}
	return l
}

// lagOf returns the lag between two candidates by their numbers.
func (s *solver) lagOf(a, b int) lag {
	l := &s.lags[a][b]
	if !l.known {
		*l = s.measureLag(s.all[a], s.all[b])
	}
	return *l
}

func (s *solver) measureLag(a, b *candidate) lag {
	l := lag{early: math.Inf(-1), known: true}
	for j := range a.idle {
		us, moves := s.switchUS(a.last, b.first, j)
		l.gap, l.moves = math.Max(l.gap, us), l.moves || moves
		if moves {
			l.early = math.Max(l.early, us-s.idleOf(a, j))
		}
	}
	return l
}
