package shim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans/fabric"
	lumos "lightpath/plans/lumos/place"
)

// TestPodsOracle runs every collective on circuits of fabrics with pods that are not in the order of
// ranks: the bytes are right, and the ranks of a pod are next to each other in what they ran.
func TestPodsOracle(t *testing.T) {
	for _, pods := range [][][]int{{{0, 2}, {1, 3}}, {{0, 3}, {1, 4}, {2, 5}}, {{4, 0, 2}, {1, 3}}} {
		n := 0
		for _, pod := range pods {
			n += len(pod)
		}
		t.Run(fmt.Sprint(pods), func(t *testing.T) {
			server := lightFabric(t, n, 2, func(f *fabric.Fabric) { f.Pods = pods })
			t.Setenv("LIGHTPATH_PLANNER", "perstep")
			t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			rng := rand.New(rand.NewPCG(uint64(n), 7))
			w := newWorld(t, n)
			for _, size := range []int{1, 1023, 5003} {
				for _, kind := range oracleKinds {
					k := collectiveCase{
						kind: kind, typ: datatype.Type(rng.IntN(int(datatype.NumTypes))), op: datatype.Op(rng.IntN(int(datatype.NumOps))),
						root: rng.IntN(n), count: size, inPlace: rng.IntN(3) == 0,
					}
					if err := k.run(w, rng); err != nil {
						t.Fatalf("%v: %v", k, err)
					}
				}
			}
			noLosses(t, server)
			seated := 0
			for s, e := range hostOf(w.comms[0]).programs.table {
				if e.plan != nil && !strings.Contains(e.algorithm, "~") {
					t.Errorf("%v ran %s, as if there were no pods", s.kind, e.algorithm)
				}
				if e.plan != nil {
					seated++
				}
			}
			if seated == 0 {
				t.Error("nothing ran on circuits")
			}
		})
	}
}

// TestArrangeCrossesPodsLess counts what goes between pods, step by step.
func TestArrangeCrossesPodsLess(t *testing.T) {
	pods := [][]int{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}
	crossing := func(coll schedule.Collective, name string) (sum, most int) {
		s, err := schedule.Build(coll, name, 16, 0)
		if err != nil {
			t.Fatal(err)
		}
		for step := range s.Steps {
			flows := s.Flows(step)
			for _, f := range flows {
				if f.Src%4 != f.Dst%4 {
					sum += f.Chunks
				}
			}
			for _, row := range lumos.Crossings(pods, func(yield func(int, int) bool) {
				for _, f := range flows {
					if !yield(f.Src, f.Dst) {
						return
					}
				}
			}) {
				for _, n := range row {
					most = max(most, n)
				}
			}
		}
		return sum, most
	}
	for _, c := range []struct {
		coll schedule.Collective
		name string
		want string
		most int // flows from a pod to another one in a step; 0: as many as there are
	}{
		{schedule.AllReduce, "ring", "ring~", 1},
		{schedule.AllReduce, "ring:2", "ring:2~", 2},
		{schedule.AllReduce, "hierarchical-ring", "hierarchical-ring:4~", 4},
		{schedule.AllReduce, "rabenseifner", "rabenseifner~", 0},
		{schedule.AllGather, "ring", "ring~", 1},
		{schedule.ReduceScatter, "rabenseifner", "rabenseifner~", 0},
		{schedule.AllToAll, "pairwise", "pod-pairwise:4~", 1},
		{schedule.Broadcast, "binomial", "binomial~", 0},
	} {
		name := arrange(c.coll, c.name, pods, nil)
		if !strings.HasPrefix(name, c.want) {
			t.Errorf("%v %s becomes %s", c.coll, c.name, name)
		}
		before, _ := crossing(c.coll, c.name)
		after, most := crossing(c.coll, name)
		if c.coll == schedule.AllToAll && after != before || c.coll != schedule.AllToAll && after >= before || c.most > 0 && most > c.most {
			t.Errorf("%v %s: %d chunks go between pods, %d by %s, in %d flows at once", c.coll, c.name, before, after, name, most)
		}
		if arrange(c.coll, c.name, nil, nil) != c.name {
			t.Errorf("%s changes without pods", c.name)
		}
	}
	asked := map[string]string{"alltoall": "pairwise", "allreduce": "ring~0.2.1-15"}
	if name := arrange(schedule.AllToAll, "pairwise", pods, asked); !strings.HasPrefix(name, "pairwise~") {
		t.Errorf("who asks for pairwise gets %s", name)
	}
	if name := arrange(schedule.AllReduce, "ring~3.2.1.0", pods, asked); name != "ring~3.2.1.0" {
		t.Errorf("who asks for seats gets %s", name)
	}
}

func TestPodsOfPorts(t *testing.T) {
	f := &fabric.Fabric{Pods: [][]int{{0, 1}, {2, 3}, {4, 5}}}
	for _, c := range []struct {
		ports []int
		want  string
	}{{[]int{5, 0, 4, 1}, "[[1 3] [0 2]]"}, {[]int{1, 0}, "[]"}, {[]int{4, 2, 0}, "[[2] [1] [0]]"}} {
		if got := fmt.Sprint(podsOf(f, c.ports)); got != c.want {
			t.Errorf("%v: %s, want %s", c.ports, got, c.want)
		}
	}
	if podsOf(&fabric.Fabric{}, []int{0, 1}) != nil {
		t.Error("a fabric without pods has some")
	}
}
