package planning

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"lightpath/bench/figure"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
)

// The sizes over which plans are kept.
const (
	cacheLow  = 64 << 10
	cacheHigh = 1 << 30
)

// cacheReport measures a cache hit, a plan for another size of the same interval, and how many intervals and planner
// runs cover all sizes.
func cacheReport(ctx context.Context, o figure.Options) (*figure.Figure, error) {
	batch, effort := 50*time.Millisecond, 200*time.Millisecond
	if o.Quick {
		batch, effort = time.Millisecond, 2*time.Millisecond
	}
	f := &figure.Figure{Title: fmt.Sprintf("cache: intervals from %s to %s", figure.Binary(cacheLow),
		figure.Binary(cacheHigh))}
	f.Table.Columns = []string{"what", "planner", "intervals", "plannings", "ns", "allocations"}
	dir, err := os.MkdirTemp("", "lightpath-cache-")
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	defer os.RemoveAll(dir)
	c, err := cache.Open(dir)
	if err != nil {
		return nil, err
	}
	for i, name := range []string{"perstep", "static", "swot"} {
		if err := addIntervals(ctx, f, c, name, planner.Options{Effort: effort, TimeLimit: time.Minute, Seed: o.Seed},
			batch); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(i+1, 3)
		}
	}
	return f, nil
}

// addIntervals surveys the sizes of Rabenseifner's AllReduce with one planner, keeps the
// intervals, and measures finding one.
func addIntervals(ctx context.Context, f *figure.Figure, c *cache.Cache, name string, o planner.Options,
	batch time.Duration) error {
	fabric := plans.Problem{Version: plans.Version, Ranks: 8, Planes: 4, BandwidthGbps: 200, AlphaUS: 20, ReconfigUS: 200,
		Circuits: plans.Simplex}
	pose := func(bytes int64) (*plans.Problem, error) {
		return figure.Collective(schedule.AllReduce, "rabenseifner", float64(bytes), fabric)
	}
	s := &sizes.Survey{Pose: pose, Solve: func(ctx context.Context, p *plans.Problem) (*plans.Plan, error) {
		return planner.Solve(ctx, name, p, o)
	}}
	ladder, err := s.Cover(ctx, cacheLow, cacheHigh, 200)
	if err != nil {
		return err
	}
	key := cache.Key{Collective: "allreduce", Algorithm: "rabenseifner", Ranks: 8, Planner: name, Planes: 15}
	for _, span := range ladder {
		if _, err := c.Put(key, span); err != nil {
			return err
		}
	}
	const probe = 5<<20 + 4096
	span, err := c.Get(&key, probe)
	if err != nil {
		return err
	}
	var failed error
	hit := measure(batch, func() {
		if _, err := c.Get(&key, probe); err != nil {
			failed = err
		}
	})
	f.Table.Add("hit", name, len(ladder), s.Plannings, math.Round(10*hit.ns)/10, hit.allocs)
	p, err := pose(probe)
	if err != nil {
		return err
	}
	at := measure(batch, func() {
		if _, err := span.At(probe, p); err != nil {
			failed = err
		}
	})
	f.Table.Add("plan for a size of the interval", name, math.NaN(), math.NaN(), math.Round(at.ns), at.allocs)
	return failed
}
