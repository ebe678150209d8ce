// Package traced gives the calls of an iteration's trace their steps, and their rounds on packet planes: those of the
// schedule of the call's collective and algorithm.
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
	"lightpath/plans/packets"
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

// Exchange implements [iteration.Exchange].
func Exchange(c *trace.Call, ranks int) (rounds int, bytes float64, err error) {
	collective, err := schedule.ParseCollective(c.Collective)
	if err != nil || ranks == 1 {
		return 0, 0, err
	}
	s, err := msccl.Build(collective, c.Algorithm, ranks, c.Root, schedule.Disjoint)
	if err != nil {
		return 0, 0, err
	}
	rounds, chunks := s.Packets()
	return rounds, s.FlowBytes(&schedule.Flow{Chunks: chunks}, c.Bytes), nil
}

// Pose returns the problem of a trace on the planes of a fabric file.
func Pose(f *fabric.Fabric, t *trace.Trace) (*iteration.Problem, error) {
	if !f.Optical() {
		return nil, fmt.Errorf("%w: the fabric has no switches", iteration.ErrProblem)
	}
	p, err := iteration.Pose(f.Problem(), f.Digest(), t, Steps)
	if costs := packets.Of(f); err == nil && costs.Stated {
		err = p.UsePackets(costs, Exchange)
	}
	return p, err
}
