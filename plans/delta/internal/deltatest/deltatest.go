package deltatest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"lightpath/plans/delta/dag"
)

// Random returns a valid graph of some pods and up to tasks tasks: work and transfers in layers,
// with NICs that transfers share, delays, and ties in time.
func Random(rng *rand.Rand, tasks int) *dag.Graph {
	pods := 2 + rng.IntN(4)
	g := &dag.Graph{Name: "random", Gbps: 100}
	for p := range pods {
		g.Pods = append(g.Pods, dag.Pod{Name: fmt.Sprintf("p%d", p), Ports: 2 * (pods/2 + 1 + rng.IntN(4))})
	}
	link := make(map[[2]int]bool)
	for i := range 1 + rng.IntN(tasks) {
		t := dag.Task{Name: fmt.Sprintf("t%d", i), From: rng.IntN(pods)}
		t.To = t.From
		if rng.IntN(3) == 0 {
			t.Duration = float64(rng.IntN(20)) * 5
		} else {
			t.To = (t.From + 1 + rng.IntN(pods-1)) % pods
			t.Flows = 1 + rng.IntN(4)
			t.Bytes = float64(rng.IntN(8)) * 2.5e5 * float64(t.Flows)
			if rng.IntN(3) > 0 {
				t.Src, t.Dst = gpus(rng, t.From, t.Flows), gpus(rng, t.To, t.Flows)
			}
			link[[2]int{min(t.From, t.To), max(t.From, t.To)}] = true
		}
		for range rng.IntN(3) {
			if i > 0 {
				g.Deps = append(g.Deps, dag.Dep{From: rng.IntN(i), To: i, Delay: float64(rng.IntN(3)) * 7})
			}
		}
		g.Tasks = append(g.Tasks, t)
	}
	for a := range pods {
		for b := a + 1; b < pods; b++ {
			if link[[2]int{a, b}] {
				g.Links = append(g.Links, dag.Link{Pods: [2]int{a, b}, Ports: [2]int{1, 1}})
			}
		}
	}
	return g
}

// gpus draws n of the 6 GPUs of a pod.
func gpus(rng *rand.Rand, pod, n int) []int {
	list := rng.Perm(6)[:n]
	for k := range list {
		list[k] += 6 * pod
	}
	return list
}

// Circuits draws a topology of g: one circuit per link, and then more until one draw per link has failed.
func Circuits(rng *rand.Rand, g *dag.Graph) dag.Circuits {
	c := slices.Repeat(dag.Circuits{1}, len(g.Links))
	for failed := 0; failed < 3 && len(c) > 0; {
		l := rng.IntN(len(c))
		c[l]++
		if g.CheckCircuits(c) != nil {
			c[l]--
			failed++
		}
	}
	return c
}
