package shim

import (
	"errors"
	"fmt"
	"os"

	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/onesided"
	"lightpath/shim/planning"
	"lightpath/shim/session"
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
func Simulate(group []calls.Call) (us float64, err error) {
	total := map[*comm.Core]float64{}
	for i := range group {
		c := &group[i]
		if err := calls.Check(c); err != nil {
			return 0, err
		}
		if c.Kind.OneSided() {
			t, err := predictSided(c)
			if err != nil {
				return 0, err
			}
			total[c.Comm] += t
			continue
		}
		if c.Kind.P2P() || c.Count == 0 {
			continue
		}
		t, err := predict(c)
		if err != nil {
			return 0, err
		}
		total[c.Comm] += t
	}
	for c, bytes := range exchanged(group) {
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
func predictSided(c *calls.Call) (float64, error) {
	costs, err := packetModel(c.Comm)
	if err != nil {
		return 0, err
	}
	bytes := uint64(onesided.SignalBytes)
	if c.Kind == calls.PutSignal {
		bytes += c.Count * uint64(c.Type.Size())
	}
	return plans.TransmitUS(costs, 1, 1, float64(bytes)), nil
}

// traffic is the bytes that a rank sends and receives.
type traffic struct{ send, recv int64 }

// exchanged adds up what each communicator's sends and receives move.
func exchanged(calls []calls.Call) map[*comm.Core]traffic {
	sum := map[*comm.Core]traffic{}
	for i := range calls {
		if c := &calls[i]; c.Kind.P2P() {
			t := sum[c.Comm]
			send, recv := c.Extents()
			sum[c.Comm] = traffic{t.send + send, t.recv + recv}
		}
	}
	return sum
}

// predict is the time of one collective, in microseconds.
func predict(c *calls.Call) (float64, error) {
	s := calls.ShapeOf(c)
	if circuits.Of(c.Comm) != nil {
		us, err := predictCircuits(c.Comm, s)
		if err == nil || !errors.Is(err, planner.ErrInfeasible) {
			return us, err
		}
	}
	return predictPacket(c.Comm, s)
}

// predictCircuits is the time that a plan predicts.
func predictCircuits(c *comm.Core, s calls.Shape) (float64, error) {
	c.Turn.Lock()
	var last *dispatch.Entry
	for k, e := range session.Of(c).Programs.Programs {
		if e.Plan != nil && planning.ShapeOf(k.Shape) == planning.ShapeOf(s) && (last == nil || e.Used > last.Used) {
			last = e
		}
	}
	c.Turn.Unlock()
	if last != nil {
		return last.Plan.CCTUS, nil
	}
	use := circuits.Of(c).All()
	if s.Request.Planes != 0 {
		use = s.Request.Planes
	}
	problem, _, err := circuits.Of(c).Pose(planning.ShapeOf(s), use.Len(), nil)
	if err != nil {
		return 0, err
	}
	plan, _, err := circuits.Of(c).Interim(problem)
	if err != nil {
		return 0, err
	}
	return plan.CCTUS, nil
}

// predictPacket adds up the steps of the schedule.
func predictPacket(c *comm.Core, s calls.Shape) (float64, error) {
	costs, err := packetModel(c)
	if err != nil {
		return 0, err
	}
	if s.Request.Planes != 0 && circuits.Of(c) == nil {
		costs.BandwidthGbps *= float64(s.Request.Planes.Len()) / float64(len(session.Of(c).Packet.Planes()))
	}
	col, err := dispatch.BuildSchedule(&s, c.Ranks, false, c.Cfg, nil)
	if err != nil {
		return 0, err
	}
	us, size := 0.0, int64(s.Type.Size())
	ranks := make([]traffic, c.Ranks)
	for i := range col.Steps.Steps {
		clear(ranks)
		flows, busiest := col.Steps.Flows(i), int64(0)
		for k := range flows {
			f := &flows[k]
			n := size * col.Steps.FlowElements(f, int64(s.Count))
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
func packetModel(c *comm.Core) (*plans.Problem, error) {
	kind, err := endpoints.ChooseTransport(c.Table, c.Cfg)
	if err != nil {
		return nil, err
	}
	costs := packetCosts[kind]
	p := &plans.Problem{AlphaUS: costs.alphaUS, BandwidthGbps: costs.gbps}
	if c.Cfg.Fabric == "" || circuits.Of(c) != nil {
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
