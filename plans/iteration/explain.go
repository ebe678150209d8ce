package iteration

import (
	"context"
	"fmt"

	"lightpath/internal/brief"
)

// Point is an iteration on one fabric of a sweep.
type Point struct {
	Planes     int
	ReconfigUS float64
	*Comparison
}

// Over returns how much longer the iteration plan is than the iteration on packet planes, as a fraction.
func (p *Point) Over() float64 { return p.Of(Iteration).IterationUS/p.Of(Packet).IterationUS - 1 }

// Sweep plans an iteration on fabrics with other numbers of planes, of the same bandwidth together, and other switching
// times. p is the problem on the fabric with the other costs. done, if not nil, is called after each point. When ctx
// ends, Sweep returns its error with the points so far.
func Sweep(ctx context.Context, p *Problem, of ExchangeOf, planes []int, reconfigUS []float64, o Options,
	done func(points, of int)) ([]Point, error) {
	var points []Point
	total := p.Fabric.BandwidthGbps * float64(p.Fabric.Planes)
	for _, k := range planes {
		for _, us := range reconfigUS {
			f := *p.Fabric
			f.Planes, f.BandwidthGbps, f.ReconfigUS = k, total/float64(k), us
			on, err := Pose(&f, "", p.Trace, of)
			if err != nil {
				return points, err
			}
			if on.packets, on.packetUS = p.packets, p.packetUS; on.packets != nil {
				on.choose()
			}
			c, err := Compare(ctx, on, o)
			if err != nil {
				return points, err
			}
			points = append(points, Point{k, us, c})
			if done != nil {
				done(len(points), len(planes)*len(reconfigUS))
			}
		}
	}
	return points, nil
}

// Advice says in a sentence or two what the points mean: how few planes and how slow switches are enough.
func Advice(points []Point) string {
	const near = 0.01 // of the iteration on packet planes
	if len(points) == 0 {
		return ""
	}
	packet := points[0].Of(Packet)
	text := fmt.Sprintf("An iteration takes %s, and %s of it is communication that it waits for, on packet planes of "+
		"this bandwidth.", Millis(packet.IterationUS), Millis(packet.ExposedUS))
	var fit *Point // the slowest switches, and then the fewest planes
	best := &points[0]
	for i := range points {
		p := &points[i]
		if p.Over() < best.Over() {
			best = p
		}
		if p.Over() <= near && (fit == nil || p.ReconfigUS > fit.ReconfigUS ||
			p.ReconfigUS == fit.ReconfigUS && p.Planes < fit.Planes) {
			fit = p
		}
	}
	if fit == nil {
		return text + fmt.Sprintf(" No circuits of this sweep come within 1 %% of that: the nearest are %s with "+
			"switches of %s, %.1f %% longer.", brief.Count(best.Planes, "plane"), Millis(best.ReconfigUS), 100*best.Over())
	}
	o := fit.Of(Iteration)
	text += fmt.Sprintf(" Circuits come within 1 %% of that with switches of %s or faster, on %s: %+.2f %%, where "+
		"planning each call alone takes %+.1f %%.", Millis(fit.ReconfigUS), brief.Count(fit.Planes, "plane"), 100*fit.Over(),
		100*(fit.Of(PerCall).IterationUS/packet.IterationUS-1))
	if o.SwitchingUS > 0 {
		text += fmt.Sprintf(" The planes switch for %s in an iteration, and %.0f %% of it is hidden.", Millis(o.SwitchingUS),
			100*o.Hidden())
	} else {
		text += " No plane switches then."
	}
	return text
}

// Millis writes a time in us with a unit.
func Millis(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.4g s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.4g ms", us/1e3)
	}
	return fmt.Sprintf("%.4g us", us)
}
