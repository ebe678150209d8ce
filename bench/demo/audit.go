package demo

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"lightpath/collectives/wire"
	"lightpath/ocsctl/emulator"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// ErrAudit reports that the switch's log and the plan disagree.
var ErrAudit = errors.New("audit")

// window is one timed iteration, CLOCK_MONOTONIC nanoseconds.
type window struct{ start, end int64 }

// auditor compares the log of the emulated switch with a plan. It uses no report of the ranks.
type auditor struct {
	problem *plans.Problem
	plan    *plans.Plan
	steps   []int // problem step -> schedule step, which frames carry
	slack   float64
}

// counts are the totals of an audit over all iterations.
type counts struct {
	Frames   int
	Switches int // within the timed iterations
	Lost     int
}

// circuitKey is a circuit of one plane in one step.
type circuitKey struct {
	plane, step, src, dst int
}

func (k circuitKey) String() string {
	return fmt.Sprintf("plane %d step %d circuit %d -> %d", k.plane, k.step, k.src, k.dst)
}

// audit checks every frame and every iteration, and returns the first difference.
func (a *auditor) audit(log *emulator.Log, iters []window) (counts, error) {
	var c counts
	for i := range log.Frames {
		r := &log.Frames[i]
		c.Frames++
		if r.Verdict != emulator.Delivered {
			c.Lost++
		}
	}
	if c.Lost > 0 {
		return c, fmt.Errorf("%w: the switch lost %d of %d frames", ErrAudit, c.Lost, c.Frames)
	}
	if err := checkQuietSwitching(log); err != nil {
		return c, err
	}
	want, err := a.expected()
	if err != nil {
		return c, err
	}
	for n, w := range iters {
		got, err := a.carried(log, w)
		if err != nil {
			return c, fmt.Errorf("%w: iteration %d: %w", ErrAudit, n, err)
		}
		if err := a.compare(want, got); err != nil {
			return c, fmt.Errorf("%w: iteration %d: %w", ErrAudit, n, err)
		}
		c.Switches += switchesWithin(log, w)
	}
	return c, nil
}

// checkQuietSwitching checks in the log alone that no frame was on a circuit while it moved.
func checkQuietSwitching(log *emulator.Log) error {
	for plane := range log.Planes {
		var prev circuit.Permutation
		for i := range log.Switches {
			s := &log.Switches[i]
			if int(s.Plane) != plane {
				continue
			}
			for j := range log.Frames {
				r := &log.Frames[j]
				if int(r.Plane) != plane || r.Finish <= s.Start || r.Start >= s.End {
					continue
				}
				if prev == nil || prev[r.Src] != s.Map[r.Src] {
					return fmt.Errorf("%w: plane %d: a frame from port %d was on the wire while its circuit moved to epoch %d",
						ErrAudit, plane, r.Src, s.Epoch)
				}
			}
			prev = s.Map
		}
	}
	return nil
}

// expected returns the bytes that the plan sends over each circuit in each step.
func (a *auditor) expected() (map[circuitKey]float64, error) {
	want := map[circuitKey]float64{}
	for plane := range a.plan.Planes {
		if err := a.walk(plane, func(_ *plans.Entry, crosses map[circuitKey]float64) {
			for k, bytes := range crosses {
				want[k] += bytes
			}
		}); err != nil {
			return nil, err
		}
	}
	return want, nil
}

// walk calls f for each transmission of a plane, in order, with the bytes that it puts on circuits.
func (a *auditor) walk(plane int, f func(e *plans.Entry, crosses map[circuitKey]float64)) error {
	at := a.plan.Initial[plane]
	for i := range a.plan.Planes[plane] {
		e := &a.plan.Planes[plane][i]
		switch e.Kind {
		case plans.Reconfigure:
			at = e.To
		case plans.Transmit:
			crosses := map[circuitKey]float64{}
			for i, fl := range a.problem.Steps[e.Step].FlowList() {
				if e.Flows != nil && !slices.Contains(e.Flows, i) {
					continue
				}
				if _, there := at.Hops(fl[0], fl[1]); !there {
					return fmt.Errorf("%w: the plan sends %d -> %d on plane %d, which has no path between them",
						ErrAudit, fl[0], fl[1], plane)
				}
				for r := fl[0]; r != fl[1]; r = at[r] {
					crosses[circuitKey{plane, a.steps[e.Step], r, at[r]}] += e.Bytes
				}
			}
			f(e, crosses)
		}
	}
	return nil
}

// carried returns the bytes that crossed each circuit in each step of one iteration, by the labels of the frames.
func (a *auditor) carried(log *emulator.Log, w window) (map[circuitKey]float64, error) {
	got := map[circuitKey]float64{}
	var h wire.Header
	for i := range log.Frames {
		r := &log.Frames[i]
		if r.Start < w.start || r.Start > w.end {
			continue
		}
		if err := wire.Decode(r.Label[:], &h); err != nil {
			return nil, err
		}
		got[circuitKey{int(r.Plane), int(h.Step), int(r.Src), int(r.Dst)}] += float64(r.Bytes)
	}
	return got, nil
}

func (a *auditor) compare(want, got map[circuitKey]float64) error {
	for k, b := range want {
		if math.Abs(got[k]-b) > a.slack {
			return fmt.Errorf("%v carried %.0f bytes, the plan says %.0f", k, got[k], b)
		}
	}
	for k, b := range got {
		if _, planned := want[k]; !planned && b > 0 {
			return fmt.Errorf("%v carried %.0f bytes, the plan says none", k, b)
		}
	}
	return nil
}

// switchesWithin counts the switches of an iteration up to its last frame. A reset after that is not part of the
// completion time.
func switchesWithin(log *emulator.Log, w window) int {
	last := w.start
	for i := range log.Frames {
		if r := &log.Frames[i]; r.Start <= w.end {
			last = max(last, r.Start)
		}
	}
	n := 0
	for i := range log.Switches {
		if s := &log.Switches[i]; s.Start >= w.start && s.Start < last {
			n++
		}
	}
	return n
}
