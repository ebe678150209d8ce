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

// Steps is an [iteration.ExchangeOf] that counts no rounds, so that it need not store the schedule, whose moves may
// take gigabytes.
func Steps(c *trace.Call, ranks int) (x iteration.Exchange, err error) {
	collective, err := schedule.ParseCollective(c.Collective)
	if err != nil || ranks == 1 {
		return x, err
	}
	p, err := msccl.ProblemOf(collective, c.Algorithm, ranks, c.Root, c.Bytes, &plans.Problem{}, schedule.Disjoint)
	if err != nil {
		return x, err
	}
	x.Steps = p.Steps
	return x, nil
}

// stepsAndRounds is an [iteration.ExchangeOf].
func stepsAndRounds(c *trace.Call, ranks int) (x iteration.Exchange, err error) {
	collective, err := schedule.ParseCollective(c.Collective)
	if err != nil || ranks == 1 {
		return x, err
	}
	s, err := msccl.Build(collective, c.Algorithm, ranks, c.Root, schedule.Disjoint)
	if err != nil {
		return x, err
	}
	p, _, err := schedule.Problem(s, c.Bytes, &plans.Problem{})
	if err != nil {
		return x, err
	}
	x.Steps = p.Steps
	x.Rounds, x.Bytes = s.PacketLoad(c.Bytes)
	return x, nil
}

// Pose returns the problem of a trace on the planes of a fabric file.
func Pose(f *fabric.Fabric, t *trace.Trace) (*iteration.Problem, error) {
	if !f.Optical() {
		return nil, fmt.Errorf("%w: the fabric has no switches", iteration.ErrProblem)
	}
	costs := packets.Of(f)
	if !costs.Stated {
		return iteration.Pose(f.Problem(), f.Digest(), t, Steps)
	}
	p, err := iteration.Pose(f.Problem(), f.Digest(), t, stepsAndRounds)
	if err == nil {
		p.UsePackets(costs)
	}
	return p, err
}
