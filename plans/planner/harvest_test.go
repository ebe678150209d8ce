package planner_test

import (
	"math"
	"testing"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
)

// eval5 is the setting of HARVEST's Figure 5: 800 Gb/s ports, alpha and delta 500 ns.
func eval5(ranks, ports int, reconfig float64) *plans.Problem {
	p := fabric(ranks, ports, 0.5, reconfig)
	p.BandwidthGbps, p.HopUS, p.Forwarding = 800, 0.5, true
	return p
}

// ringUS is the time of p on one ring that never changes, HARVEST's static topology in one
// dimension.
func ringUS(p *plans.Problem) float64 {
	us := 0.0
	ring := circuit.Shift(p.Ranks, 1)
	for i := range p.Steps {
		hops, load, err := plans.Load(ring, p.Steps[i].FlowList())
		if err != nil {
			panic(err)
		}
		us += plans.TransmitUS(p, hops, load, p.Steps[i].Bytes)
	}
	return us
}

func cct(t *testing.T, name string, p *plans.Problem, o planner.Options) float64 {
	t.Helper()
	return solve(t, name, p, o).CCTUS
}

// decades4 are message sizes from 1 KB to 1 GB.
func decades4() (sizes []float64) {
	for b := 1e3; b <= 1.1e9; b *= 4 {
		sizes = append(sizes, b)
	}
	return sizes
}

// TestHarvestClosedForm: how far HARVEST is ahead of the better of static and BvN follows
// from Equation 8 for the reduce-scatter half of recursive doubling on one port. At 64
// ranks it is the paper's "about 2x", at 5 us; smaller fabrics gain less, so the paper's Figure
// 5 shows 64 ranks.
func TestHarvestClosedForm(t *testing.T) {
	for _, tc := range []struct {
		ranks int
		ratio float64
	}{{8, 1.13}, {16, 1.25}, {32, 1.52}, {64, 2.06}} {
		most := 0.0
		for _, reconfig := range []float64{0.1, 0.5, 1, 5, 10, 50, 100} {
			for _, bytes := range decades4() {
				p := cyclicDoubling(eval5(tc.ranks, 1, reconfig), bytes)
				other := math.Min(ringUS(p), cct(t, "perstep", p, planner.Options{}))
				most = math.Max(most, other/cct(t, "harvest", p, planner.Options{}))
			}
		}
		if math.Abs(most-tc.ratio) > 0.01 {
			t.Errorf("%d ranks: %.3f, want %.2f", tc.ranks, most, tc.ratio)
		}
	}
}

// swing is the reduce-scatter half of Swing in one dimension: even ranks go by rho(i) =
// 1 - 2 + 4 - ... (i+1 terms), odd ranks by its negative.
func swing(p *plans.Problem, bytes float64) *plans.Problem {
	rho, term := 0, 1
	for d := 1; d < p.Ranks; d *= 2 {
		rho, term, bytes = rho+term, -2*term, bytes/2
		to := circuit.Shift(p.Ranks, rho)
		back := circuit.Shift(p.Ranks, -rho)
		for r := 1; r < p.Ranks; r += 2 {
			to[r] = back[r]
		}
		p.Steps = append(p.Steps, plans.Step{Bytes: bytes, To: to})
	}
	return p
}

// TestHarvestFigure5 pins the ratios of the cost model where the paper prints some for 64
// ranks. Those at 1 GB agree: recursive doubling and total exchange on one port, Swing, whose
// peers are on both sides, on two. The others are of a packet-level simulation and do not
// follow from the model: over static it gives less than is printed, over BvN about twice as
// much.
func TestHarvestFigure5(t *testing.T) {
	small := []float64{1e3, 4e3, 16e3, 64e3, 256e3}
	large := []float64{1e9}
	for _, tc := range []struct {
		name     string
		steps    func(p *plans.Problem, bytes float64) *plans.Problem
		ports    int
		over     string
		bytes    []float64
		reconfig float64
		printed  float64
		model    float64 // mean over the sizes
	}{
		{"doubling", cyclicDoubling, 1, "static", large, 10, 3.0, 3.03},
		{"swing", swing, 2, "static", large, 10, 3.1, 3.11},
		{"exchange", pairwise, 1, "static", large, 10, 30, 30.02},
		{"doubling", cyclicDoubling, 1, "static", small, 0.01, 6.4, 5.50},
		{"swing", swing, 2, "static", small, 0.01, 4.7, 3.94},
		{"exchange", pairwise, 1, "static", small, 0.01, 20, 16.51},
		{"doubling", cyclicDoubling, 1, "perstep", small, 100, 7.3, 13.94},
		{"swing", swing, 2, "perstep", small, 100, 10, 20.28},
		{"exchange", pairwise, 1, "perstep", small, 100, 5.3, 9.58},
		{"doubling", cyclicDoubling, 1, "perstep", []float64{4e6}, 100, 3.0, 3.53},
		{"exchange", pairwise, 1, "perstep", []float64{4e6}, 100, 4.8, 5.10},
	} {
		mean := 0.0
		for _, bytes := range tc.bytes {
			p := tc.steps(eval5(64, tc.ports, tc.reconfig), bytes)
			ring := *p // the ring, in both directions on two ports
			ring.Initial = []circuit.Permutation{circuit.Shift(64, 1), circuit.Shift(64, 63)}[:tc.ports]
			if tc.over == "perstep" {
				ring.Initial = nil
			}
			one := planner.Options{SinglePlane: true}
			mean += cct(t, tc.over, &ring, one) / cct(t, "harvest", p, one) / float64(len(tc.bytes))
		}
		if math.Abs(mean-tc.model) > 0.01*tc.model {
			t.Errorf("%s over %s at %v us, %v: %.3f, want %.2f (printed: %v)", tc.name, tc.over, tc.reconfig, tc.bytes, mean,
				tc.model, tc.printed)
		}
	}
}

// TestHarvestTransition: total exchange up to 16 MB beats both static and BvN for switches
// of 10 to 100 us, as the paper says.
func TestHarvestTransition(t *testing.T) {
	for _, reconfig := range []float64{10, 100} {
		for bytes := 1e3; bytes <= 17e6; bytes *= 4 {
			p := pairwise(eval5(64, 1, reconfig), bytes)
			other := math.Min(cct(t, "static", p, planner.Options{}), cct(t, "perstep", p, planner.Options{}))
			if got := other / cct(t, "harvest", p, planner.Options{}); got < 1.02 {
				t.Errorf("%v bytes at %v us: %.3f", bytes, reconfig, got)
			}
		}
	}
}

// TestHarvestTable1 is the paper's Table 1: recursive doubling on 8 ranks, on the circuits of steps 1, 1 1 1, 1 2 2 and
// 1 2 3. The flows cross the busiest circuit 4, 2 and 1 at a time, over as many hops.
func TestHarvestTable1(t *testing.T) {
	p := cyclicDoubling(eval5(8, 1, 1), 1e6)
	for _, tc := range []struct{ circuits, most int }{{0, 4}, {1, 2}, {2, 1}} {
		hops, load, err := plans.Load(p.Steps[tc.circuits].To, p.Steps[2].FlowList())
		if err != nil || hops != tc.most || load != tc.most {
			t.Errorf("step 3 on the circuits of step %d: %d hops, load %d, %v; want %d", tc.circuits+1, hops, load, err, tc.most)
		}
	}
}

func hasJoint(plan *plans.Plan) bool {
	for _, entries := range plan.Planes {
		for _, e := range entries {
			if e.Joint != "" {
				return true
			}
		}
	}
	return false
}

// torusNeighbours is a step in which every rank of a square torus sends to all its
// neighbours at once.
func torusNeighbours(side int, bytes float64) plans.Step {
	s := plans.Step{Bytes: bytes}
	for r := range side * side {
		x, y := r%side, r/side
		for _, d := range [][2]int{{x + 1, y}, {x + side - 1, y}, {x, y + 1}, {x, y + side - 1}} {
			s.Flows = append(s.Flows, [2]int{r, d[0]%side + side*(d[1]%side)})
		}
	}
	return s
}

// TestJoint: planes that form one graph serve what none of them serves alone, and planes on
// their own what the steps ask for at once.
func TestJoint(t *testing.T) {
	o := planner.Options{TimeLimit: time.Minute, Effort: 200 * time.Millisecond}
	ring := eval5(8, 2, 1e6) // both directions of a ring share the flows halfway round
	ring.Initial = []circuit.Permutation{circuit.Shift(8, 1), circuit.Shift(8, 7)}
	direct(ring, mb)
	for _, name := range []string{"static", "harvest"} {
		plan := solve(t, name, ring, o)
		// Distances 1, 2, 3, 4, 3, 2, 1 of 8 ranks on 16 circuits.
		if want := 0.5 + 4*0.5 + plans.WireUS(ring, 8*mb); !plans.SameUS(plan.CCTUS, want) || !hasJoint(plan) {
			t.Errorf("%s on a ring: %v us, want %v, joint", name, plan.CCTUS, want)
		}
		alone := o
		alone.SinglePlane = true
		if plan := solve(t, name, ring, alone); hasJoint(plan) {
			t.Errorf("%s: a joint transmit although none is allowed", name)
		}
	}
	torus := eval5(16, 4, 1e6)
	torus.Steps = []plans.Step{torusNeighbours(4, mb), torusNeighbours(4, 2*mb)}
	for _, name := range []string{"static", "harvest"} {
		if plan := solve(t, name, torus, o); !plans.SameUS(plan.CCTUS, 2*1+plans.WireUS(torus, 3*mb)) {
			t.Errorf("%s on a torus: %v us", name, plan.CCTUS)
		}
	}
	duplex := eval5(6, 2, 1e6) // a ring of matchings: no plane alone leads two hops
	duplex.Circuits = plans.Duplex
	duplex.Steps = []plans.Step{{Bytes: mb, To: circuit.Xor(6, 1)},
		{Bytes: mb, To: circuit.Permutation{3, 4, 5, 0, 1, 2}}, {Bytes: mb, To: circuit.Permutation{5, 2, 1, 4, 3, 0}}}
	if plan := solve(t, "harvest", duplex, o); !hasJoint(plan) {
		t.Errorf("duplex: %v us, nothing joint", plan.CCTUS)
	}
	duplex.Steps = []plans.Step{{Bytes: mb, To: circuit.Shift(6, 1)}} // no involution, but a ring of two
	if plan := solve(t, "harvest", duplex, o); !plans.SameUS(plan.CCTUS, 1+plans.WireUS(duplex, mb)) {
		t.Errorf("a shift on duplex planes: %v us", plan.CCTUS)
	}
}

// TestHarvestSplits: a step that is no permutation is served whole, in rounds, or one
// matching after the other, whichever is best.
func TestHarvestSplits(t *testing.T) {
	for _, tc := range []struct {
		name      string
		reconfig  float64
		forward   bool
		us        float64
		reconfigs int
	}{
		{"cheap switches", 1, true, 2*(1+10) + 1, 2},
		{"no forwarding", 1000, false, 2*(1+10) + 1000, 2},
		// a rank's destinations are 1, 1, 2 and 2 hops away, on 2 circuits
		{"dear switches", 1000, true, 0.5 + 2*0.5 + 30, 0},
	} {
		p := eval5(5, 2, tc.reconfig)
		p.Forwarding = tc.forward
		plan := solve(t, "harvest", direct(p, mb), planner.Options{TimeLimit: time.Minute, Effort: 200 * time.Millisecond})
		if plan.CCTUS > tc.us+1e-6 || reconfigurations(plan) != tc.reconfigs {
			t.Errorf("%s: %v us with %d reconfigurations, want %v with %d", tc.name, plan.CCTUS, reconfigurations(plan), tc.us,
				tc.reconfigs)
		}
	}
}
