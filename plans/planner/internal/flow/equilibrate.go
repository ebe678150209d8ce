package flow

import "math"

// equilibrium improves a routing of a block by path equilibration. The length of a circuit is the exponential of beta
// times its load (the lengths of Garg and Koenemann). Every flow moves from its longer paths to its shortest one by
// Newton's rule. beta rises until the lengths prove the routing good. Garg and Koenemann, and Fleischer, take fixed
// small steps, whose number grows with the inverse square of the gap. This method keeps few paths per flow and needs
// some tens of rounds of shortest-path trees for a gap of 1e-2.
type equilibrium struct {
	s     *solver
	b     *block
	limit int
	flows [][]lane
	load  []float64 // class -> load of its edges
	beta  float64
	ref   float64 // load whose length is 1 per capacity
	y     []float64
	diff  []float64 // class -> scratch of shift
}

// lane is a path in use.
type lane struct {
	edges []int32 // last one first
	class []int32
	share float64
	cost  float64
}

// The schedule, tuned on Kautz graphs and expanders of 64 ranks: beta, in units of 1 / largest
// load, begins soft and grows by a factor whenever the routing is close to its equilibrium.
const (
	softBeta = 8
	growBeta = 2
	sweeps   = 9   // between two searches for new paths
	relax    = 1.3 // over-relaxation of Newton's steps
)

func newEquilibrium(s *solver, b *block, limit int) *equilibrium {
	k := len(b.capacity)
	q := &equilibrium{s: s, b: b, limit: limit}
	q.load, q.y, q.diff = make([]float64, k), make([]float64, k), make([]float64, k)
	q.flows = make([][]lane, b.flows)
	for f, flow := range b.parts {
		for _, p := range flow {
			q.addLane(f, p.edges, p.share)
		}
	}
	return q
}

func (q *equilibrium) addLane(f int, edges []int32, share float64) {
	class := make([]int32, len(edges))
	for i, e := range edges {
		class[i] = q.s.w.class[e]
		q.load[class[i]] += share
	}
	q.flows[f] = append(q.flows[f], lane{edges, class, share, 0})
}

// solve runs until theta is within epsilon of the bound or the work spent reaches until.
// The block holds the result.
func (q *equilibrium) solve(epsilon float64, until int64) {
	hardest := 4 * math.Log(float64(len(q.y)+1)) / epsilon
	soft := float64(softBeta)
	for q.s.spent() < until {
		most := q.most()
		q.beta = soft / most
		q.price(most)
		slack := q.search()
		q.offer(epsilon)
		if q.b.gap() <= epsilon {
			return
		}
		if slack < 2/soft && soft < hardest {
			soft *= growBeta
		}
		for range sweeps {
			for f := range q.flows {
				q.equalize(f)
			}
		}
		q.drop()
	}
	q.offer(0)
}

// most returns the largest load.
func (q *equilibrium) most() float64 {
	most := 0.0
	for c, x := range q.load {
		most = math.Max(most, x/q.b.capacity[c])
	}
	return most
}

// price sets all lengths.
func (q *equilibrium) price(most float64) {
	q.ref = most
	for c := range q.y {
		q.priceClass(int32(c))
	}
}

func (q *equilibrium) priceClass(c int32) {
	k := q.b.capacity[c]
	q.y[c] = math.Exp(math.Min(600, q.beta*(q.load[c]/k-q.ref))) / k
}

// search bounds theta by the lengths. It adds the shortest path of every flow that uses no path as short. It returns
// how much longer the routing is than shortest paths.
func (q *equilibrium) search() (slack float64) {
	total, used := 0.0, 0.0
	for c, y := range q.y {
		used += q.load[c] * y
	}
	q.s.trees(q.b, q.y, q.limit, func(f int, dst int32) {
		d := q.s.paths.dist[dst]
		total += d
		least := math.Inf(1)
		for i := range q.flows[f] {
			least = math.Min(least, q.cost(&q.flows[f][i]))
		}
		if d < least*(1-1e-6) {
			q.addLane(f, q.s.paths.path(dst, nil), 0)
		}
	})
	q.b.prove(q.y, total)
	return used/total - 1
}

func (q *equilibrium) cost(l *lane) float64 {
	l.cost = 0
	for _, c := range l.class {
		l.cost += q.y[c]
	}
	q.s.work += int64(len(l.class))
	return l.cost
}

// equalize moves a flow towards its shortest path in use.
func (q *equilibrium) equalize(f int) {
	lanes := q.flows[f]
	if len(lanes) < 2 {
		return
	}
	best := 0
	for i := range lanes {
		if q.cost(&lanes[i]) < lanes[best].cost {
			best = i
		}
	}
	for i := range lanes {
		if i != best && lanes[i].share > 0 {
			q.shift(&lanes[i], &lanes[best])
		}
	}
}

// shift moves somewhat more than Newton's step from one lane to another: far from the balance of two exponentials that
// step is too short, and near it flows affect each other.
func (q *equilibrium) shift(from, to *lane) {
	gain := q.cost(from) - q.cost(to)
	if gain <= 0 {
		return
	}
	for _, c := range from.class {
		q.diff[c]--
	}
	for _, c := range to.class {
		q.diff[c]++
	}
	curve := 0.0
	for _, l := range [2]*lane{from, to} {
		for _, c := range l.class {
			if d := q.diff[c]; d != 0 {
				// A class that both lanes use twice over is counted twice: a smaller step.
				curve += d * d * q.y[c] * q.beta / q.b.capacity[c]
			}
		}
	}
	step := from.share
	if curve > 0 {
		step = math.Min(step, relax*gain/curve)
	}
	from.share -= step
	to.share += step
	for _, l := range [2]*lane{from, to} {
		for _, c := range l.class {
			if d := q.diff[c]; d != 0 {
				q.load[c] += d * step
				q.diff[c] = 0
				q.priceClass(c)
				q.s.work += 16
			}
		}
	}
}

// drop removes lanes without flow.
func (q *equilibrium) drop() {
	for f, lanes := range q.flows {
		kept := lanes[:0]
		for _, l := range lanes {
			if l.share > 0 {
				kept = append(kept, l)
			}
		}
		q.flows[f] = kept
	}
}

// offer gives the routing to the block if it is better by a part of epsilon.
func (q *equilibrium) offer(epsilon float64) {
	if 1/q.most() < q.b.theta*(1+epsilon/4) {
		return
	}
	parts := make([][]part, len(q.flows))
	for f, lanes := range q.flows {
		for _, l := range lanes {
			if l.share > 0 {
				parts[f] = append(parts[f], part{l.edges, l.share})
			}
		}
	}
	q.b.take(q.s.w, parts)
}
