package delta

import (
	"math"
	"slices"

	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/sim"
)

// Rounds of re-ranking: during the search, and for its result.
const (
	searchRounds = 4
	polishRounds = 32
)

// judge computes how long an iteration takes on a topology. Not safe for concurrent use.
//
// Under the rule Critical, it ranks transfers by the longest path from their start to the end, so that transfers
// without slack come first. Then it puts the transfers of the critical path that were slower than their full rate
// before all others. It runs the iteration again, as long as this helps. It also tries fair shares, so the result is
// never worse than these.
type judge struct {
	r      *sim.Runner
	fair   bool
	rounds int
	begin  []float64 // ranks of the first round
	enough float64   // a makespan that needs no further rounds
	rank   []float64
	best   []float64
	path   []int32
	links  []int32 // that delayed the critical path, in the best run
	link   []int   // directed link of every task
	least  []float64
}

func (p *Planner) newJudge(sharing Sharing) *judge {
	n := len(p.red.Tasks)
	j := &judge{
		r: p.net.NewRunner(), fair: sharing == Fair, rounds: searchRounds, begin: p.ranks, enough: p.lower,
		rank: make([]float64, n), best: make([]float64, n), link: p.red.LinkOf(), least: make([]float64, n),
	}
	for i := range p.red.Tasks {
		j.least[i] = p.red.LeastTime(&p.red.Tasks[i])
	}
	return j
}

// run returns the makespan and the ranks that gave it. The ranks are valid until the next run, and nil if shares are
// fair.
func (j *judge) run(c dag.Circuits) (makespan float64, ranks []float64) {
	makespan = j.r.Fair(c)
	late := j.delayed()
	j.links = j.delayedLinks(late, j.links[:0])
	if j.fair {
		return makespan, nil
	}
	copy(j.rank, j.begin)
	since := 0
	for range j.rounds {
		if len(late) == 0 || makespan <= j.enough*(1+equalTimes) {
			break
		}
		m := j.r.Ranked(c, j.rank)
		late = j.delayed()
		if m < makespan*(1-equalTimes) {
			makespan, ranks, since = m, j.best, 0
			copy(j.best, j.rank)
			j.links = j.delayedLinks(late, j.links[:0])
		} else if since++; since > maxFutile {
			break
		}
		j.raise(late)
	}
	return makespan, ranks
}

// maxFutile is how many rounds in a row may fail to shorten the iteration.
const maxFutile = 8

// raise puts tasks before all others and keeps their order.
func (j *judge) raise(tasks []int32) {
	top := slices.Max(j.rank)
	for _, i := range tasks {
		j.rank[i] += top + 1
	}
}

// delayed returns the transfers of a critical path of the last run that were slower than their full rate.
func (j *judge) delayed() []int32 {
	j.path = j.r.CriticalPath(j.path[:0])
	start, end := j.r.Starts(), j.r.Ends()
	kept := j.path[:0]
	for _, i := range j.path {
		if j.link[i] >= 0 && end[i]-start[i] > j.least[i]*(1+1e-6) {
			kept = append(kept, i)
		}
	}
	return kept
}

func (j *judge) delayedLinks(late, links []int32) []int32 {
	for _, i := range late {
		if l := int32(j.link[i] / 2); !slices.Contains(links, l) {
			links = append(links, l)
		}
	}
	return links
}

// criticalLinks returns a copy of the links that delayed the best run.
func (j *judge) criticalLinks() []int32 { return slices.Clone(j.links) }

// startRanks orders transfers by the longest path from their start to the end. Of two equal ones, the one that starts
// later comes first: the other has had time already.
func startRanks(g *dag.Graph) []float64 {
	head, tail := g.Heads(g.LeastTime), g.Tails(g.LeastTime)
	var order []int
	for i := range g.Tasks {
		if g.Tasks[i].Transfer() {
			order = append(order, i)
			tail[i] += g.LeastTime(&g.Tasks[i])
		}
	}
	same := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case !same(tail[a], tail[b]):
			if tail[a] < tail[b] {
				return -1
			}
			return 1
		case !same(head[a], head[b]):
			if head[a] < head[b] {
				return -1
			}
			return 1
		}
		return 0
	})
	rank := make([]float64, len(g.Tasks))
	for k, i := range order {
		rank[i] = float64(k)
		if k > 0 && same(tail[i], tail[order[k-1]]) && same(head[i], head[order[k-1]]) {
			rank[i] = rank[order[k-1]]
		}
	}
	return rank
}
