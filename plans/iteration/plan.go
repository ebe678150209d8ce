package iteration

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/iteration/trace"
)

// Version is the version of the file of an iteration plan.
const Version = 1

// ErrPlan is wrapped by every error about text that is no iteration plan.
var ErrPlan = errors.New("bad iteration plan")

// ErrDigest is wrapped by errors about a plan whose digest is missing or wrong, or that was made for another fabric.
var ErrDigest = errors.New("iteration plan: bad digest")

// Plan is a planned iteration, which repeats: the plan of each call and the switches between calls. Times are in us
// from the begin of the iteration. It is not changed after it is sealed, and is then safe for concurrent use.
type Plan struct {
	IterationUS  float64
	ComputeUS    float64 // the iteration if no call took time
	LowerBoundUS float64 // proven, of IterationUS
	Fabric       string  // digest of the fabric file; "" where there was none
	Trace        *trace.Trace
	Plans        []*plans.Plan // the different plans of calls; each states its initial circuits
	Calls        []Placed      // in the order of grants; each call on packet planes before the calls that wait for it
	Digest       string        // "" where the file carries none
}

// Placed is a call of the trace with its plan and times. A call on packet planes has the plan [OnPackets].
type Placed struct {
	Call, Plan int
	StartUS    float64
	EndUS      float64
	// Switches are the reconfigurations of the gap before the call, in the order of planes, each to the circuits on which
	// the plan of the call begins. Those of the first call start in the iteration before: their times may be negative.
	Switches []Switch
}

// Switch is a reconfiguration of one plane between two calls.
type Switch struct {
	Plane          int
	StartUS, EndUS float64
}

// ExposedUS returns the time of the iteration that is not computation.
func (p *Plan) ExposedUS() float64 { return p.IterationUS - p.ComputeUS }

// PlanAt returns the plan of the call at a position in the order of grants, nil for a call on packet planes.
func (p *Plan) PlanAt(at int) *plans.Plan {
	if p.Calls[at].Plan == OnPackets {
		return nil
	}
	return p.Plans[p.Calls[at].Plan]
}

// Final returns the circuits that a plan leaves: its initial ones, or the target of the last reconfiguration.
func Final(p *plans.Plan) []circuit.Permutation {
	maps := append([]circuit.Permutation(nil), p.Initial...)
	for j, entries := range p.Planes {
		for i := range entries {
			if entries[i].Kind == plans.Reconfigure {
				maps[j] = entries[i].To
			}
		}
	}
	return maps
}

// Seal sets the digest: SHA-256, in lower-case hex, of the file without the digest.
func (p *Plan) Seal() error {
	p.Digest = ""
	text, err := p.Encode()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	p.Digest = hex.EncodeToString(sum[:])
	return nil
}

// VerifyDigest returns an error that wraps [ErrDigest] if the plan has no digest, or not that of its content.
func (p *Plan) VerifyDigest() error {
	if p.Digest == "" {
		return fmt.Errorf("%w: missing", ErrDigest)
	}
	again := *p
	if err := again.Seal(); err != nil {
		return err
	}
	if again.Digest != p.Digest {
		return fmt.Errorf("%w: the file says %.80q, its content has %s", ErrDigest, p.Digest, again.Digest)
	}
	return nil
}
