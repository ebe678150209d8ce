package shim

import (
	"errors"
	"fmt"
	"os"

	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/shim/errdefs"
)

// Simulate predicts how long a group of calls takes, in microseconds, and runs nothing. Calls of
// one communicator follow one another, its sends and receives after its collectives, and those
// of different communicators go on at the same time, as in [Run].
//
// A collective on circuits takes what its plan says: the one that it ran with last, else the
// interim plan. On packet planes a step takes alpha and then the time that the bytes of its busiest
// rank take on all planes, and a one-sided call alpha and the time of its bytes, of which a signal has
// 8; for how long its sender keeps a rank waiting is not known here. The costs are those of the fabric
// file where it describes packet planes, and else those of [packetCosts].
func Simulate(calls []Call) (us float64, err error) {
	total := map[*Comm]float64{}
	for i := range calls {
		c := &calls[i]
		if err := Check(c); err != nil {
			return 0, err
		}
		if c.Kind.oneSided() {
			t, err := c.predictSided()
			if err != nil {
				return 0, err
			}
			total[c.Comm] += t
			continue
		}
		if c.Kind.p2p() || c.Count == 0 {
			continue
		}
		t, err := c.predict()
		if err != nil {
			return 0, err
		}
		total[c.Comm] += t
	}
	for c, bytes := range exchanged(calls) {
		costs, err := packetModel(c)
		if err != nil {
			return 0, err
		}
		total[c] += plans.TransmitUS(costs, 1, 1, float64(max(bytes.send, bytes.recv)))
	}
	for _, t := range total {
		us = max(us, t)
	}
	return us, nil
}

// predictSided is the time of one one-sided call, in microseconds.
func (c *Call) predictSided() (float64, error) {
	costs, err := packetModel(c.Comm)
	if err != nil {
		return 0, err
	}
	bytes := uint64(signalBytes)
	if c.Kind == CallPutSignal {
		bytes += c.Count * uint64(c.Type.Size())
	}
	return plans.TransmitUS(costs, 1, 1, float64(bytes)), nil
}

// traffic is the bytes that a rank sends and receives.
type traffic struct{ send, recv int64 }

// exchanged adds up what each communicator's sends and receives move.
func exchanged(calls []Call) map[*Comm]traffic {
	sum := map[*Comm]traffic{}
	for i := range calls {
		if c := &calls[i]; c.Kind.p2p() {
			t := sum[c.Comm]
			send, recv := c.extents()
			sum[c.Comm] = traffic{t.send + send, t.recv + recv}
		}
	}
	return sum
}

// predict is the time of one collective, in microseconds.
func (c *Call) predict() (float64, error) {
	inPlace, err := c.check()
	if err != nil {
		return 0, err
	}
	s := shapeOf(c, inPlace)
	if opticalOf(c.Comm) != nil {
		us, err := predictCircuits(c.Comm, s)
		if err == nil || !errors.Is(err, planner.ErrInfeasible) {
			return us, err
		}
	}
	return predictPacket(c.Comm, s)
}

// predictCircuits is the time that a plan predicts.
func predictCircuits(c *Comm, s shape) (float64, error) {
	c.Turn.Lock()
	var last *entry
	for k, e := range hostOf(c).programs.table {
		if e.plan != nil && planShape(k) == planShape(s) && (last == nil || e.used > last.used) {
			last = e
		}
	}
	c.Turn.Unlock()
	if last != nil {
		return last.plan.CCTUS, nil
	}
	use := opticalOf(c).all()
	if s.wish.planes != 0 {
		use = s.wish.planes
	}
	problem, _, err := opticalOf(c).pose(planShape(s), use.Len(), nil)
	if err != nil {
		return 0, err
	}
	plan, _, err := solve(interimPlanner, problem, planner.Options{})
	if err != nil {
		return 0, err
	}
	return plan.CCTUS, nil
}

// predictPacket adds up the steps of the schedule.
func predictPacket(c *Comm, s shape) (float64, error) {
	costs, err := packetModel(c)
	if err != nil {
		return 0, err
	}
	if s.wish.planes != 0 && opticalOf(c) == nil {
		costs.BandwidthGbps *= float64(s.wish.planes.Len()) / float64(len(hostOf(c).packet.Planes()))
	}
	col, err := buildSchedule(&s, c.Ranks, false, c.Cfg, nil)
	if err != nil {
		return 0, err
	}
	us, size := 0.0, int64(s.typ.Size())
	ranks := make([]traffic, c.Ranks)
	for i := range col.sched.Steps {
		clear(ranks)
		flows, busiest := col.sched.Flows(i), int64(0)
		for k := range flows {
			f := &flows[k]
			n := size * col.sched.FlowElements(f, int64(s.count))
			ranks[f.Src].send += n
			ranks[f.Dst].recv += n
			busiest = max(busiest, ranks[f.Src].send, ranks[f.Dst].recv)
		}
		us += plans.TransmitUS(costs, 1, min(len(flows), 1), float64(busiest))
	}
	return us, nil
}

// packetCosts are rough figures of one host, of a 10 Gb/s network and of a 100 Gb/s one with RDMA, for those who have not
// described their packet planes: what a step takes, in microseconds, and the rate in Gb/s of all
// planes together.
var packetCosts = map[string]struct{ alphaUS, gbps float64 }{
	"inproc": {0.5, 80}, "shm": {1, 40}, "tcp": {20, 10}, "rdma": {3, 100},
}

// packetModel is the cost model of the packet planes, all of them as one.
func packetModel(c *Comm) (*plans.Problem, error) {
	kind, err := chooseTransport(c.Table, c.Cfg)
	if err != nil {
		return nil, err
	}
	costs := packetCosts[kind]
	p := &plans.Problem{AlphaUS: costs.alphaUS, BandwidthGbps: costs.gbps}
	if c.Cfg.Fabric == "" || opticalOf(c) != nil {
		return p, nil
	}
	fab, err := fabric.Load(c.Cfg.Fabric)
	switch {
	case errors.Is(err, os.ErrNotExist): // it was there when the communicator was made
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("shim: environment variable LIGHTPATH_FABRIC: %w: %w", err, errdefs.ErrInvalidUsage)
	case !fab.Optical():
		f := fab.Problem()
		p.AlphaUS, p.HopUS, p.BandwidthGbps = f.AlphaUS, f.HopUS, 0
		for j := range fab.Planes {
			p.BandwidthGbps += float64(fab.Planes[j].Bandwidth) / 1e9
		}
	}
	return p, nil
}
