package delta

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/internal/deltatest"
	"lightpath/plans/delta/train"
	"lightpath/plans/fabric"
)

// TestMaps: the maps of the planes together are the circuits of every pair, both ways, and no pod has
// more planes than ports.
func TestMaps(t *testing.T) {
	var graphs []*dag.Graph
	for _, name := range train.Names() {
		c, err := train.Preset(name)
		require.NoError(t, err)
		c.MicroBatches = 1
		g, err := train.Generate(c)
		require.NoError(t, err)
		graphs = append(graphs, g)
	}
	for seed := range uint64(30) {
		graphs = append(graphs, deltatest.Random(rand.New(rand.NewPCG(seed, 5)), 20))
	}
	for k, g := range graphs {
		c := deltatest.Circuits(rand.New(rand.NewPCG(uint64(k), 6)), g)
		maps, err := Maps(g, c)
		require.NoError(t, err)
		names := podNames(g)
		got := make(map[[2]string]int)
		for _, m := range maps {
			if err := m.Validate(len(names)); err != nil {
				t.Fatalf("%s: %v", g.Name, err)
			}
			for from, to := range m {
				if to >= 0 {
					got[[2]string{names[from], names[to]}]++
				}
			}
		}
		busiest := 0
		for p, used := range g.PortsUsed(c) {
			if !g.Pods[p].Image {
				busiest = max(busiest, used)
			}
		}
		if len(maps) != busiest {
			t.Errorf("%s: %d planes, the busiest pod has %d circuits", g.Name, len(maps), busiest)
		}
		for _, pair := range pairs(g, c) {
			for _, way := range [][2]string{pair.Pods, {pair.Pods[1], pair.Pods[0]}} {
				if got[way] != pair.Circuits {
					t.Errorf("%s: %v has %d circuits, not %d", g.Name, way, got[way], pair.Circuits)
				}
				delete(got, way)
			}
		}
		if len(got) > 0 {
			t.Errorf("%s: circuits that no link asked for: %v", g.Name, got)
		}
	}
}

func TestFabric(t *testing.T) {
	g := &dag.Graph{Name: "two", Gbps: 400, Pods: []dag.Pod{{Name: "a", Ports: 4}, {Name: "b", Ports: 4}}}
	ocs := fabric.OCS{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:/tmp/x.sock",
		Reconfig: time.Millisecond}
	f, err := Fabric(g, PlaneNames(4), ocs)
	if err != nil || f.Ranks != 2 || len(f.Planes) != 4 || f.Planes[0].Bandwidth != 400e9 {
		t.Fatalf("%+v %v", f, err)
	}
	for _, n := range []int{0, 65} {
		if _, err := Fabric(g, PlaneNames(n), ocs); err == nil {
			t.Errorf("%d planes are none or more than a file holds", n)
		}
	}
}

// TestReallocate checks that the last pod of the copy gets the unused ports of the first pod, in pairs.
func TestReallocate(t *testing.T) {
	g := &dag.Graph{
		Gbps: 100,
		Pods: []dag.Pod{{Name: "a", Ports: 8}, {Name: "b", Ports: 8}, {Name: "c", Ports: 8}, {Name: "i", Image: true}},
		Links: []dag.Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}, {Pods: [2]int{1, 2}, Ports: [2]int{1, 1}},
			{Pods: [2]int{2, 3}, Ports: [2]int{2, 0}}},
	}
	more := Reallocate(g, dag.Circuits{3, 4, 2}) // used: 3, 7, 8
	var ports []int
	for _, p := range more.Pods {
		ports = append(ports, p.Ports)
	}
	if want := []int{8, 8, 12, 0}; !slices.Equal(ports, want) {
		t.Errorf("ports %v, want %v", ports, want)
	}
	if g.Pods[2].Ports != 8 {
		t.Error("the job itself was changed")
	}
}
