package figure

import (
	"context"
	"fmt"

	"lightpath/plans/lumos/place"
)

// These are the sizes of the static experiment on the testbed (section 5). Three pods have 32 NPUs, 4 leaves
// and 4 spines each, and each of the 4 spines has 8 OCSes. One job with TP 8, PP 2, DP 6 uses all of them.
const (
	staticPods    = 3
	staticSpines  = 4
	staticOCSes   = 8 // of a spine
	staticServers = 12
)

// staticNeed is how many links a job needs between pods 0 and 1, 0 and 2, 1 and 2.
type staticNeed [3]int

// interleaved returns how many flows share a link at most. Interleaved wiring realizes what every pod has
// ports for (Theorem 3.1).
func (n staticNeed) interleaved() int {
	ports := staticSpines * staticOCSes
	worst := 1
	for _, pod := range []int{n[0] + n[1], n[0] + n[2], n[1] + n[2]} {
		worst = max(worst, (pod+ports-1)/ports)
	}
	return worst
}

// uniform returns the same for the uniform wiring that MinRewiring assumes: one link, both ways, between
// every spine and OCS. An OCS then joins one pair of the three pods, and the port of the third pod is unused.
// uniform tries all ways to divide the OCSes among the pairs.
func (n staticNeed) uniform() int {
	all := staticSpines * staticOCSes
	best := 0
	for a := 0; a <= all; a++ {
		for b := 0; a+b <= all; b++ {
			worst := 1
			for i, has := range []int{a, b, all - a - b} {
				switch {
				case n[i] > 0 && has == 0:
					worst = n[i] * all // not joined at all
				case n[i] > 0:
					worst = max(worst, (n[i]+has-1)/has)
				}
			}
			if best == 0 || worst < best {
				best = worst
			}
		}
	}
	return best
}

// artifactModels are the models of the paper's artifact, with the share of an iteration that their AllReduce between
// pods takes.
var artifactModels = []struct {
	name  string
	share float64
}{{"pangu", 0.0737}, {"llama-7b", 0.069}, {"gpt2-13b", 0.047}, {"llama2-7b", 0.011}, {"llama2-13b", 0.0017}}

// lumos6a shows contention with and without interleaved wiring, and its cost to the workloads.
func lumos6a(context.Context, Options) (*Figure, error) {
	shape := place.Shape{ServerGPUs: 8, Nest: []int{1, staticServers / staticPods, staticPods}}
	var servers []int32
	for s := range int32(staticServers) {
		servers = append(servers, s)
	}
	arranged, err := place.Arrange(shape, place.Grid{PP: 2, DP: 6, EP: 1}, servers,
		place.Volume{place.Replicas: 0.1, place.Forward: 0.003, place.Backward: 0.003})
	if err != nil {
		return nil, err
	}
	needs := []struct {
		name string
		need staticNeed
	}{
		{"a link per NPU", staticNeed{16, 16, 16}},
		{"TP8 PP2 DP6, arranged", between(shape, arranged.Requirement(shape))},
	}
	f := &Figure{Title: "LumosCore Fig. 6a: contention of one job in three pods of 32 NPUs",
		Table: Table{Columns: []string{"need", "links_0_1", "links_0_2", "links_1_2", "flows_per_link_interleaved",
			"flows_per_link_uniform", "model", "gain_pct"}},
		Notes: []string{"Flow level: flows that share a link take turns, and nothing else changes. Gains follow from " +
			"the share of an iteration that the AllReduce between pods takes. The paper does not print this share; here " +
			"it is the share of its artifact, at the testbed's contention."}}
	largest := 0.0
	flows := []Line{{Name: "interleaved wiring", Colour: 0}, {Name: "uniform wiring", Colour: 1}}
	gains := make([]Line, len(needs))
	for i, n := range needs {
		ours, theirs := n.need.interleaved(), n.need.uniform()
		flows[0].Y, flows[1].Y = append(flows[0].Y, float64(ours)), append(flows[1].Y, float64(theirs))
		gains[i].Name, gains[i].Colour = n.name, i+2
		for _, m := range artifactModels {
			gain := 100 * m.share * float64(theirs-ours) / (1 + m.share*float64(ours-1))
			largest = max(largest, gain)
			gains[i].Y = append(gains[i].Y, gain)
			f.Table.Add(n.name, n.need[0], n.need[1], n.need[2], ours, theirs, m.name, gain)
		}
	}
	f.Columns, f.Panels = 2, []Panel{
		&Chart{Title: "(a) contention", Lines: flows, Bars: true, Y: Axis{Label: "flows on the busiest link", Min: 0,
			Max: 2.5},
			X: groups("links that the job needs between pods", len(needs), func(i int) string { return needs[i].name })},
		&Chart{Title: "(b) throughput", Lines: gains, Bars: true, Y: Axis{Label: "gain of interleaved wiring [%]", Min: 0,
			Max: 10},
			X: groups("model", len(artifactModels), func(i int) string { return artifactModels[i].name })},
	}
	full := needs[0].need
	f.Claims = []Claim{
		{ID: "L2", What: "flows that share a link without interleaved wiring, pods in full use", Printed: 2,
			Ours: float64(full.uniform()), Unit: "x"},
		{ID: "L2", What: "flows that share a link with it", Printed: 1, Ours: float64(full.interleaved()), Unit: "x"},
		{ID: "L2", What: "largest gain in throughput", Printed: 39.5, Ours: largest, Unit: "%",
			Note: fmt.Sprintf("needs a share of 39.5 %% of the iteration; with ranks arranged the job needs %d links and "+
				"even the uniform wiring has them", needs[1].need[0]+needs[1].need[1]+needs[1].need[2])},
	}
	return f, nil
}

// groups is the axis of n groups of bars.
func groups(label string, n int, name func(i int) string) Axis {
	a := Axis{Label: label, Min: 0.5, Max: float64(n) + 0.5, Name: func(at float64) string { return name(int(at) - 1) }}
	for i := range n {
		a.At = append(a.At, float64(i+1))
	}
	return a
}

// between adds up a requirement by pairs of pods.
func between(shape place.Shape, r *place.Requirement) staticNeed {
	var n staticNeed
	for _, p := range r.Pairs {
		// 0-1, 0-2, 1-2 are numbers 0, 1, 2.
		podOf := func(leaf int32) int { return shape.Of(place.Pod, leaf*int32(shape.Nest[place.Leaf])) }
		n[podOf(p.A)+podOf(p.B)-1] += p.Links
	}
	return n
}
