package shim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"lightpath/plans"
	"lightpath/plans/spectra"
	"lightpath/shim/log"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
	"lightpath/shim/ticket"
)

// maxDemands bounds the matrices that the leader knows plans of.
const maxDemands = 256

// demandKey is what the plan of a matrix depends on within a communicator.
type demandKey struct {
	digest [sha256.Size]byte
	planes int
}

// plannedDemand is a matrix that the leader knows a plan of.
type plannedDemand struct {
	problem *plans.Problem
	plan    *plans.Plan
	refined bool // the anytime search has begun
}

// refinement is what that search returns.
type refinement struct {
	key  demandKey
	plan *plans.Plan
}

// demandPlans is the arbiter's table of them.
type demandPlans struct {
	table map[demandKey]*plannedDemand
	took  time.Duration // planning a matrix, the last time; what is not tried fades
	done  chan refinement
}

func newDemandPlans() demandPlans {
	return demandPlans{table: map[demandKey]*plannedDemand{}, done: make(chan refinement, 4)}
}

// planDemand returns the plan of a matrix on the planes that are held, from where they stand.
func (a *arbiter) planDemand(d *planning.Demand) (*plans.Plan, error) {
	key := demandKey{d.Digest, a.held.Len()}
	known := a.demands.table[key]
	if known == nil {
		if len(a.demands.table) >= maxDemands {
			clear(a.demands.table)
		}
		known = &plannedDemand{problem: a.o.DemandProblem(d, key.planes)}
		if err := a.planNow(known); err != nil {
			return nil, err
		}
		a.demands.table[key] = known
		total, busiest := d.Total()
		a.o.c.Log.Info(log.Tuning, "demand of %d pairs, %d bytes, %d at the busiest port: planner %s, predicted %.1f us, lower bound %.1f us, planned in %v",
			len(d.Pairs), total, busiest, known.plan.Planner, known.plan.CCTUS, known.plan.LowerBoundUS, a.demands.took)
	} else if !known.refined {
		known.refined = true
		go a.refine(key, known.problem)
	}
	plan, cct := spectra.From(known.problem, known.plan, a.o.maps(a.held))
	plan.CCTUS = cct
	return plan, nil
}

// searchShare is the part of what a plan may still be from the optimum that the leader searches for
// a better one while the ranks wait.
const searchShare = 10

// planNow plans a matrix that has not been seen, in the way of the call that has it: so it takes
// plain order where planning, as it went the last time, lasts longer than there is to gain, and
// searches on for no more than a part of that.
func (a *arbiter) planNow(k *plannedDemand) error {
	plain, err := spectra.Plain(k.problem)
	if err != nil {
		return err
	}
	k.plan = plain
	cfg := a.o.c.Cfg
	switch {
	case cfg.Demand == settings.DemandPlain:
		k.refined = true // plain is what was asked for
		return nil
	case cfg.PlanWait:
		k.refined = true
		return k.better(a.ctx, spectra.Options{TimeLimit: cfg.PlanLimit})
	case gap(plain) <= a.demands.took:
		a.demands.took -= a.demands.took / 32
		return nil
	}
	began := time.Now()
	if err := k.better(a.ctx, spectra.Options{Mode: spectra.Fast, TimeLimit: gap(plain)}); err != nil {
		return err
	}
	a.demands.took = time.Since(began)
	if limit := gap(k.plan) / searchShare; limit > a.demands.took {
		return k.better(a.ctx, spectra.Options{TimeLimit: limit})
	}
	return nil
}

// gap is by how much a plan is known to be longer than the best.
func gap(p *plans.Plan) time.Duration {
	return time.Duration((p.CCTUS - p.LowerBoundUS) * float64(time.Microsecond))
}

// better takes over what SPECTRA finds, where it is faster than the plan in force.
func (k *plannedDemand) better(ctx context.Context, o spectra.Options) error {
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

// refine searches for a better plan of a matrix that has come again.
func (a *arbiter) refine(key demandKey, p *plans.Problem) {
	plan, err := spectra.Solve(a.ctx, p, spectra.Options{TimeLimit: a.o.c.Cfg.PlanLimit})
	if err != nil || errors.Is(a.ctx.Err(), context.Canceled) {
		return
	}
	select {
	case a.demands.done <- refinement{key, plan}:
	case <-a.l.stop:
	}
}

// adoptRefinement takes over a plan that is better than the one in force.
func (a *arbiter) adoptRefinement(r refinement) {
	if k := a.demands.table[r.key]; k != nil && r.plan.CCTUS < k.plan.CCTUS {
		a.o.c.Log.Info(log.Tuning, "demand: predicted %.1f us instead of %.1f, lower bound %.1f", r.plan.CCTUS, k.plan.CCTUS, r.plan.LowerBoundUS)
		k.plan = r.plan
	}
}

// roundBody encodes the answer to a round on circuits: the length of the ticket u32, the ticket,
// the plan.
func (a *arbiter) roundBody(plan *plans.Plan) []byte {
	holds := ticket.AppendHolds(nil, a.o.Ranks, plan)
	a.t.Flags, a.t.Version, a.t.Plan, a.t.Use, a.t.Start = 0, a.ver, sha256.Sum256(holds), a.held, 0
	a.stand(a.held)
	a.buf = ticket.Append(a.buf[:0], &a.t)
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(a.buf)))
	return append(append(body, a.buf...), holds...)
}
