package planning

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/spectra"
	"lightpath/shim/log"
	"lightpath/shim/settings"
)

// maxDemands bounds the matrices whose plans the book keeps.
const maxDemands = 256

// demandKey holds the values on which the plan of a matrix depends within a communicator.
type demandKey struct {
	digest [sha256.Size]byte
	planes int
}

// plannedDemand is a matrix with its plan.
type plannedDemand struct {
	problem *plans.Problem
	plan    *plans.Plan
	refined bool        // the search for a better plan has begun
	spread  *plans.Plan // on circuits that do not depend on the matrix; nil: plain order was asked for
	settled float64     // us: the time of spread when planes begin with its circuits
}

// demands is the part of the book for matrices.
type demands struct {
	mu    sync.Mutex
	plans map[demandKey]*plannedDemand
	left  []circuit.Permutation // where the last plan leaves the planes
	took  time.Duration         // time of the last planning of a matrix; it decreases while none is planned
}

// Demand returns the plan of a matrix on planes at the given maps. If a matrix recurs, Demand improves its plan in the
// background. If planes do not move, the result may be nil: a pair of ranks has no circuit.
func (b *Book) Demand(d *Demand, maps []circuit.Permutation) (*plans.Plan, error) {
	if b.site.static() {
		plan, cct := spectra.Standing(b.site.DemandProblem(d, len(maps)), maps)
		if plan != nil {
			plan.CCTUS = cct
		}
		return plan, nil
	}
	b.demands.mu.Lock()
	defer b.demands.mu.Unlock()
	key := demandKey{d.Digest, len(maps)}
	k := b.demands.plans[key]
	if k == nil {
		if len(b.demands.plans) >= maxDemands {
			clear(b.demands.plans)
		}
		k = &plannedDemand{problem: b.site.DemandProblem(d, key.planes)}
		if err := b.planDemand(k); err != nil {
			return nil, err
		}
		b.demands.plans[key] = k
		total, busiest := d.Total()
		b.log.Info(log.Tuning, "demand of %d pairs, %d bytes, %d at the busiest port: planner %s, predicted %.1f us, "+
			"lower bound %.1f us, planned in %v",
			len(d.Pairs), total, busiest, k.plan.Planner, k.plan.CCTUS, k.plan.LowerBoundUS, b.demands.took)
	} else if !k.refined {
		k.refined = true
		go b.refine(key, k.problem)
	}
	follows := slices.EqualFunc(maps, b.demands.left, circuit.Permutation.Equal)
	plan := k.from(maps, follows)
	b.demands.left = spectra.Left(plan, maps)
	return plan, nil
}

// from returns the plan for planes at the given maps. A matrix that ranks have not sent before rarely begins with
// circuits that stand. If rounds follow each other, without other operations that move planes, spread circuits are
// taken if they are faster as soon as all rounds use them.
func (k *plannedDemand) from(maps []circuit.Permutation, follows bool) *plans.Plan {
	plan, cct := spectra.From(k.problem, k.plan, maps)
	if k.spread == nil {
		plan.CCTUS = cct
		return plan
	}
	spread, spreadUS := spectra.From(k.problem, k.spread, maps)
	own, other := cct, spreadUS
	if follows {
		other = k.settled
		if k.refined { // it recurs, so its own circuits will stand as well
			own = min(own, k.plan.CCTUS-plans.ReconfigPortsUS(k.problem, k.problem.Ranks))
		}
	}
	if other < own {
		plan, cct = spread, spreadUS
	}
	plan.CCTUS = cct
	return plan
}

// searchShare limits the search while ranks wait: at most the time that the plan may lose to the optimum, divided by
// searchShare.
const searchShare = 10

// planDemand plans a new matrix while its ranks wait. If the last planning took longer than a plan can gain, it uses
// plain order. Otherwise it searches for at most a part of the possible gain.
func (b *Book) planDemand(k *plannedDemand) error {
	plain, err := spectra.Plain(k.problem)
	if err != nil {
		return err
	}
	k.plan = plain
	cfg, took := b.site.Cfg, &b.demands.took
	if cfg.Demand.Method == settings.DemandPlain {
		k.refined = true // plain order was asked for
		return nil
	}
	if k.spread, k.settled, err = spectra.Spread(k.problem); err != nil {
		return err
	}
	switch {
	case cfg.Plan.Wait:
		k.refined = true
		return k.improve(b.ctx, spectra.Options{TimeLimit: cfg.Plan.Limit})
	case gap(plain) <= *took:
		*took -= *took / 32
		return nil
	}
	began := time.Now()
	if err := k.improve(b.ctx, spectra.Options{Mode: spectra.Fast, TimeLimit: gap(plain)}); err != nil {
		return err
	}
	*took = time.Since(began)
	if limit := gap(k.plan) / searchShare; limit > *took {
		return k.improve(b.ctx, spectra.Options{TimeLimit: limit})
	}
	return nil
}

// gap returns the time that a plan may lose to the optimum.
func gap(p *plans.Plan) time.Duration {
	return time.Duration((p.CCTUS - p.LowerBoundUS) * float64(time.Microsecond))
}

// improve replaces the plan by SPECTRA's plan, if that is faster.
func (k *plannedDemand) improve(ctx context.Context, o spectra.Options) error {
	plan, err := spectra.Solve(ctx, k.problem, o)
	switch {
	case errors.Is(err, spectra.ErrTooLong):
		return nil
	case err != nil:
		return err
	case plan.CCTUS < k.plan.CCTUS:
		k.plan = plan
	}
	return nil
}

// refine searches for a better plan of a matrix that recurs.
func (b *Book) refine(key demandKey, p *plans.Problem) {
	plan, err := spectra.Solve(b.ctx, p, spectra.Options{TimeLimit: b.site.Cfg.Plan.Limit})
	if err != nil || b.ctx.Err() != nil {
		return
	}
	b.demands.mu.Lock()
	defer b.demands.mu.Unlock()
	if k := b.demands.plans[key]; k != nil && plan.CCTUS < k.plan.CCTUS {
		b.log.Info(log.Tuning, "demand: predicted %.1f us instead of %.1f, lower bound %.1f",
			plan.CCTUS, k.plan.CCTUS, plan.LowerBoundUS)
		k.plan = plan
	}
}
