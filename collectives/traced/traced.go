// Package traced gives the calls of an iteration's trace their steps: those of the schedule of the call's collective
// and algorithm.
//
// Layer: inside collectives, on schedule. It plans nothing.
package traced

import (
	"fmt"

	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/trace"
)

// Steps implements [iteration.Steps].
func Steps(c *trace.Call, ranks int) ([]plans.Step, error) {
	collective, err := schedule.ParseCollective(c.Collective)
	if err != nil {
		return nil, err
	}
	if ranks == 1 {
		return nil, nil
	}
	p, err := msccl.ProblemOf(collective, c.Algorithm, ranks, c.Root, c.Bytes, &plans.Problem{Ranks: ranks},
		schedule.Disjoint)
	if err != nil {
		return nil, err
	}
	return p.Steps, nil
}

// Pose returns the problem of a trace on the planes of a fabric file.
func Pose(f *fabric.Fabric, t *trace.Trace) (*iteration.Problem, error) {
	if !f.Optical() {
		return nil, fmt.Errorf("%w: the fabric has no switches", iteration.ErrProblem)
	}
	return iteration.Pose(f.Problem(), f.Digest(), t, Steps)
}
