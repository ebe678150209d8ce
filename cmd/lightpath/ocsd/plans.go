package ocsd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/controller/web"
	"lightpath/plans"
	"lightpath/plans/cache"
)

// Bounds of the plans of a cache that a page shows.
const (
	shownPlans  = 200              // the newest
	planRefresh = 10 * time.Second // reading a cache checks every digest in it
)

// cachedPlans returns the plans in the cache at dir as intervals of time, newest first, for [web.Options.Plans]. A span
// of sizes shows its smallest and its largest plan. Files that are no plans are omitted. The function may be called
// from any goroutine.
func cachedPlans(dir string) func(context.Context) ([]web.Plan, error) {
	var mu sync.Mutex
	var read time.Time
	var shown []web.Plan
	return func(context.Context) ([]web.Plan, error) {
		mu.Lock()
		defer mu.Unlock()
		if !read.IsZero() && time.Since(read) < planRefresh {
			return shown, nil
		}
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return nil, nil // no job has planned so far, and opening would create it
		}
		c, err := cache.Open(dir)
		if err != nil {
			return nil, err
		}
		list, err := c.List()
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(list, func(a, b cache.Info) int {
			return cmp.Compare(b.ModTime.UnixNano(), a.ModTime.UnixNano())
		})
		shown = nil
		for i := range list {
			if e := list[i].Entry; e != nil && len(shown) < shownPlans {
				shown = append(shown, planOf(e, e.Span.Min, e.Span.Low.Plan))
				if e.Span.Min < e.Span.Max {
					shown = append(shown, planOf(e, e.Span.Max, e.Span.High.Plan))
				}
			}
		}
		read = time.Now()
		return shown, nil
	}
}

// planOf is one plan of a cached span, that for blocks of the given bytes.
func planOf(e *cache.Entry, block int64, p *plans.Plan) web.Plan {
	k := &e.Key
	w := web.Plan{
		Name: fmt.Sprintf("%.16s-%d", e.Name(), block),
		Title: fmt.Sprintf("%s %s, %d ranks, %.0f bytes, %s", k.Collective, k.Algorithm, k.Ranks, cli.CallBytes(k, block),
			p.Planner),
		EndUS: p.CCTUS, Planes: make([][]web.Interval, len(p.Planes)),
	}
	for j, entries := range p.Planes {
		for i := range entries {
			en := &entries[i]
			w.Planes[j] = append(w.Planes[j], web.Interval{Kind: string(en.Kind), Step: en.Step, StartUS: en.StartUS,
				EndUS: en.EndUS, To: en.To})
		}
	}
	return w
}
