package plans

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrDigest is wrapped by errors about a plan whose digest is missing or wrong.
var ErrDigest = errors.New("plans: bad digest")

// Digest returns the digest of a plan for a problem: SHA-256, in lower-case hex, over the
// RFC 8785 (JCS) form of the object
//
//	{"plan": PLAN, "problem": PROBLEM}
//
// where PROBLEM is the problem file with every field present, defaults filled in (what
// [EncodeProblem] writes) and PLAN the plan file without "digest" and without fields of
// later versions (what [EncodePlan] writes of a plan whose Digest is empty). JCS sorts
// keys, drops white space and fixes the text of numbers, so the digest depends on values
// alone. A plan that a later version extended has another digest there, and is refused
// here rather than misread.
func Digest(problem *Problem, plan *Plan) (string, error) {
	bare := *plan
	bare.Digest = ""
	planText, err := EncodePlan(&bare)
	if err != nil {
		return "", err
	}
	problemText, err := EncodeProblem(problem)
	if err != nil {
		return "", err
	}
	canonical, err := canonical(digestInput(planText, problemText))
	if err != nil {
		return "", fmt.Errorf("plans: canonical form: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

func digestInput(plan, problem []byte) []byte {
	return bytes.Join([][]byte{[]byte(`{"plan":`), plan, []byte(`,"problem":`), problem, []byte(`}`)}, nil)
}

// Seal sets plan.Digest to its digest for problem.
func Seal(problem *Problem, plan *Plan) error {
	digest, err := Digest(problem, plan)
	if err != nil {
		return err
	}
	plan.Digest = digest
	return nil
}

// VerifyDigest returns an error that wraps [ErrDigest] where plan carries no digest or not
// the one that [Digest] computes.
func VerifyDigest(problem *Problem, plan *Plan) error {
	if plan.Digest == "" {
		return fmt.Errorf("%w: missing", ErrDigest)
	}
	want, err := Digest(problem, plan)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(plan.Digest)) != 1 {
		return fmt.Errorf("%w: plan says %.80q, its content has %s", ErrDigest, plan.Digest, want)
	}
	return nil
}
