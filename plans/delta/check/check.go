package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"lightpath/plans/delta/dag"
)

// ErrSchedule is wrapped by every error about a schedule. The message names the rule, the task or
// pod, and the time.
var ErrSchedule = errors.New("bad schedule")

// tolerance is how much a value may exceed its limit, relative to the limit. Times may exceed it by toleranceUS more.
const (
	tolerance   = 1e-6
	toleranceUS = 1e-3
)

// Check reports the first constraint that s breaks on g. A schedule without circuits is on the ideal network, where
// only NICs limit rates. Spans of transfers must have segments.
func Check(g *dag.Graph, s *dag.Schedule) error {
	c := checker{g: g, s: s}
	for _, rule := range []func() error{c.shape, c.ports, c.volumes, c.links, c.nics, c.dependencies, c.makespan} {
		if err := rule(); err != nil {
			return fmt.Errorf("%w: %w", ErrSchedule, err)
		}
	}
	return nil
}

type checker struct {
	g *dag.Graph
	s *dag.Schedule
}

func (c *checker) shape() error {
	if len(c.s.Spans) != len(c.g.Tasks) {
		return fmt.Errorf("%d spans for %d tasks", len(c.s.Spans), len(c.g.Tasks))
	}
	if c.s.Circuits != nil && len(c.s.Circuits) != len(c.g.Links) {
		return fmt.Errorf("%d circuit counts for %d links", len(c.s.Circuits), len(c.g.Links))
	}
	return nil
}

// ports checks (5). (6) holds, since a link has one number for both directions.
func (c *checker) ports() error {
	used := make(map[int]int)
	for l, n := range c.s.Circuits {
		if n < 0 {
			return fmt.Errorf("link %d has %d circuits", l, n)
		}
		link := c.g.Links[l]
		used[link.Pods[0]] += n * link.Ports[0]
		used[link.Pods[1]] += n * link.Ports[1]
	}
	for p, pod := range c.g.Pods {
		if !pod.Image && used[p] > pod.Ports {
			return fmt.Errorf("(5) pod %q uses %d ports, it has %d", pod.Name, used[p], pod.Ports)
		}
	}
	return nil
}

// volumes checks (11) to (15) for transfers, and the duration of work.
func (c *checker) volumes() error {
	for i, span := range c.s.Spans {
		t := &c.g.Tasks[i]
		name := fmt.Sprintf("task %d (%s)", i, t.Name)
		if !(span.Start >= -toleranceUS) || !(span.End >= span.Start-toleranceUS) || math.IsInf(span.End, 0) {
			return fmt.Errorf("(15) %s runs from %v to %v us", name, span.Start, span.End)
		}
		if t.Flows == 0 {
			if span.End-span.Start < t.Duration-slack(span.End) {
				return fmt.Errorf("%s takes %v us, not %v", name, span.End-span.Start, t.Duration)
			}
			continue
		}
		sent, at := 0.0, span.Start
		for k, seg := range span.Segments {
			if !(seg.Bytes >= 0) || !(seg.Start >= at-slack(at)) || !(seg.End >= seg.Start) {
				return fmt.Errorf("(14) %s: segment %d carries %v bytes from %v to %v us", name, k, seg.Bytes, seg.Start, seg.End)
			}
			sent, at = sent+seg.Bytes, seg.End
		}
		if at > span.End+slack(span.End) {
			return fmt.Errorf("(12) %s carries bytes until %v us and ends at %v", name, at, span.End)
		}
		if math.Abs(sent-t.Bytes) > tolerance*t.Bytes {
			return fmt.Errorf("(11) %s carries %v of %v bytes", name, sent, t.Bytes)
		}
	}
	return nil
}

// slack returns the error, in microseconds, that rounding may leave in the time t.
func slack(t float64) float64 { return toleranceUS + 1e-9*math.Abs(t) }

// links checks (9): the rate over a link in one direction never exceeds its circuits.
func (c *checker) links() error {
	if c.s.Circuits == nil {
		return nil
	}
	for l, link := range c.g.Links {
		for _, way := range [][2]int{link.Pods, {link.Pods[1], link.Pods[0]}} {
			var u usage
			for i := range c.g.Tasks {
				if t := &c.g.Tasks[i]; t.Flows > 0 && t.From == way[0] && t.To == way[1] {
					u.add(c.s.Spans[i].Segments, 1)
				}
			}
			limit := float64(c.s.Circuits[l]) * c.g.Gbps * dag.BytesPerUSPerGbps
			if at, rate, over := u.exceeds(limit); over {
				return fmt.Errorf("(9) pods %q to %q carry %v bytes/us at %v us, %d circuits carry %v",
					c.g.Pods[way[0]].Name, c.g.Pods[way[1]].Name, rate, at, c.s.Circuits[l], limit)
			}
		}
	}
	return nil
}

// nics checks (10): the flows that a GPU sends, or receives, never exceed its NIC. A flow belongs to one GPU.
func (c *checker) nics() error {
	limit := c.g.Gbps * dag.BytesPerUSPerGbps
	send, recv := make(map[int]*usage), make(map[int]*usage)
	count := func(of map[int]*usage, gpus []int, segments []dag.Segment, flows int) {
		for _, gpu := range gpus {
			if of[gpu] == nil {
				of[gpu] = &usage{}
			}
			of[gpu].add(segments, 1/float64(flows))
		}
	}
	for i := range c.g.Tasks {
		t, span := &c.g.Tasks[i], &c.s.Spans[i]
		if t.Flows == 0 {
			continue
		}
		var own usage
		own.add(span.Segments, 1/float64(t.Flows))
		if at, rate, over := own.exceeds(limit); over {
			return fmt.Errorf("(10) task %d (%s) sends %v bytes/us per flow at %v us, a NIC %v", i, t.Name, rate, at, limit)
		}
		count(send, t.Src, span.Segments, t.Flows)
		count(recv, t.Dst, span.Segments, t.Flows)
	}
	for _, side := range []struct {
		does string
		of   map[int]*usage
	}{{"sends", send}, {"receives", recv}} {
		for _, gpu := range slices.Sorted(maps.Keys(side.of)) {
			if at, rate, over := side.of[gpu].exceeds(limit); over {
				return fmt.Errorf("(10) GPU %d %s %v bytes/us at %v us, its NIC carries %v", gpu, side.does, rate, at, limit)
			}
		}
	}
	return nil
}

// dependencies is (16).
func (c *checker) dependencies() error {
	for k, d := range c.g.Deps {
		earliest := c.s.Spans[d.From].End + d.Delay
		if start := c.s.Spans[d.To].Start; start < earliest-slack(earliest) {
			return fmt.Errorf("(16) dependency %d: task %d (%s) starts at %v us, not before %v", k, d.To, c.g.Tasks[d.To].Name,
				start, earliest)
		}
	}
	return nil
}

// makespan checks (18), with equality: a makespan later than every task is wrong, too.
func (c *checker) makespan() error {
	last := 0.0
	for _, span := range c.s.Spans {
		last = max(last, span.End)
	}
	if math.Abs(last-c.s.Makespan) > slack(last)+tolerance*last {
		return fmt.Errorf("(18) the last task ends at %v us, the makespan says %v", last, c.s.Makespan)
	}
	return nil
}

// usage is the rate over time of several transfers on one resource.
type usage struct{ changes []change }

type change struct{ at, by float64 }

func (u *usage) add(segments []dag.Segment, share float64) {
	for _, s := range segments {
		if s.Bytes == 0 {
			continue
		}
		// A schedule states times to 4 ulps. Bytes in no time at time 0 have an infinite rate.
		took := max(s.End-s.Start, s.End*0x1p-50)
		rate := s.Bytes * share / took
		u.changes = append(u.changes, change{s.Start, rate}, change{s.Start + took, -rate})
	}
}

// exceeds returns when the rate is above limit for longer than rounding explains, and the rate then.
func (u *usage) exceeds(limit float64) (at, rate float64, over bool) {
	slices.SortFunc(u.changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	total := 0.0
	for k, c := range u.changes {
		if math.IsInf(c.by, 0) || math.IsNaN(c.by) {
			return c.at, math.Inf(1), true
		}
		total += c.by
		if total <= limit*(1+tolerance) {
			continue
		}
		until := math.Inf(1)
		if k+1 < len(u.changes) {
			until = u.changes[k+1].at
		}
		if (total-limit)*(until-c.at) > limit*slack(c.at) {
			return c.at, total, true
		}
	}
	return 0, 0, false
}
