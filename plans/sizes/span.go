package sizes

import (
	"fmt"
	"math"
	"sort"

	"lightpath/plans"
)

// Span is one pattern with the division of its bytes for the smallest and for the largest call that it serves. Min and
// Max count the call's bytes, both included, in the unit in which the owner of the span counts calls. Steps are affine
// in the size between them. If Min and Max are equal, so are Low and High. A span is immutable.
type Span struct {
	Min, Max  int64
	Low, High Sized
}

// Point is the span of one size.
func Point(bytes int64, problem *plans.Problem, plan *plans.Plan) *Span {
	s := Sized{problem, plan}
	return &Span{Min: bytes, Max: bytes, Low: s, High: s}
}

// Validate reports, with an error that wraps [ErrPattern], ends that are not of one pattern or
// not in order. It does not check that the plans are feasible.
func (s *Span) Validate() error {
	if s.Min > s.Max {
		return fmt.Errorf("%w: sizes %d..%d", ErrPattern, s.Min, s.Max)
	}
	if err := compatible(s.Low.Problem, s.High.Problem); err != nil || s.Min == s.Max {
		return err
	}
	if !same(s.Low.Plan, s.High.Plan) {
		return fmt.Errorf("%w: the plans of the two ends differ in more than bytes", ErrPattern)
	}
	return nil
}

// cctUS returns a bound from above of the completion time of a call of the given bytes, which
// [Span.At] attains or beats: the interpolation of the two ends. (A transmit that is empty at one
// end alone may add what it costs without bytes.) Constant time.
func (s *Span) cctUS(bytes int64) float64 {
	if s.Max == s.Min {
		return s.Low.Plan.CCTUS
	}
	w := float64(bytes-s.Min) / float64(s.Max-s.Min)
	return (1-w)*s.Low.Plan.CCTUS + w*s.High.Plan.CCTUS
}

// lowerBoundUS returns a proven bound for a call of the given bytes. A plan for it also serves a smaller call, so it
// takes at least the bound of Low. Stretched in proportion, it serves a larger call, so it takes at least the bound of
// High in proportion.
func (s *Span) lowerBoundUS(bytes int64) float64 {
	bound := s.Low.Plan.LowerBoundUS
	if s.Max > 0 {
		bound = math.Max(bound, s.High.Plan.LowerBoundUS*(float64(bytes)/float64(s.Max)))
	}
	return bound
}

// At returns the span's plan for p, the problem of a call of the given bytes. The result is a
// pure function of the arguments, to the bit. It is checked, states a bound and carries no
// digest, unless it is the plan of an end. Errors wrap [ErrPattern].
func (s *Span) At(bytes int64, p *plans.Problem) (*plans.Plan, error) {
	if bytes < s.Min || bytes > s.Max {
		return nil, fmt.Errorf("%w: %d bytes are not in %d..%d", ErrPattern, bytes, s.Min, s.Max)
	}
	if bytes == s.Min {
		return s.Low.Plan, nil
	}
	if bytes == s.Max {
		return s.High.Plan, nil
	}
	plan, err := between(s.Low, s.High, p)
	if err != nil {
		return nil, err
	}
	plan.LowerBoundUS = math.Min(plan.CCTUS, s.lowerBoundUS(bytes))
	plan.BoundProof = fmt.Sprintf("that of %d bytes, which any plan for more serves, or that of %d in proportion",
		s.Min, s.Max)
	return plan, nil
}

// ProblemAt returns the problem of a call of the given bytes, a size that the span serves. It is the problem of
// Low with bytes between those of the two ends. It equals the owner's problem, except for rounding.
func (s *Span) ProblemAt(bytes int64) *plans.Problem {
	switch bytes {
	case s.Min:
		return s.Low.Problem
	case s.Max:
		return s.High.Problem
	}
	p := *s.Low.Problem
	p.Steps = append([]plans.Step(nil), p.Steps...)
	w := float64(bytes-s.Min) / float64(s.Max-s.Min)
	for i := range p.Steps {
		p.Steps[i].Bytes = mix(p.Steps[i].Bytes, s.High.Problem.Steps[i].Bytes, w)
	}
	return &p
}

// Ladder is a list of spans in the order of Min. Spans may share an end; if others overlap, the first that is found
// counts.
type Ladder []*Span

// Find returns a span that serves a call of the given bytes, or nil. Hot path: no
// allocation, logarithmic time.
func (l Ladder) Find(bytes int64) *Span {
	lo, hi := 0, len(l) // l[:lo] begin at or below bytes
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); l[mid].Min <= bytes {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	// Overlaps are rare and short: they come from two independent surveys.
	for i := lo - 1; i >= 0 && i >= lo-4; i-- {
		if l[i].Max >= bytes {
			return l[i]
		}
	}
	return nil
}

// With returns a ladder of l and s without the spans that s contains. l stays as it is.
func (l Ladder) With(s *Span) Ladder {
	out := make(Ladder, 0, len(l)+1)
	for _, o := range l {
		if o.Min < s.Min || o.Max > s.Max {
			out = append(out, o)
		}
	}
	at := sort.Search(len(out), func(i int) bool { return out[i].Min > s.Min })
	out = append(out, nil)
	copy(out[at+1:], out[at:])
	out[at] = s
	return out
}
