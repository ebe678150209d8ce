package packets

import (
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// shifts is a problem of steps of so many bytes, each with circuits of its own, on 4 ranks.
func shifts(bytes ...float64) *plans.Problem {
	p := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 2, BandwidthGbps: 8, AlphaUS: 10, HopUS: 5,
		ReconfigUS: 200, Circuits: plans.Simplex}
	for i, b := range bytes {
		p.Steps = append(p.Steps, plans.Step{Bytes: b, To: circuit.Shift(4, 1+i%3)})
	}
	return p
}

func TestLeast(t *testing.T) {
	c := Costs{AgreeUS: 100}
	if fixed, wire := c.least(shifts(1000, 0, 500)); fixed != 130 || wire != 0.75 {
		t.Errorf("%v and %v us, want 130 and 0.75", fixed, wire)
	}
}

// TestRough: rough costs are for small calls only.
func TestRough(t *testing.T) {
	c := Costs{AgreeUS: 85}
	for name, k := range map[string]struct {
		us, bytes float64
		want      bool
	}{
		"few bytes":                  {2, 10, true},
		"as long as the fixed costs": {2, 200e3, true},
		"large":                      {2, 201e3, false},
		"packet planes are slower":   {120, 1e3, false},
		"packet planes are as slow":  {100.5, 1e3, false},
		"no bytes":                   {0, 0, true},
	} {
		if got := c.Faster(k.us, shifts(k.bytes), 2); got != k.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	free := shifts(10)
	free.AlphaUS, free.HopUS = 0, 0
	if c.AgreeUS = 0; c.Faster(0.001, free, 2) {
		t.Error("a fabric that states no costs: packet planes")
	}
}

// TestStated: stated costs are compared with the plan, which switches inside the call, whatever planes are in service
// and wherever they stand.
func TestStated(t *testing.T) {
	c := Costs{AgreeUS: 50, Stated: true}
	three := shifts(1e6, 1e6, 1e6) // on two planes: 1.5 ms of bytes, and a switch that hides behind a step
	plan, err := plan(three)
	require.NoError(t, err)
	if plan.CCTUS < 1545 {
		t.Fatalf("the plan takes %v us", plan.CCTUS)
	}
	onOne := *three
	onOne.Planes, onOne.Initial = 1, []circuit.Permutation{circuit.AllDark(4)}
	onOne.Final = plans.Final{Kind: plans.FinalInitial}
	circuits := plan.CCTUS + 50
	for us, want := range map[float64]bool{1: true, (circuits - 1) / 0.95: true, (circuits + 1) / 0.95: false} {
		for _, p := range []*plans.Problem{three, &onOne} {
			if got := c.Faster(us, p, 2); got != want {
				t.Errorf("%v us against %v on %d planes: %v", us, circuits, p.Planes, got)
			}
		}
	}
}

// TestDemand: a matrix is compared with its plan, which is never slower than plain order.
func TestDemand(t *testing.T) {
	c := Costs{Stated: true}
	p := shifts()
	p.Demand = [][]float64{{0, 9e5, 0, 0}, {0, 0, 1e5, 0}, {0, 0, 0, 9e5}, {8e5, 0, 0, 0}}
	limit := demandUS(p, 1000)
	if limit < 200+450 || limit > 200+900 {
		t.Fatalf("the matrix takes %v us", limit)
	}
	for us, want := range map[float64]bool{1: true, (limit - 1) / 0.95: true, (limit + 1) / 0.95: false, 1e6: false} {
		if got := c.Faster(us, p, 2); got != want {
			t.Errorf("%v us against %v: %v", us, limit, got)
		}
	}
}

// TestAlwaysFaster: packet planes that begin sooner than circuits switch, and carry as much, win for every matrix. A
// rate that is a little lower counts as equal.
func TestAlwaysFaster(t *testing.T) {
	p := shifts()
	p.Demand = [][]float64{{0, 9e5, 0, 0}, {0, 0, 1e5, 0}, {0, 0, 0, 9e5}, {8e5, 0, 0, 0}}
	for c, want := range map[Costs]bool{
		{AlphaUS: 249, Gbps: 16, AgreeUS: 50, Stated: true}: true, {AlphaUS: 250, Gbps: 16, AgreeUS: 50, Stated: true}: false,
		{AlphaUS: 1, Gbps: 15.3, Stated: true}: true, {AlphaUS: 1, Gbps: 15.1, Stated: true}: false,
		{AlphaUS: 1, Gbps: 16}: false,
	} {
		if got := c.AlwaysFaster(p.ReconfigUS, float64(p.Planes)*p.BandwidthGbps); got != want {
			t.Errorf("%+v: %v", c, got)
		}
		for _, scale := range []float64{1e-3, 1, 1e3} {
			q := *p
			q.Demand = nil
			for _, row := range p.Demand {
				q.Demand = append(q.Demand, nil)
				for _, v := range row {
					q.Demand[len(q.Demand)-1] = append(q.Demand[len(q.Demand)-1], v*scale)
				}
			}
			if c.Gbps = max(c.Gbps, 16); want && !c.Faster(c.US(1, plans.Busiest(q.Demand)), &q, q.Planes) {
				t.Errorf("%+v: a matrix times %v is faster on circuits", c, scale)
			}
		}
	}
}

func TestOf(t *testing.T) {
	f := &fabric.Fabric{Costs: fabric.Costs{Barrier: time.Millisecond},
		Packets: fabric.PacketPlanes{Bandwidth: 2e8, Alpha: 3 * time.Millisecond}}
	c := Of(f)
	if c != (Costs{AlphaUS: 3000, Gbps: 0.2, Stated: true, AgreeUS: 1000}) || Of(&fabric.Fabric{}).Stated ||
		Of(nil).Stated {
		t.Errorf("%+v", c)
	}
	if got := c.US(2, 1e6); got != 6000+40_000 {
		t.Errorf("%v us", got)
	}
}
