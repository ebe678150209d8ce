package planner

import (
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// The pricing bound weighs the two reasons for which a plan takes time. Seen from one rank
// let n_i planes serve step i, o and M_i its overhead and data on one plane, T a switch:
//
//	C = sum of D_i,  D_i >= o + M_i/n_i
//	k C = sum of (n_i o + M_i) + switches + idle time of planes
//
// and a plane that serves step i has, since its last use, switched (T) or been idle in the
// steps since the circuit was last wanted: at least c_i = min(T, idle). Adding the first
// line (1-w) times and the second w/k times and choosing the best n_i for each step gives
// a bound for every w in 0..1. In a window of steps that begins with free circuits, k first
// uses cost no switch.

// weights are the w that are tried.
var weights = [...]float64{0.15, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1}

// pricing holds, per weight and step, the least cost of the step.
type pricing struct {
	reconfig float64
	prev     []int                   // per step: the last one with the same peer, or -1
	again    [len(weights)][]float64 // the circuit was wanted before, within the window
	first    [len(weights)][]float64 // it was not
	held     [len(weights)][]float64 // it was not, but may be there from the start
	holds    []bool                  // per step: some plane begins with its circuit
	sum      [len(weights)]float64   // of the window so far
}

func newPricing(m *model, s *sequence) *pricing {
	n, k := len(m.steps), float64(m.p.Planes)
	pr := &pricing{reconfig: plans.ReconfigPortsUS(m.p, 1), prev: make([]int, n), holds: make([]bool, n)}
	idle := make([]float64, n+1) // of a plane that is unused, summed over the steps before
	last := map[int]int{}
	for i := range m.steps {
		pr.prev[i] = -1
		wait := m.ideal(&m.steps[i])
		if peer := s.peer[i]; peer != circuit.Dark {
			if at, ok := last[peer]; ok {
				pr.prev[i] = at
			}
			last[peer] = i
			if wait = pr.reconfig; k > 1 {
				wait = m.direct + m.usPerByte*m.steps[i].bytes/(k-1)
			}
			for _, have := range s.held {
				pr.holds[i] = pr.holds[i] || have == peer
			}
		}
		idle[i+1] = idle[i] + wait
	}
	for w, weight := range weights {
		pr.again[w], pr.first[w], pr.held[w] = make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range m.steps {
			if s.peer[i] == circuit.Dark {
				least := (1 - weight) * m.ideal(&m.steps[i])
				pr.again[w][i], pr.first[w][i], pr.held[w][i] = least, least, least
				continue
			}
			data := m.usPerByte * m.steps[i].bytes
			pr.again[w][i] = m.stepPrice(weight, data, math.Min(pr.reconfig, idle[i]-idle[pr.prev[i]+1]))
			pr.first[w][i] = m.stepPrice(weight, data, pr.reconfig)
			pr.held[w][i] = pr.first[w][i]
			if pr.holds[i] {
				pr.held[w][i] = m.stepPrice(weight, data, math.Min(pr.reconfig, idle[i]))
			}
		}
	}
	return pr
}

// stepPrice is the least over numbers of planes of a step's weighted cost, each use
// costing change for a switch or idle time before it.
func (m *model) stepPrice(weight, data, change float64) float64 {
	best := math.Inf(1)
	k := float64(m.p.Planes)
	for n := 1.0; n <= k; n++ {
		best = math.Min(best, (m.direct*n+data)*(weight/k+(1-weight)/n)+n*change*weight/k)
	}
	return best
}

// reset begins a window.
func (pr *pricing) reset(free, blocked bool) {
	for w, weight := range weights {
		pr.sum[w] = 0
		switch {
		case free:
			pr.sum[w] = -weight * pr.reconfig
		case blocked: // nothing can be sent before the first switch
			pr.sum[w] = (1 - weight) * pr.reconfig
		}
	}
}

// add extends the window that began at step from by step i and returns its best bound.
func (pr *pricing) add(from, i int, free bool) float64 {
	best := 0.0
	for w := range weights {
		switch {
		case pr.prev[i] >= from:
			pr.sum[w] += pr.again[w][i]
		case free:
			pr.sum[w] += pr.first[w][i]
		default:
			pr.sum[w] += pr.held[w][i]
		}
		best = math.Max(best, pr.sum[w])
	}
	return best
}
