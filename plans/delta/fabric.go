package delta

import (
	"fmt"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/delta/dag"
	"lightpath/plans/fabric"
	"lightpath/plans/internal/matching"
)

// Pair is how many circuits join two pods of the job.
type Pair struct {
	Pods     [2]string `json:"pods"`
	Circuits int       `json:"circuits"`
}

// pairs returns the circuits of every pair of pods of the whole job, copies included.
func pairs(g *dag.Graph, c dag.Circuits) []Pair {
	var list []Pair
	for l, k := range g.Links {
		copies := k.Copies
		if copies == nil {
			copies = [][2]string{{g.Pods[k.Pods[0]].Name, g.Pods[k.Pods[1]].Name}}
		}
		for _, pods := range copies {
			list = append(list, Pair{pods, c[l]})
		}
	}
	return list
}

// podNames returns the names of the pods of the whole job, copy by copy.
func podNames(g *dag.Graph) []string {
	var names []string
	for k := 0; ; k++ {
		before := len(names)
		for p := range g.Pods {
			switch pod := &g.Pods[p]; {
			case pod.Image:
			case k < len(pod.Copies):
				names = append(names, pod.Copies[k])
			case k == 0 && pod.Copies == nil:
				names = append(names, pod.Name)
			}
		}
		if len(names) == before {
			return names
		}
	}
}

// Maps returns the topology as maps of planes between the pods of podNames: plane j joins the j-th port of every pod,
// which begins at most one circuit and ends at most one. There are as many planes as the busiest pod has circuits. The
// two directions of a circuit may be on different planes.
func Maps(g *dag.Graph, c dag.Circuits) ([]circuit.Permutation, error) {
	names := podNames(g)
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	var edges [][2]int
	for _, pair := range pairs(g, c) {
		a, known := index[pair.Pods[0]]
		b, too := index[pair.Pods[1]]
		if !known || !too || a == b {
			return nil, fmt.Errorf("%w: links: no two pods are called %q and %q", dag.ErrGraph, pair.Pods[0], pair.Pods[1])
		}
		for range pair.Circuits {
			edges = append(edges, [2]int{a, b}, [2]int{b, a})
		}
	}
	colour, planes := matching.Color(len(names), edges)
	maps := make([]circuit.Permutation, planes)
	for j := range maps {
		maps[j] = circuit.AllDark(len(names))
	}
	for e, j := range colour {
		maps[j][edges[e][0]] = edges[e][1]
	}
	return maps, nil
}

// Fabric returns the fabric file for planning collectives between pods: a rank per pod, and planes of the given names,
// one per port, on the given switch.
func Fabric(g *dag.Graph, planes []string, ocs fabric.OCS) (*fabric.Fabric, error) {
	if n := len(planes); n < 1 || n > plans.MaxPlanes {
		return nil, fmt.Errorf("the busiest pod has %d circuits, and a fabric file holds 1 to %d planes", n, plans.MaxPlanes)
	}
	f := &fabric.Fabric{
		Version: fabric.Version, Name: g.Name, Ranks: len(podNames(g)), OCS: []fabric.OCS{ocs},
		Circuits: plans.Simplex, Forwarding: true,
	}
	for _, name := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: name, Bandwidth: fabric.Rate(g.Gbps * 1e9), OCS: ocs.Name})
	}
	return f, nil
}

// PlaneNames returns the usual names of planes in files.
func PlaneNames(planes int) []string {
	names := make([]string, planes)
	for j := range names {
		names[j] = fmt.Sprintf("port%d", j)
	}
	return names
}

// Reallocate returns the job with the ports that another copy of it leaves unused on topology c. The other
// copy has the pods of a replica in reverse order. Each pod has its own ports and the unused ports of its
// counterpart, in pairs.
func Reallocate(g *dag.Graph, c dag.Circuits) *dag.Graph {
	var pods []int
	for p := range g.Pods {
		if !g.Pods[p].Image {
			pods = append(pods, p)
		}
	}
	used := g.PortsUsed(c)
	more := *g
	more.Pods = append([]dag.Pod{}, g.Pods...)
	for k, p := range pods {
		other := pods[len(pods)-1-k]
		more.Pods[p].Ports += (g.Pods[other].Ports - used[other]) &^ 1
	}
	return &more
}
