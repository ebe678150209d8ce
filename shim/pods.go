package shim

import (
	"fmt"
	"slices"

	"lightpath/collectives/schedule"
	"lightpath/plans/fabric"
)

// podsOf returns the ranks of each pod of a fabric, from those of its ports; nil unless several
// pods have ranks. Pods are in the order of the file, the ranks of a pod in their own.
func podsOf(fab *fabric.Fabric, ports []int) [][]int {
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

// arrange returns the algorithm with its parts given to ranks so that few of its flows leave a pod
// (LumosCore, A.5 and A.7): a ring goes through the pods and comes back, others have the ranks of a pod next to each
// other, and an all-to-all that nobody asked for by name sends from each pod to all others at once. It
// is a pure function of what all ranks share, as [chooseAlgorithm] is.
func arrange(coll schedule.Collective, name string, pods [][]int, override map[string]string) string {
	if pods == nil {
		return name
	}
	size := len(pods[0])
	for _, pod := range pods {
		if len(pod) != size {
			size = 0
		}
	}
	_, asked := override[coll.String()]
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
