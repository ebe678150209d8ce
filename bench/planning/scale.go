package planning

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"lightpath/bench/figure"
	"lightpath/collectives/codesign"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
)

// scaleBytes is what a rank sends to each other rank.
const scaleBytes = 250e3

// scaleFabric is the setting of the report: 12.5 Gb/s per plane, alpha 5 us, hop 1 us, 200 us per switch.
func scaleFabric(ranks, planes int) plans.Problem {
	return plans.Problem{
		Version: plans.Version, Ranks: ranks, Planes: planes, BandwidthGbps: 12.5, AlphaUS: 5, HopUS: 1,
		ReconfigUS: 200, Circuits: plans.Simplex,
	}
}

// scaleSearch is one search of the report. "plan build" compares all algorithms of the collective; the other searches
// plan pairwise All-to-All. effort is [planner.Options.Effort].
type scaleSearch struct {
	name          string
	limit, effort time.Duration
}

// scaleReport plans All-to-All on many ranks and planes, and measures time and memory.
func scaleReport(ctx context.Context, o figure.Options) (*figure.Figure, error) {
	ranks, planes := []int{256, 1024, 4096}, []int{16, 32, 64}
	searches := []scaleSearch{
		{"swot", 2 * time.Second, 0}, {"auto", 10 * time.Second, 0}, {"plan build", 30 * time.Second, 0},
	}
	if o.Quick {
		ranks, planes = []int{16}, []int{4, 8}
		searches = []scaleSearch{
			{"swot", time.Minute, 20 * time.Millisecond}, {"auto", time.Minute, 20 * time.Millisecond},
			{"plan build", time.Minute, 20 * time.Millisecond},
		}
	}
	f := &figure.Figure{
		Title: "All-to-All, 250 KB from rank to rank, 12.5 Gb/s per plane, 200 us per switch, alpha 5 us, hop 1 us",
	}
	f.Table.Columns = []string{
		"ranks", "planes", "search", "limit_s", "took_s", "algorithm", "cct_us", "bound_us", "cct_over_bound",
		"rotation_us", "ratio", "memory_mb",
	}
	done := 0
	for _, n := range ranks {
		for _, k := range planes {
			for _, s := range searches {
				if err := s.addRow(ctx, f, n, k, o.Seed); err != nil {
					return nil, fmt.Errorf("%d ranks, %d planes, %s: %w", n, k, s.name, err)
				}
				if done++; o.Progress != nil {
					o.Progress(done, len(ranks)*len(planes)*len(searches))
				}
			}
		}
	}
	f.Notes = append(f.Notes,
		"rotation_us: the best rotation of groups of planes over the steps of pairwise, computed without a planner.",
		"memory_mb: the most memory of the process during the search, with the problem.")
	return f, nil
}

// addRow runs a search on a problem of its own.
func (s scaleSearch) addRow(ctx context.Context, f *figure.Figure, n, k int, seed int64) error {
	debug.FreeOSMemory()
	fabric, options := scaleFabric(n, k), planner.Options{TimeLimit: s.limit, Effort: s.effort, Seed: seed}
	rotation := bestRotation(&fabric)
	algorithm, cct, bound := "pairwise", 0.0, 0.0
	var took time.Duration
	memory, err := peak(func() error {
		if s.name == "plan build" {
			began := time.Now()
			c, err := codesign.Choose(ctx, codesign.Request{
				Collective: schedule.AllToAll, Ranks: n, Bytes: scaleBytes * float64(n), Fabric: &fabric, Options: options,
			})
			if err != nil {
				return err
			}
			took, algorithm, cct, bound = time.Since(began), c.Algorithm, c.Plan.CCTUS, c.Plan.LowerBoundUS
			return nil
		}
		p := fabric
		for d := 1; d < n; d++ {
			p.Steps = append(p.Steps, plans.Step{Bytes: scaleBytes, To: circuit.Shift(n, d)})
		}
		began := time.Now()
		plan, err := planner.Solve(ctx, s.name, &p, options)
		if err != nil {
			return err
		}
		took, cct, bound = time.Since(began), plan.CCTUS, plan.LowerBoundUS
		return nil
	})
	if err != nil {
		return err
	}
	f.Table.Add(n, k, s.name, s.limit.Seconds(), took.Seconds(), algorithm, cct, bound, cct/bound, rotation, cct/rotation,
		memory/1e6)
	return nil
}

// bestRotation returns the time of pairwise All-to-All if groups of planes serve the steps in turn, with the best
// number and size of groups. A planner must not be slower.
func bestRotation(p *plans.Problem) float64 {
	best := math.Inf(1)
	for m := 1; m <= p.Planes; m++ {
		step := p.AlphaUS + p.HopUS + scaleBytes*8/(1e3*p.BandwidthGbps*float64(m))
		for groups := 1; groups*m <= p.Planes; groups++ {
			now, free := 0.0, make([]float64, groups) // planes begin with the maps of their first steps
			for i := range p.Ranks - 1 {
				now = math.Max(now, free[i%groups]) + step
				free[i%groups] = now + p.ReconfigUS
			}
			best = math.Min(best, now)
		}
	}
	return best
}

// peak returns the peak memory of the process, in bytes, while work ran. It samples every 5 ms.
func peak(work func() error) (float64, error) {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	most := 0.0
	look := func() {
		metrics.Read(sample)
		most = math.Max(most, float64(sample[0].Value.Uint64()-sample[1].Value.Uint64()))
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			look()
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	err := work()
	close(end)
	<-ended
	look()
	return most, err
}
