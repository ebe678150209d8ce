package plans

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrDigest is wrapped by errors about a plan whose digest is missing or wrong.
var ErrDigest = errors.New("plans: bad digest")

// Digest returns the digest of a plan for a problem: SHA-256, in lower-case hex, over the RFC 8785 (JCS) form of the
// object
//
//	{"plan": PLAN, "problem": PROBLEM}
//
// PROBLEM is the problem file with every field present and defaults filled in, as [EncodeProblem] writes it. PLAN is
// the plan file without "digest" and without fields of later versions, as [EncodePlan] writes a plan whose Digest is
// empty. JCS sorts keys, drops white space and fixes the text of numbers. So the digest depends on values alone, and is
// the same for the compact form of a file. A plan that a later version extended has another digest here, so it is
// refused.
func Digest(problem *Problem, plan *Plan) (string, error) {
	return digest(context.Background(), problem, plan)
}

func digest(ctx context.Context, problem *Problem, plan *Plan) (string, error) {
	if err := plan.writable(); err != nil {
		return "", err
	}
	if err := problem.Validate(); err != nil {
		return "", err
	}
	h := sha256.New()
	c := &canonical{ctx: ctx, out: h, texts: map[mapKey][]byte{}}
	c.raw(`{"plan":`)
	c.plan(plan)
	c.raw(`,"problem":`)
	c.problem(problem)
	c.raw("}")
	c.flush()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Seal sets plan.Digest to its digest for problem.
func Seal(problem *Problem, plan *Plan) error {
	return SealContext(context.Background(), problem, plan)
}

// SealContext is Seal with a context, because the expanded form of a long plan has gigabytes. When ctx ends, it returns
// the context's error and leaves the plan without a digest.
func SealContext(ctx context.Context, problem *Problem, plan *Plan) (err error) {
	plan.Digest, err = digest(ctx, problem, plan)
	return err
}

// VerifyDigest returns an error that wraps [ErrDigest] if plan has no digest, or not the one that [Digest] computes.
func VerifyDigest(problem *Problem, plan *Plan) error {
	if plan.Digest == "" {
		return fmt.Errorf("%w: missing", ErrDigest)
	}
	want, err := Digest(problem, plan)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(plan.Digest)) != 1 {
		return fmt.Errorf("%w: the plan was changed, or is for another problem: it states %.80q, its content has %s",
			ErrDigest, plan.Digest, want)
	}
	return nil
}
