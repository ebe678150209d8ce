package dispatch

import (
	"fmt"
	"strings"
	"testing"

	"lightpath/collectives/schedule"
	"lightpath/plans/fabric"
)

// TestArrangeCrossesPodsLess counts what goes between pods, step by step.
func TestArrangeCrossesPodsLess(t *testing.T) {
	pods := [][]int{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}
	crossing := func(coll schedule.Collective, name string) (sum, most int) {
		s, err := schedule.Build(coll, name, 16, 0)
		if err != nil {
			t.Fatal(err)
		}
		for step := range s.Steps {
			var between [4][4]int // flows from pod to pod
			for _, f := range s.Flows(step) {
				if from, to := f.Src%4, f.Dst%4; from != to {
					sum += f.Chunks
					between[from][to]++
					most = max(most, between[from][to])
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
		name := Arrange(c.coll, c.name, pods, false)
		if !strings.HasPrefix(name, c.want) {
			t.Errorf("%v %s becomes %s", c.coll, c.name, name)
		}
		before, _ := crossing(c.coll, c.name)
		after, most := crossing(c.coll, name)
		if c.coll == schedule.AllToAll && after != before || c.coll != schedule.AllToAll && after >= before ||
			c.most > 0 && most > c.most {
			t.Errorf("%v %s: %d chunks go between pods, %d by %s, in %d flows at once", c.coll, c.name,
				before, after, name, most)
		}
		if Arrange(c.coll, c.name, nil, false) != c.name {
			t.Errorf("%s changes without pods", c.name)
		}
	}
	if name := Arrange(schedule.AllToAll, "pairwise", pods, true); !strings.HasPrefix(name, "pairwise~") {
		t.Errorf("who asks for pairwise gets %s", name)
	}
	if name := Arrange(schedule.AllReduce, "ring~3.2.1.0", pods, true); name != "ring~3.2.1.0" {
		t.Errorf("who asks for seats gets %s", name)
	}
}

func TestPodsOfPorts(t *testing.T) {
	f := &fabric.Fabric{Pods: [][]int{{0, 1}, {2, 3}, {4, 5}}}
	for _, c := range []struct {
		ports []int
		want  string
	}{{[]int{5, 0, 4, 1}, "[[1 3] [0 2]]"}, {[]int{1, 0}, "[]"}, {[]int{4, 2, 0}, "[[2] [1] [0]]"}} {
		if got := fmt.Sprint(PodsOf(f, c.ports)); got != c.want {
			t.Errorf("%v: %s, want %s", c.ports, got, c.want)
		}
	}
	if PodsOf(&fabric.Fabric{}, []int{0, 1}) != nil {
		t.Error("a fabric without pods has some")
	}
}
