package shim

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"lightpath/plans"
	"lightpath/plans/planner"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
)

// Options are what one call asks for beyond the arguments that NCCL defines. The zero value
// asks for nothing. All ranks must ask for the same plan and planes; a deadline is the rank's own.
type Options struct {
	// Plan begins the digest of the plan that the call shall run; it needs planes with circuits.
	Plan DigestPrefix
	// Planes has a bit for each plane that the call may use, 0 for all: those with circuits
	// where the communicator has such, else the packet planes. Where none of them is in
	// service, the call runs on packet planes.
	Planes uint64
	// Deadline is the longest that the call, and the group that it is in, may take; 0: no
	// longer than LIGHTPATH_TIMEOUT without progress. A call that misses it fails the
	// communicator on all ranks, since nobody knows how far the others have got.
	Deadline time.Duration
}

// DigestPrefix is the first hexadecimal digits of a plan's digest, up to 16.
type DigestPrefix struct {
	Bits   uint64 // the first digit in the most significant bits; 0 beyond the last
	Digits uint8
}

// String returns the digits.
func (p DigestPrefix) String() string {
	return fmt.Sprintf("%016x", p.Bits)[:min(p.Digits, 16)]
}

// names reports whether a plan's digest begins with p.
func (p DigestPrefix) names(digest string) bool { return strings.HasPrefix(digest, p.String()) }

// wish is the part of options that ranks must agree on. It is in shapes.
type wish struct {
	plan   DigestPrefix
	planes planeset.Set
}

// signature is what a wish adds to that of a call.
func (w *wish) signature() uint64 {
	h := w.plan.Bits ^ uint64(w.plan.Digits)<<1
	return bits.RotateLeft64(h, 17)*0x9e3779b97f4a7c15 ^ uint64(w.planes)
}

// String describes a wish for messages; "" for none.
func (w *wish) String() (s string) {
	if w.plan.Digits > 0 {
		s += ", plan " + w.plan.String()
	}
	if w.planes != 0 {
		s += fmt.Sprintf(", planes %#x", uint64(w.planes))
	}
	return s
}

// checkOptions validates the options of a call. Whatever it looks at is the same on all ranks.
func (c *Call) checkOptions() error {
	o := &c.Options
	if *o == (Options{}) {
		return nil
	}
	have, kind := planeset.All(len(hostOf(c.Comm).packet.Planes())), plans.Simplex
	if light := opticalOf(c.Comm); light != nil {
		have, kind = light.all(), light.template.Circuits
	}
	asked := planeset.Set(o.Planes)
	switch {
	case o.Deadline < 0:
		return c.invalid("deadline of %v", o.Deadline)
	case c.Kind.p2p() && (o.Planes != 0 || o.Plan.Digits != 0):
		return c.invalid("only collectives can ask for a plan or planes")
	case asked&^have != 0:
		return c.invalid("planes %#x are not among the communicator's %#x", o.Planes, uint64(have))
	case asked.Usable(kind) != asked:
		return c.invalid("planes %#x: interleaved planes serve in pairs", o.Planes)
	case o.Plan.Digits > 16:
		return c.invalid("a plan is named by at most 16 digits of its digest, not %d", o.Plan.Digits)
	case o.Plan.Digits > 0 && opticalOf(c.Comm) == nil:
		return c.invalid("plan %v: the communicator has no planes with circuits", o.Plan)
	}
	return nil
}

// deadlineOf returns when a group must be done that begins now: zero for whenever.
func deadlineOf(calls []Call) (t time.Time) {
	least := time.Duration(0)
	for i := range calls {
		if d := calls[i].Options.Deadline; d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	if least > 0 {
		t = time.Now().Add(least)
	}
	return t
}

// named returns the row of a call that names its plan: one that this communicator has used, the
// interim one, or one of any planner in the plan cache, if it is a plan for this very call.
func (a *arbiter) named(key planKey, use planeset.Set) (*planned, error) {
	job, err := a.job(key, use)
	if err != nil {
		return nil, err
	}
	var known []string
	try := func(plan *plans.Plan) *planned {
		if plan == nil || plans.VerifyDigest(job.problem, plan) != nil {
			return nil
		}
		known = append(known, fmt.Sprintf("%.12s (%s)", plan.Digest, plan.Planner))
		if !key.shape.wish.plan.names(plan.Digest) {
			return nil
		}
		id, err := idOf(plan)
		if err != nil {
			return nil
		}
		p := &agreedPlan{id, plan, job.problem, job.stepOf}
		a.o.remember(p)
		return &planned{best: p}
	}
	if plan, _, err := solve(interimPlanner, job.problem, planner.Options{}); err == nil {
		if p := try(plan); p != nil {
			return p, nil
		}
	}
	for _, plan := range append(a.o.issued(), job.stored(a.cache)...) {
		if p := try(plan); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("shim: %v: no such plan for this call on %d planes; known: %s: %w",
		&key.shape, use.Len(), strings.Join(known, ", "), errdefs.ErrInvalidUsage)
}

// issued returns the plans that tickets have named lately.
func (o *optical) issued() (all []*plans.Plan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, a := range o.agreed {
		if a.plan != nil && hex.EncodeToString(id[:]) == a.plan.Digest {
			all = append(all, a.plan)
		}
	}
	return all
}
