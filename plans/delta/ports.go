package delta

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// portOrders is how many orders of the links are tried when ports are given back.
const portOrders = 8

// minimizePorts gives back circuits that the makespan of a plan does not need: link by link, in several random orders,
// the best of which is kept. Once the context has ended it returns the plan as it is.
func (s *search) minimizePorts(ctx context.Context, plan *Plan) *Plan {
	if ctx.Err() != nil {
		return plan
	}
	results := make([]*Plan, portOrders)
	orders := make(chan int)
	var wg sync.WaitGroup
	for _, j := range s.judges {
		j.enough = plan.Makespan
		if plan.ranks != nil {
			j.begin = plan.ranks
		}
		wg.Go(func() {
			for k := range orders {
				results[k] = giveBack(ctx, j, plan, k)
			}
		})
	}
	for k := range results {
		orders <- k
	}
	close(orders)
	wg.Wait()
	best, least := plan, math.MaxInt
	for _, r := range results {
		if used, _ := s.p.red.TotalPorts(r.Circuits); used < least {
			best, least = r, used
		}
	}
	return best
}

// giveBack takes circuits from the links in the order that belongs to number k: from one link all that
// it can spare before the next, or one from each in turn.
func giveBack(ctx context.Context, j *judge, plan *Plan, k int) *Plan {
	c := slices.Clone(plan.Circuits)
	links := rand.New(rand.NewPCG(uint64(k), 1)).Perm(len(c))
	spare := func(l int) bool {
		if c[l] == 1 || ctx.Err() != nil {
			return false
		}
		c[l]--
		if m, _ := j.run(c); m > plan.Makespan*(1+equalTimes) {
			c[l]++
			return false
		}
		return true
	}
	for len(links) > 0 {
		if k%2 == 0 {
			for spare(links[0]) {
			}
			links = links[1:]
			continue
		}
		links = slices.DeleteFunc(links, func(l int) bool { return !spare(l) })
	}
	makespan, ranks := j.run(c)
	return &Plan{Circuits: c, Sharing: plan.Sharing, Makespan: makespan, ranks: slices.Clone(ranks)}
}
