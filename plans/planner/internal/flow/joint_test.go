package flow_test

import (
	"math"
	"testing"

	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/flow"
	"lightpath/plans/planner/topology"
	"lightpath/plans/sim"
)

// TestJointPlan carries two steps by joint transmits on fixed circuits, and lets the checker
// and the simulator judge their routes and times.
func TestJointPlan(t *testing.T) {
	torus, err := topology.Torus([]int{2, 4}, nil)
	kautz, err2 := topology.Kautz(8, 3)
	expander, err3 := topology.Expander(8, 2, 1)
	for _, g := range []topology.Graph{
		graph(t, torus, err).Paired(), graph(t, kautz, err2), graph(t, expander, err3), graph(t, expander, err3).Filled(4),
	} {
		p := &plans.Problem{
			Version: 1, Ranks: 8, Planes: g.Ports(), BandwidthGbps: 100, AlphaUS: 3, HopUS: 2, ReconfigUS: 50,
			Forwarding: true, Circuits: plans.Simplex, Initial: g.Maps,
			Steps: []plans.Step{{Bytes: 1e6, To: circuit.Shift(8, 3)}, {Bytes: 2e5, Flows: allToAll(8)}},
		}
		plan := &plans.Plan{Version: 1, Planner: "flow", Initial: g.Maps, Planes: make([][]plans.Entry, g.Ports())}
		for i := range p.Steps {
			s := &p.Steps[i]
			r, _, err := flow.Best(g.Maps, s.FlowList(), flow.Options{}, p.HopUS, plans.WireUS(p, s.Bytes))
			if err != nil {
				t.Fatal(err)
			}
			routes := make([]plans.Route, len(r.Routes))
			for k, route := range r.Routes {
				routes[k] = plans.Route{Flow: route.Flow, Bytes: route.Bytes * s.Bytes, Path: route.Path}
			}
			start := plan.CCTUS
			plan.CCTUS += p.AlphaUS + r.CostUS(p.HopUS, plans.WireUS(p, s.Bytes))
			for j := range plan.Planes {
				e := plans.Entry{Kind: plans.Transmit, Step: i, Joint: "all", StartUS: start, EndUS: plan.CCTUS}
				if j == 0 {
					e.Routes = routes
				}
				plan.Planes[j] = append(plan.Planes[j], e)
			}
		}
		report, err := check.Check(p, plan)
		if err != nil {
			t.Fatalf("%s: %v", g.Name, err)
		}
		played, err := sim.Run(p, plan)
		if err != nil {
			t.Fatalf("%s: %v", g.Name, err)
		}
		if math.Abs(report.CCTUS-plan.CCTUS) > 1e-6 || math.Abs(played.CCTUS-plan.CCTUS) > 1e-6 {
			t.Errorf("%s: states %v us, checked %v, played %v", g.Name, plan.CCTUS, report.CCTUS, played.CCTUS)
		}
	}
}
