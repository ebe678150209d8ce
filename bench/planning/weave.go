package planning

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"lightpath/bench/figure"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/planner"
)

// weaveAlpha is the latency in the grid, in microseconds.
const weaveAlpha = 5

// weaveGrid is a collective over ranks, planes, sizes and delays.
type weaveGrid struct {
	collective schedule.Collective
	algorithm  string
	ranks      []int
	planes     []int
}

// others are the planners that weave is compared with.
var others = []string{"static", "perstep", "harvest", "swot"}

// cell is one point of a grid.
type cell struct {
	n, k, size, delay int // indexes
	best              float64
	by                string
	weave, bound      float64
}

func (c *cell) ratio() float64 { return c.weave / c.best }

// axes returns the values of a grid's four dimensions, and the effort of each search. With much less effort static and
// harvest find poor graphs on hundreds of ranks, and weave's ratio looks too good.
type axes struct {
	ranks, planes []int
	sizes, delays []float64
	effort        time.Duration
}

func (g weaveGrid) axes(quick bool) axes {
	if quick {
		return axes{[]int{8, 32}, []int{1, 2}, []float64{256 << 10, 16 << 20}, []float64{1, 20, 2000},
			2 * time.Millisecond}
	}
	return axes{
		g.ranks, g.planes,
		[]float64{64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30},
		[]float64{0.1, 5, 20, 200, 2000, 20000}, 500 * time.Millisecond,
	}
}

// cells lists the grid in order of ranks, planes, delays, sizes.
func (x *axes) cells() []cell {
	var cells []cell
	for n := range x.ranks {
		for k := range x.planes {
			for d := range x.delays {
				for m := range x.sizes {
					cells = append(cells, cell{n: n, k: k, size: m, delay: d})
				}
			}
		}
	}
	return cells
}

func (g weaveGrid) run(ctx context.Context, o figure.Options) (*figure.Figure, error) {
	x := g.axes(o.Quick)
	cells := x.cells()
	err := figure.Each(ctx, len(cells), o.Progress, func(i int) error {
		c := &cells[i]
		fabric := fabricOf(x.ranks[c.n], x.planes[c.k], weaveAlpha, x.delays[c.delay])
		p, err := figure.Collective(g.collective, g.algorithm, x.sizes[c.size], fabric)
		if err != nil {
			return err
		}
		return c.solve(ctx, p, planner.Options{Effort: x.effort, TimeLimit: time.Minute, Seed: o.Seed})
	})
	if err != nil {
		return nil, err
	}
	f := &figure.Figure{Columns: max(2, len(x.planes)),
		Title: fmt.Sprintf("weave / best of static, perstep, harvest and swot: %v %s, 800 Gb/s per node, alpha 5 us, "+
			"hop 0.5 us", g.collective, g.algorithm)}
	x.draw(f, cells)
	f.Notes = append(f.Notes, x.summary(cells),
		fmt.Sprintf("Effort of each search, the others' too: %v, counted in operations.", x.effort))
	return f, g.addTargets(ctx, f, o)
}

// draw adds a heat map for each number of ranks and of planes, and a row for each cell.
func (x *axes) draw(f *figure.Figure, cells []cell) {
	f.Table.Columns = []string{"ranks", "planes", "bytes", "reconfig_us", "best_other_us", "by", "weave_us", "ratio",
		"bound_us"}
	var z [][]float64
	for i := range cells {
		c := &cells[i]
		f.Table.Add(x.ranks[c.n], x.planes[c.k], x.sizes[c.size], x.delays[c.delay], c.best, c.by, c.weave, c.ratio(),
			c.bound)
		if c.delay == 0 && c.size == 0 { // the first of a map
			z = make([][]float64, len(x.delays))
			f.Panels = append(f.Panels, &figure.HeatMap{
				Title: fmt.Sprintf("n = %d, k = %d", x.ranks[c.n], x.planes[c.k]), Xs: x.sizes, Ys: x.delays, Z: z,
				X: figure.Axis{Label: "size", Name: figure.Binary}, Y: figure.Axis{Label: "reconfiguration delay",
					Name: figure.Micros},
				Scale: figure.Scale{Label: "ratio", Min: 0.7, Max: 1, Reverse: true,
					Name: func(v float64) string { return fmt.Sprintf("%.2f", v) }},
			})
		}
		z[c.delay] = append(z[c.delay], c.ratio())
	}
}

// solve fills a cell.
func (c *cell) solve(ctx context.Context, p *plans.Problem, o planner.Options) error {
	c.best = math.Inf(1)
	for _, name := range others {
		plan, err := planner.Solve(ctx, name, p, o)
		if errors.Is(err, planner.ErrInfeasible) {
			continue
		}
		if err != nil {
			return err
		}
		if plan.CCTUS < c.best {
			c.best, c.by = plan.CCTUS, name
		}
	}
	plan, err := planner.Solve(ctx, "weave", p, o)
	if err != nil {
		return err
	}
	c.weave, c.bound = plan.CCTUS, plan.LowerBoundUS
	return nil
}

// summary returns a sentence: how often weave gains, how much, and at which point most.
func (x *axes) summary(cells []cell) string {
	least, sum, gains, above := &cells[0], 0.0, 0, 0
	for i := range cells {
		c := &cells[i]
		sum += math.Log(c.ratio())
		if c.ratio() < least.ratio() {
			least = c
		}
		if c.ratio() < 0.99 {
			gains++
		}
		if c.ratio() > 1+1e-9 {
			above++
		}
	}
	return fmt.Sprintf("Gain of 1 %% or more at %d of %d points, geometric mean ratio %.4f, above the best of the "+
		"others at %d. Least ratio %.3f: %d ranks, %d planes, %s, %s, where %s is the best of the others.",
		gains, len(cells), math.Exp(sum/float64(len(cells))), above,
		least.ratio(), x.ranks[least.n], x.planes[least.k], figure.Binary(x.sizes[least.size]),
		figure.Micros(x.delays[least.delay]), least.by)
}

// addTargets adds the points at which an exhaustive search over shifts by powers of two reaches 0.93.
func (g weaveGrid) addTargets(ctx context.Context, f *figure.Figure, o figure.Options) error {
	if g.algorithm != "recursive-doubling" {
		return nil
	}
	effort := time.Second
	if o.Quick {
		effort = 2 * time.Millisecond
	}
	for _, at := range []struct{ bytes, delay float64 }{{16 << 20, 200}, {256 << 20, 2000}} {
		p, err := figure.Collective(g.collective, g.algorithm, at.bytes, fabricOf(32, 2, weaveAlpha, at.delay))
		if err != nil {
			return err
		}
		var c cell
		if err := c.solve(ctx, p, planner.Options{Effort: effort, TimeLimit: time.Minute, Seed: o.Seed}); err != nil {
			return err
		}
		f.Notes = append(f.Notes, fmt.Sprintf("32 ranks, 2 planes, %s, %s at effort %v: %.1f us against %.1f by %s, "+
			"ratio %.3f; exhaustive search over shifts by powers of two reaches 0.93; the goal is 0.95 or less.",
			figure.Binary(at.bytes), figure.Micros(at.delay), effort, c.weave, c.best, c.by, c.ratio()))
	}
	return nil
}
