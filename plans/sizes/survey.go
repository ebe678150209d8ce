package sizes

import (
	"cmp"
	"context"
	"math"
	"slices"

	"lightpath/plans"
)

// defaultTolerance is how much longer the plan of a span may take than a plan for the size alone, as a fraction.
const defaultTolerance = 0.01

const (
	// trust is the ratio of two sizes beyond which a pattern that is good at both is also
	// tried between them.
	trust = 8
	// bisections locates a breakpoint to within a ratio of 2^(log2(ratio)/2^10).
	bisections = 10
	// maxReach is the largest size whose neighbourhood is searched. Larger sizes are not exact as float64, and ratios
	// overflow.
	maxReach = 1 << 50
	// maxPieces bounds the spans of one pattern between two sizes that were planned.
	maxPieces = 8
)

// Survey finds the pattern that serves each size of a call best. It plans few sizes, called points. Between two points
// their two patterns, refitted, are at their worst at the size at which they cross. Survey plans this size anew. If the
// new plan is not better by more than the tolerance, the two spans meet there. Otherwise the crossing becomes a point,
// and Survey looks at both sides in turn. On affine costs this is the method of Eisner and Severance (Mathematical
// Techniques for Efficient Record Segmentation in Large Shared Databases, J. ACM 1976), which then finds every
// breakpoint. Refitted patterns are convex, so Survey tries one more size if the points are far apart.
//
// The zero value with Pose and Solve is ready. Not safe for concurrent use. Results depend only on the order of calls
// and on Solve.
type Survey struct {
	// Pose returns the problem of a call of the given bytes: the same steps for every size,
	// with bytes affine in it.
	Pose func(bytes int64) (*plans.Problem, error)
	// Solve plans a problem anew, within a limit of its own.
	Solve func(ctx context.Context, p *plans.Problem) (*plans.Plan, error)
	// Tolerance is how much longer a span's plan may take than Solve's, as a fraction. 0 is defaultTolerance; below 0
	// every size is planned separately.
	Tolerance float64
	// Plannings counts the calls of Solve.
	Plannings int

	points []point // by size
}

// point is a size that was planned.
type point struct {
	bytes int64
	Sized
	linked bool // spans cover everything up to the next point
}

func (s *Survey) tolerance() float64 {
	if s.Tolerance == 0 {
		return defaultTolerance
	}
	return math.Max(0, s.Tolerance)
}

// Known adds a span that was found earlier, elsewhere: its ends count as points.
func (s *Survey) Known(span *Span) {
	s.insert(point{bytes: span.Min, Sized: span.Low, linked: span.Max > span.Min})
	if span.Max > span.Min {
		s.insert(point{bytes: span.Max, Sized: span.High})
	}
}

// insert adds a point, or marks the existing one as linked if p is.
func (s *Survey) insert(p point) {
	at, found := s.find(p.bytes)
	if found {
		s.points[at].linked = s.points[at].linked || p.linked
		return
	}
	if at > 0 && s.points[at-1].linked {
		p.linked = true // covered sizes stay covered
	}
	s.points = slices.Insert(s.points, at, p)
}

// find returns the place of a size among the points, and whether it is one.
func (s *Survey) find(bytes int64) (at int, found bool) {
	return slices.BinarySearchFunc(s.points, bytes, func(p point, b int64) int { return cmp.Compare(p.bytes, b) })
}

// Plan plans one size and returns it as a span of its own.
func (s *Survey) Plan(ctx context.Context, bytes int64) (*Span, error) {
	p, err := s.plan(ctx, bytes)
	if err != nil {
		return nil, err
	}
	return Point(bytes, p.Problem, p.Plan), nil
}

// plan makes a point: the best of a plan made anew and the patterns of its neighbours.
func (s *Survey) plan(ctx context.Context, bytes int64) (point, error) {
	problem, err := s.Pose(bytes)
	if err != nil {
		return point{}, err
	}
	s.Plannings++
	plan, err := s.Solve(ctx, problem)
	if err == nil {
		err = ctx.Err() // a plan that was cut short would look like what there is to find
	}
	if err != nil {
		return point{}, err
	}
	best := point{bytes: bytes, Sized: Sized{problem, plan}}
	if s.Tolerance >= 0 {
		try := append(s.neighbours(bytes), best)
		for k := range try {
			fitted, err := Fit(try[k].Sized, problem)
			if err == nil && fitted.CCTUS < best.Plan.CCTUS-plans.Tolerance(fitted.CCTUS, best.Plan.CCTUS) {
				fitted.LowerBoundUS, fitted.BoundProof = math.Min(plan.LowerBoundUS, fitted.CCTUS), plan.BoundProof
				best.Plan = fitted
			}
		}
	}
	s.insert(best)
	return best, nil
}

// neighbours returns the points next to a size.
func (s *Survey) neighbours(bytes int64) []point {
	var near []point
	at, found := s.find(bytes)
	if at > 0 {
		near = append(near, s.points[at-1])
	}
	if found {
		at++
	}
	if at < len(s.points) {
		near = append(near, s.points[at])
	}
	return near
}

// Reach returns the points next to the given size. On a side without a point within ratio, it returns the size at that
// ratio.
func (s *Survey) Reach(bytes, ratio int64) (lo, hi int64) {
	lo, hi = max(1, bytes/ratio), bytes
	if bytes < maxReach {
		hi *= ratio
	}
	for _, p := range s.neighbours(bytes) {
		if p.bytes < bytes {
			lo = max(lo, p.bytes)
		} else {
			hi = min(hi, p.bytes)
		}
	}
	return min(lo, bytes), hi
}

// Cover returns the spans between the points of lo..hi, with at most the given number of plannings. If lo or hi is no
// point, Cover plans it. Known spans, and those returned before, are omitted. Some sizes may stay without a span. If
// the context is cancelled, Cover returns the spans so far.
func (s *Survey) Cover(ctx context.Context, lo, hi int64, plannings int) (Ladder, error) {
	if s.Tolerance < 0 || lo > hi {
		return nil, nil
	}
	c := &cover{Survey: s, ctx: ctx, limit: s.Plannings + plannings}
	for _, bytes := range []int64{lo, hi} {
		if _, err := c.point(bytes); err != nil {
			return nil, err
		}
	}
	for i := 0; i+1 < len(s.points); i++ {
		a, b := s.points[i], s.points[i+1]
		if a.bytes < lo || b.bytes > hi || a.linked || ctx.Err() != nil {
			continue
		}
		before := len(s.points)
		if err := c.between(a, b); err != nil {
			return c.found, err
		}
		i += len(s.points) - before // those were looked at on the way
	}
	return c.found, ctx.Err()
}

// cover is one call of Cover.
type cover struct {
	*Survey
	ctx   context.Context
	limit int // of Plannings
	found Ladder
}

// point returns the point of a size. If there is none, it plans the size if plannings are left.
func (c *cover) point(bytes int64) (*point, error) {
	if at, found := c.find(bytes); found {
		return &c.points[at], nil
	}
	if c.Plannings >= c.limit || c.ctx.Err() != nil {
		return nil, nil
	}
	p, err := c.plan(c.ctx, bytes)
	return &p, err
}

// between covers the sizes between two points that are next to each other.
func (c *cover) between(a, b point) error {
	up, err := c.fitted(a, b.bytes)
	if err != nil {
		return err
	}
	down, err := c.fitted(b, a.bytes)
	if err != nil {
		return err
	}
	within := 1 + c.tolerance()
	x := int64(0) // a serves sizes up to it, b those above
	switch {
	case up.CCTUS <= b.Plan.CCTUS*within:
		x = b.bytes
	case down.CCTUS <= a.Plan.CCTUS*within:
		x = a.bytes
	default:
		if x, err = c.crossing(a, b); err != nil {
			return err
		}
	}
	inner := x
	if x == a.bytes || x == b.bytes {
		if float64(b.bytes) <= trust*float64(a.bytes) {
			return c.join(a, b, x)
		}
		inner = geometric(a.bytes, b.bytes)
	}
	if inner <= a.bytes || inner >= b.bytes {
		return c.join(a, b, x)
	}
	return c.probe(a, b, x, inner)
}

// probe plans a size between two points, and joins them if the plan is no better.
func (c *cover) probe(a, b point, x, inner int64) error {
	serves := a
	if inner > x {
		serves = b
	}
	old, err := c.fitted(serves, inner)
	if err != nil {
		return err
	}
	m, err := c.point(inner)
	if err != nil || m == nil {
		return err
	}
	mid := *m
	if old.CCTUS <= mid.Plan.CCTUS*(1+c.tolerance()) && float64(b.bytes) <= trust*trust*float64(a.bytes) {
		if err := c.join(a, mid, min(x, mid.bytes)); err != nil {
			return err
		}
		return c.join(mid, b, max(x, mid.bytes))
	}
	if err := c.between(a, mid); err != nil {
		return err
	}
	return c.between(mid, b)
}

// fitted returns a point's pattern at another size.
func (c *cover) fitted(p point, bytes int64) (*plans.Plan, error) {
	problem, err := c.Pose(bytes)
	if err != nil {
		return nil, err
	}
	return Fit(p.Sized, problem)
}

// crossing returns the largest size found at which a's pattern is no slower than b's.
func (c *cover) crossing(a, b point) (int64, error) {
	lo, hi := a.bytes, b.bytes
	for range bisections {
		mid := geometric(lo, hi)
		if mid <= lo || mid >= hi {
			break
		}
		ours, err := c.fitted(a, mid)
		if err != nil {
			return 0, err
		}
		theirs, err := c.fitted(b, mid)
		if err != nil {
			return 0, err
		}
		if ours.CCTUS <= theirs.CCTUS {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, nil
}

func geometric(a, b int64) int64 {
	return int64(math.Round(math.Sqrt(math.Max(1, float64(a))) * math.Sqrt(float64(b))))
}

// join makes the spans between two points: a's pattern up to x, b's from there on.
func (c *cover) join(a, b point, x int64) error {
	if x > a.bytes {
		if err := c.pieces(a, a.bytes, x, b); err != nil {
			return err
		}
	}
	if x < b.bytes {
		if err := c.pieces(b, max(x, a.bytes), b.bytes, a); err != nil {
			return err
		}
	}
	for i := range c.points {
		if c.points[i].bytes >= a.bytes && c.points[i].bytes < b.bytes {
			c.points[i].linked = true
		}
	}
	return nil
}

// pieces makes the spans of p's pattern for lo..hi: as many as it takes for the interpolation
// to stay within tolerance of a division made for the size. other is the point at the far
// side; bounds follow from both.
func (c *cover) pieces(p point, lo, hi int64, other point) error {
	ends := &Span{Min: p.bytes, Max: other.bytes, Low: p.Sized, High: other.Sized}
	if p.bytes > other.bytes {
		ends = &Span{Min: other.bytes, Max: p.bytes, Low: other.Sized, High: p.Sized}
	}
	at := func(bytes int64) (Sized, error) {
		problem, err := c.Pose(bytes)
		if err != nil {
			return Sized{}, err
		}
		plan, err := Fit(p.Sized, problem)
		if err != nil {
			return Sized{}, err
		}
		plan.LowerBoundUS = math.Min(plan.CCTUS, ends.lowerBoundUS(bytes))
		plan.BoundProof = "those of the sizes planned next to this one: more bytes take no less, and no less than in " +
			"proportion fewer"
		return Sized{problem, plan}, nil
	}
	knots := []int64{lo, hi}
	sized := make([]Sized, 2)
	for i, bytes := range knots {
		var err error
		if sized[i], err = at(bytes); err != nil {
			return err
		}
	}
	for i := 0; i+1 < len(knots); {
		span := &Span{Min: knots[i], Max: knots[i+1], Low: sized[i], High: sized[i+1]}
		mid := geometric(span.Min, span.Max)
		if len(knots) <= maxPieces && mid > span.Min && mid < span.Max {
			m, err := at(mid)
			if err != nil {
				return err
			}
			if span.cctUS(mid) > m.Plan.CCTUS*(1+c.tolerance()/2) {
				knots, sized = slices.Insert(knots, i+1, mid), slices.Insert(sized, i+1, m)
				continue
			}
		}
		c.found = c.found.With(span)
		i++
	}
	return nil
}
