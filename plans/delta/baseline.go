package delta

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lightpath/plans/delta/dag"
)

// Baselines are the allocations that use only the traffic matrix: the bytes that every pair of pods exchanges in an
// iteration, in the larger of its two directions.
const (
	// PropAlloc is proportional to traffic: it minimizes the longest time if all transfers were concurrent
	// (SiP-ML).
	PropAlloc = "prop-alloc"
	// SqrtAlloc is proportional to the square root of traffic: it minimizes the sum of the times if
	// they were one after the other.
	SqrtAlloc = "sqrt-alloc"
	// IterHalve gives a circuit to the pair with the greatest weight, and halves that (TopoOpt).
	IterHalve = "iter-halve"
)

// Baselines returns their names.
func Baselines() []string { return []string{PropAlloc, SqrtAlloc, IterHalve} }

// Baseline allocates circuits by the traffic matrix: every link gets one, then the link with the greatest weight
// that has ports at both ends gets another, until none has.
func (p *Planner) Baseline(name string) (dag.Circuits, error) {
	var weight func(volume float64, circuits int) float64
	switch name {
	case PropAlloc:
		weight = func(v float64, n int) float64 { return v / float64(n) }
	case SqrtAlloc:
		weight = func(v float64, n int) float64 { return math.Sqrt(v) / float64(n) }
	case IterHalve:
		weight = func(v float64, n int) float64 { return math.Ldexp(v, -n) }
	default:
		return nil, fmt.Errorf("there is no baseline %q; there are %s", name, strings.Join(Baselines(), ", "))
	}
	a := newAllocation(p.red.Graph)
	for {
		best, most := -1, math.Inf(-1)
		for l, n := range a.c {
			if w := weight(p.volumes[l], n); w > most && a.room(l) {
				best, most = l, w
			}
		}
		if best < 0 {
			return a.c, nil
		}
		a.add(best, 1)
	}
}

// linkVolumes returns the traffic matrix.
func linkVolumes(g *dag.Graph) []float64 {
	way := make([]float64, 2*len(g.Links))
	for i, l := range g.LinkOf() {
		if l >= 0 {
			way[l] += g.Tasks[i].Bytes
		}
	}
	v := make([]float64, len(g.Links))
	for l := range v {
		v[l] = max(way[2*l], way[2*l+1])
	}
	return v
}

// allocation is a topology and its free ports.
type allocation struct {
	g    *dag.Graph
	c    dag.Circuits
	free []int // by pod
}

// newAllocation returns the topology with one circuit on every link.
func newAllocation(g *dag.Graph) *allocation {
	c := slices.Repeat(dag.Circuits{1}, len(g.Links))
	return allocated(g, c)
}

// allocated takes over c.
func allocated(g *dag.Graph, c dag.Circuits) *allocation {
	a := &allocation{g: g, c: c, free: g.PortsUsed(c)}
	for p := range a.free {
		a.free[p] = g.Pods[p].Ports - a.free[p]
	}
	return a
}

// room reports whether link l can have another circuit.
func (a *allocation) room(l int) bool {
	k := &a.g.Links[l]
	return a.free[k.Pods[0]] >= k.Ports[0] && a.free[k.Pods[1]] >= k.Ports[1]
}

func (a *allocation) add(l, n int) {
	k := &a.g.Links[l]
	a.c[l] += n
	a.free[k.Pods[0]] -= n * k.Ports[0]
	a.free[k.Pods[1]] -= n * k.Ports[1]
}
