package dispatch

import (
	"fmt"
	"slices"

	"lightpath/collectives/schedule"
	"lightpath/plans/fabric"
)

// PodsOf returns the ranks of each pod of a fabric, from the ranks' ports. It returns nil unless several pods have
// ranks. Pods are in the order of the fabric file, the ranks of a pod in their own order.
func PodsOf(fab *fabric.Fabric, ports []int) [][]int {
	var pods [][]int
	for _, pod := range fab.Pods {
		var ranks []int
		for r, p := range ports {
			if slices.Contains(pod, p) {
				ranks = append(ranks, r)
			}
		}
		if ranks != nil {
			pods = append(pods, ranks)
		}
	}
	if len(pods) < 2 {
		return nil
	}
	return pods
}

// Arrange assigns the parts of an algorithm to ranks so that few flows leave a pod (LumosCore, A.5 and A.7), and
// returns the name of the result. A ring goes through the pods and comes back. Other algorithms have the ranks of a pod
// next to each other. An all-to-all sends from each pod to all others at once, unless the user asked for the algorithm.
// Arrange is a pure function of facts that all ranks share, as [Choose] is.
func Arrange(coll schedule.Collective, name string, pods [][]int, asked bool) string {
	if pods == nil {
		return name
	}
	size := len(pods[0])
	for _, pod := range pods {
		if len(pod) != size {
			size = 0
		}
	}
	switch {
	case name == "hierarchical-ring" && size > 0:
		name = fmt.Sprintf("%s:%d", name, size)
	case coll == schedule.AllToAll && name == "pairwise" && !asked && size > 1:
		name = fmt.Sprintf("pod-pairwise:%d", size)
	}
	if name == "ring" || name == "ring:2" {
		return schedule.Seated(name, schedule.FoldPods(pods))
	}
	return schedule.Seated(name, slices.Concat(pods...))
}
