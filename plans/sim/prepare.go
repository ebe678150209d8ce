package sim

import (
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// jointKey names a joint transmit: its id is unique within its step.
type jointKey struct {
	step int
	id   string
}

// member is one entry of a joint transmit.
type member struct{ plane, entry int }

// prepare computes the duration of each entry: it follows the circuits of every plane, which needs no times.
func (s *simulator) prepare() error {
	k := len(s.plan.Planes)
	if k != s.p.Planes {
		return fmt.Errorf("planes: has %d planes, the problem has %d", k, s.p.Planes)
	}
	s.duration = make([][]float64, k)
	s.joints = make(map[jointKey][]member)
	s.left = make([]int, len(s.p.Steps))
	s.next, s.busy = make([]int, k), make([]bool, k)
	s.result.Planes = make([]Plane, k)
	var l plans.Loader
	for j, entries := range s.plan.Planes {
		s.duration[j] = make([]float64, len(entries))
		s.result.Planes[j].Spans = make([]Span, len(entries))
		current, err := s.initial(j)
		if err != nil {
			return err
		}
		l.SetMap(current)
		for i := range entries {
			e := &entries[i]
			if err := s.cost(j, i, e, &l, &current); err != nil {
				return fmt.Errorf("planes[%d][%d]: %w", j, i, err)
			}
		}
	}
	for _, members := range s.joints {
		var routes []plans.Route
		for _, m := range members {
			routes = append(routes, s.plan.Planes[m.plane][m.entry].Routes...)
		}
		hops, bytes := plans.JointLoad(routes)
		us := plans.JointUS(s.p, hops, bytes)
		for _, m := range members {
			s.duration[m.plane][m.entry] = us
		}
	}
	for s.frontier < len(s.left) && s.left[s.frontier] == 0 {
		s.frontier++
	}
	return nil
}

// initial returns the map with which plane j begins: dark if neither problem nor plan states one.
func (s *simulator) initial(j int) (circuit.Permutation, error) {
	maps := s.plan.Initial
	if maps == nil {
		maps = s.p.Initial
	}
	if maps == nil || s.p.Demand != nil {
		return circuit.AllDark(s.p.Ranks), nil
	}
	if j >= len(maps) {
		return nil, fmt.Errorf("initial: has %d maps, want one for each of %d planes", len(maps), s.p.Planes)
	}
	if err := maps[j].Validate(s.p.Ranks); err != nil {
		return nil, fmt.Errorf("initial[%d]: %w", j, err)
	}
	return maps[j], nil
}

// cost sets the duration of entry i of plane j, whose map is *current and bound to l.
func (s *simulator) cost(j, i int, e *plans.Entry, l *plans.Loader, current *circuit.Permutation) error {
	switch {
	case e.Kind == plans.Reconfigure:
		if err := e.To.Validate(s.p.Ranks); err != nil {
			return fmt.Errorf("to: %w", err)
		}
		s.duration[j][i] = plans.ReconfigUS(s.p, *current, e.To)
		*current = e.To
		l.SetMap(e.To)
		return nil
	case e.Kind == plans.Hold && s.p.Demand != nil:
		if !e.To.Equal(*current) {
			return fmt.Errorf("no reconfiguration to the map of this hold precedes it")
		}
		s.duration[j][i] = math.Max(0, e.EndUS-e.StartUS)
		return nil
	case e.Kind != plans.Transmit || s.p.Demand != nil:
		return fmt.Errorf("a %s does not belong to this problem", e.Kind)
	case e.Step < 0 || e.Step >= len(s.p.Steps):
		return fmt.Errorf("the problem has no step %d", e.Step)
	}
	s.left[e.Step]++
	flows := s.p.Steps[e.Step].FlowList()
	if e.Joint != "" {
		key := jointKey{e.Step, e.Joint}
		s.joints[key] = append(s.joints[key], member{j, i})
		return nil
	}
	if e.Flows != nil {
		picked := make([][2]int, len(e.Flows))
		for k, f := range e.Flows {
			if f < 0 || f >= len(flows) {
				return fmt.Errorf("flows[%d]: step %d has no flow %d", k, e.Step, f)
			}
			picked[k] = flows[f]
		}
		flows = picked
	}
	if e.Bytes == 0 {
		return nil
	}
	hops, load, err := l.Load(flows)
	if err != nil {
		return err
	}
	s.duration[j][i] = plans.TransmitUS(s.p, hops, load, e.Bytes)
	return nil
}
