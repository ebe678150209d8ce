package bound

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/planner/internal/model"
)

// The pricing bound weighs the two reasons for which a plan takes time. Seen from one rank
// let n_i planes serve step i, o and M_i its overhead and data on one plane, T a switch:
//
//	C = sum of D_i,  D_i >= o + M_i/n_i
//	k C = sum of (n_i o + M_i) + switches + idle time of planes
//
// A plane that serves step i has switched (T) since its last use, or has been idle in the steps since its circuit was
// last used. That is at least c_i = min(T, idle). Add the first line (1-w) times and the second w/k times, and choose
// the best n_i for each step. That gives a bound for every w in 0..1. In a window of steps that begins with free
// circuits, k first uses cost no switch. Where the rank has several peers in a step, D_i depends on the peer with the
// fewest planes, so all of them have n_i at best.

// weights are the w that are tried.
var weights = [...]float64{0.15, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1}

// pricing holds, per weight and step, the least cost of the step.
type pricing struct {
	s        *sequence
	overhead float64 // o
	reconfig float64
	idle     []float64               // of a plane that is unused, summed over the steps before each
	prev     [][]int                 // per step and peer: the last step with the same peer, or -1
	holds    [][]bool                // per step and peer: some plane begins with its circuit
	again    [len(weights)][]float64 // the only peer was wanted before, within the window
	first    [len(weights)][]float64 // it was not
	held     [len(weights)][]float64 // it was not, but may be there from the start
	dark     []float64               // a step without peer, unweighted
	sum      [len(weights)]float64   // of the window so far
}

func newPricing(m *model.Model, s *sequence, ideal []float64) *pricing {
	n, k := len(s.peers), float64(s.planes)
	pr := &pricing{
		s: s, overhead: m.DirectUS, reconfig: plans.ReconfigPortsUS(m.P, 1), dark: ideal,
		idle: make([]float64, n+1), prev: make([][]int, n), holds: make([][]bool, n),
	}
	last := map[int]int{}
	for i, peers := range s.peers {
		wait := ideal[i]
		if len(peers) > 0 && !s.priced {
			if wait = pr.reconfig; s.planes > 1 {
				wait = m.DirectUS + s.data[i]*float64(len(peers))/(k-1)
			}
		}
		pr.idle[i+1] = pr.idle[i] + wait
		pr.prev[i], pr.holds[i] = make([]int, len(peers)), make([]bool, len(peers))
		for at, peer := range peers {
			pr.prev[i][at] = -1
			if before, ok := last[peer]; ok {
				pr.prev[i][at] = before
			}
			pr.holds[i][at] = slices.Contains(s.held, peer)
		}
		for _, peer := range peers {
			last[peer] = i
		}
	}
	for w, weight := range weights {
		pr.again[w], pr.first[w], pr.held[w] = make([]float64, n), make([]float64, n), make([]float64, n)
		for i, peers := range s.peers {
			if len(peers) == 1 {
				pr.again[w][i] = pr.price(i, weight, pr.change(i, 0, 0, false))
				pr.first[w][i] = pr.price(i, weight, pr.reconfig)
				pr.held[w][i] = pr.price(i, weight, pr.change(i, 0, n, false))
			}
		}
	}
	return pr
}

// change returns the least extra cost of a use of a plane for one peer of step i. The window begins at step from, with
// free circuits or the given ones.
func (pr *pricing) change(i, peer, from int, free bool) float64 {
	switch before := pr.prev[i][peer]; {
	case before >= from:
		return math.Min(pr.reconfig, pr.idle[i]-pr.idle[before+1])
	case !free && pr.holds[i][peer]:
		return math.Min(pr.reconfig, pr.idle[i])
	}
	return pr.reconfig
}

// price returns the least weighted cost, over numbers of planes, of a step that has peers. change is the cost of
// switches or idle time before one use of a plane, summed over the peers.
func (pr *pricing) price(i int, weight, change float64) float64 {
	best := math.Inf(1)
	k, peers, o, data := float64(pr.s.planes), float64(len(pr.s.peers[i])), pr.overhead, pr.s.data[i]
	for n := 1.0; n <= k; n++ {
		us := (1-weight)*(o+data/n) + weight/k*(peers*(n*o+data)+n*change)
		if us > best {
			break // it is convex in n
		}
		best = us
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
	change := 0.0
	if peers := pr.prev[i]; len(peers) > 1 {
		for at := range peers {
			change += pr.change(i, at, from, free)
		}
	}
	best := 0.0
	for w, weight := range weights {
		switch {
		case len(pr.prev[i]) == 0:
			pr.sum[w] += (1 - weight) * pr.dark[i]
		case len(pr.prev[i]) > 1:
			pr.sum[w] += pr.price(i, weight, change)
		case pr.prev[i][0] >= from:
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
