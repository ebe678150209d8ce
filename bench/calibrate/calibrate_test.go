package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/bench"
	"lightpath/bench/benchtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport/ebpf"
	"lightpath/internal/require"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
)

// costsOf returns the costs of a problem as terms count them.
func costsOf(p *plans.Problem) (c [costs]float64) {
	c[perTransmit], c[perHop], c[perByte], c[perMove] = p.AlphaUS, p.HopUS, 8e-3/p.BandwidthGbps, p.ReconfigUS
	return c
}

// TestTermsAddUp checks that the sum of a plan's terms is the completion time that the planner states.
func TestTermsAddUp(t *testing.T) {
	checked := 0
	for _, ranks := range []int{2, 3, 6, 8} {
		for _, forwarding := range []bool{false, true} {
			for _, name := range []string{"static", "perstep", "harvest", "swot"} {
				for _, algorithm := range []string{"ring", "recursive-doubling"} {
					p := allGather(t, algorithm, ranks, forwarding)
					plan, err := planner.Solve(t.Context(), name, p, planner.Options{Effort: time.Millisecond, SinglePlane: true})
					if errors.Is(err, planner.ErrInfeasible) {
						continue
					} else if err != nil {
						t.Fatal(err)
					}
					checked++
					got, err := termsOf(p, plan)
					if us := got.at(costsOf(p)); err != nil || !plans.SameUS(us, plan.CCTUS) {
						t.Errorf("%s of %s, %d ranks, forwarding %v: %v us of terms %+v, the plan has %v (%v)",
							name, algorithm, ranks, forwarding, us, got, plan.CCTUS, err)
					}
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d plans", checked)
	}
}

// allGather returns the problem of an AllGather of 1 MB on two planes.
func allGather(t *testing.T, algorithm string, ranks int, forwarding bool) *plans.Problem {
	t.Helper()
	s, err := schedule.Build(schedule.AllGather, algorithm, ranks, 0)
	require.NoError(t, err)
	p, _, err := schedule.Problem(s, 1e6, &plans.Problem{
		Version: plans.Version, Ranks: ranks, Planes: 2, BandwidthGbps: 1, AlphaUS: 70, HopUS: 11, ReconfigUS: 300,
		ReconfigPerPort: 3, Forwarding: forwarding, Circuits: plans.Simplex, Final: plans.Final{Kind: plans.FinalInitial},
	})
	require.NoError(t, err)
	return p
}

func TestTermsRefuse(t *testing.T) {
	p := &plans.Problem{Ranks: 2, Planes: 1, BandwidthGbps: 1, Steps: []plans.Step{{Bytes: 1, To: circuit.Shift(2, 1)}}}
	for _, e := range []plans.Entry{{Kind: plans.Hold}, {Kind: plans.Transmit, Joint: "a"},
		{Kind: plans.Transmit, Bytes: 1}} {
		plan := &plans.Plan{Initial: []circuit.Permutation{{circuit.Dark, circuit.Dark}}, Planes: [][]plans.Entry{{e}}}
		if _, err := termsOf(p, plan); err == nil {
			t.Errorf("%+v was accepted", e)
		}
	}
}

// synthetic returns the runs of a host with known costs. One iteration in four, and every iteration of two runs, takes
// 1.5 times as long.
func synthetic(cost [costs]float64, rng *rand.Rand) []run {
	var all []run
	for _, shape := range [][2]float64{{6, 6}, {3, 3}, {2, 5}, {2, 2}} {
		for n := 1.0; n <= 8; n *= 2 {
			r := run{workload: &workload{name: "test"}}
			r.terms.times = [costs]float64{1, shape[0], shape[1], n * 1e5, 0}
			if shape == [2]float64{2, 2} {
				r.terms.times[perMove] = 1
			}
			for range 15 {
				us := r.terms.at(cost) * (1 + 0.002*rng.NormFloat64())
				if rng.IntN(4) == 0 || len(all) == 1 || len(all) == 10 {
					us *= 1.5
				}
				r.us = append(r.us, us)
			}
			all = append(all, r)
		}
	}
	return all
}

func TestEstimateFindsTheCosts(t *testing.T) {
	want := [costs]float64{-500, 320, 45, 8e-3 / 0.1, 2400}
	runs := synthetic(want, rand.New(rand.NewPCG(3, 4)))
	var r Result
	require.NoError(t, r.estimate(runs, &runs[0], true))
	for _, c := range []struct {
		name            string
		got             *Estimate
		want, tolerance float64
	}{
		{"call", r.CallUS, -500, 100}, {"alpha", r.AlphaUS, 320, 30}, {"hop", r.HopUS, 45, 20},
		{"bandwidth", r.BandwidthGbps, 0.1, 0.0005}, {"reconfiguration", r.ReconfigUS, 2400, 60},
	} {
		e := c.got
		if math.Abs(e.Value-c.want) > c.tolerance || e.Low > e.High || e.High-e.Low > 4*c.tolerance || e.Samples != 15 {
			t.Errorf("%s: %+v, want %v", c.name, *e, c.want)
		}
	}
	if r.R2 < 0.8 || r.R2 > 1 || len(r.Lines) != len(runs) {
		t.Errorf("r2 %v of %d lines", r.R2, len(r.Lines))
	}
	// A cost that does not occur is not estimated.
	if err := r.estimate(runs[:8], &runs[0], false); err != nil || math.Abs(r.AlphaUS.Value-365) > 30 {
		t.Errorf("alpha and hop as one: %+v, %v", r.AlphaUS, err)
	}
	var rings Result
	if err := rings.estimate(runs[:8], &runs[0], false); err != nil || rings.HopUS != nil || rings.ReconfigUS != nil {
		t.Errorf("rings alone: %+v, %v", rings, err)
	}
}

func TestEstimateRefuses(t *testing.T) {
	for name, change := range map[string]func([]run){
		"no time at all": func(r []run) { clear(r[3].us) },
		"one shape": func(r []run) {
			for i := range r {
				r[i].terms = r[0].terms
			}
		},
		"larger messages take no longer": func(r []run) {
			for i := range r {
				r[i].us = r[0].us
			}
		},
	} {
		runs := synthetic([costs]float64{100, 320, 45, 0.08, 2400}, rand.New(rand.NewPCG(5, 6)))
		change(runs)
		if err := new(Result).estimate(runs, &runs[0], true); !errors.Is(err, errFit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "fabric.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const optical = `version: 1
ranks: 4
planes: [{name: p0, bandwidth: 1Gbps, ocs: o}]
ocs: [{name: o, driver: emulator, reconfig: 1ms}]
`
	hosts := strings.Replace(optical, "ranks: 4", "hosts: [{name: h1, ranks: 2}, {name: h2, ranks: 2}]", 1)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Fabric: "/nowhere"}, "no such file"},
		{Options{Fabric: file("version: 1\nranks: 4\nplanes: [{name: p0, bandwidth: 1Gbps}]\n")}, "no circuits"},
		{Options{Fabric: file(optical), Launch: []string{"ssh", "{host}"}}, "launch: the fabric has one host"},
		{Options{Fabric: file(hosts)}, "launch: missing; the fabric has 2 hosts"},
		{Options{Fabric: file(hosts), Launch: []string{"ssh", "h2"}}, `launch: "ssh h2" has no {host}`},
		{Options{Fabric: file(optical), Ranks: 5}, "5 ranks"},
		{Options{Fabric: file(optical), Ranks: 1}, "1 ranks"},
		{Options{Fabric: file(optical), Iters: 1, Rounds: 2}, "3 at least"},
		{Options{Fabric: file(optical)}, "0 iterations in 0 rounds"},
	} {
		if c.o.Launch != nil || strings.HasPrefix(c.want, "launch") {
			c.o.Iters, c.o.Rounds = 3, 1
		}
		if _, err := Run(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

// TestPredictsAFreshCollective calibrates planes in the kernel and predicts an AllReduce that was not among the runs.
// The accuracy depends on the host's other work, so only LIGHTPATH_TEST_LONG checks it, at a rate that takes longer. A
// quiet host is within 5 %.
func TestPredictsAFreshCollective(t *testing.T) {
	bin := benchtest.Bin(t)
	if err := kernel.Check(); err != nil {
		t.Skipf("planes in the kernel cannot be built here: %v", err)
	}
	rate := fabric.Rate(1e9)
	if benchtest.Long() {
		rate = longRate
	}
	f, path := fabricInKernel(t, rate)
	state, _, err := kernel.Up(f, kernel.Options{Overhead: ebpf.FrameOverhead})
	require.NoError(t, err)
	o := Options{
		Fabric: path, Lightpath: filepath.Join(bin, "lightpath"), Worker: filepath.Join(bin, "lightpath-rank"),
		Rounds: 1, Iters: 3, // the least that Run accepts
		Progress: t.Logf,
	}
	attempts := 1
	if benchtest.Long() {
		o.Rounds, o.Iters, attempts = 2, DefaultIters, 3
	}
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		r, err := Run(ctx, o)
		cancel()
		require.NoError(t, err)
		t.Logf("attempt %d: alpha %+v, hop %+v, bandwidth %+v, reconfiguration %+v, r2 %.4f, %+v",
			attempt, *r.AlphaUS, *r.HopUS, *r.BandwidthGbps, *r.ReconfigUS, r.R2, r.Check)
		if r.BandwidthGbps.Value <= 0 || r.ReconfigUS.Value < 0 || r.Check.MeasuredUS <= 0 || r.Check.PredictedUS <= 0 {
			t.Fatal("nothing was measured")
		}
		off := inaccuracy(r)
		if off == "" || !benchtest.Long() {
			break
		}
		if attempt == attempts {
			t.Fatal(off)
		}
	}
	if report, err := kernel.Inspect(state); err != nil || len(report.Problems) > 0 {
		t.Errorf("%v %q", err, report.Problems)
	}
}

// longRate is the rate of planes whose costs are checked.
const longRate = 100e6

// inaccuracy names an estimate that is more than 20 % off, "" if there is none.
func inaccuracy(r *Result) string {
	const bound = 0.2
	for what, by := range map[string]float64{
		"a fresh AllReduce": r.Check.Error(), "bandwidth": r.BandwidthGbps.Value/(longRate/1e9) - 1,
		"reconfiguration": max(0, 2000/r.ReconfigUS.Value-1),
	} {
		if math.Abs(by) > bound {
			return fmt.Sprintf("%s is off by %.1f %%", what, 100*by)
		}
	}
	return ""
}

// fabricInKernel returns a fabric of its own for planes in the kernel, which go with the test.
func fabricInKernel(t *testing.T, rate fabric.Rate) (*fabric.Fabric, string) {
	t.Helper()
	dir := t.TempDir()
	name := fmt.Sprintf("calibrate%d", os.Getpid())
	f := bench.EmulatedFabric(name, filepath.Join(dir, "ocs.sock"), 3, 1, rate, 2*time.Millisecond)
	f.Planes[0].Interface, f.Forwarding = f.Planes[0].Name, true
	path, _, err := bench.WriteFabric(dir, f, &fabric.OCSD{})
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := kernel.Down(f.Name, true); err != nil {
			t.Error(err)
		}
	})
	if f, err = fabric.Load(path); err != nil {
		t.Fatal(err)
	}
	return f, path
}
