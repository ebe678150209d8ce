// Package predict predicts how long a group of calls takes, for ncclGroupSimulateEnd. It reads the state of
// communicators and runs nothing.
//
// A collective on circuits takes the time of its plan: the plan that it last ran with, else the interim plan. On packet
// planes a step takes alpha and the transfer time of its busiest rank's bytes on all planes. A one-sided call takes
// alpha and the transfer time of its bytes; a signal has 8. The time that a wait loses to a late sender is not known
// here. The costs are those of a fabric file without circuits, else those of [dispatch.PacketCosts].
//
// Layer 6: it may import session, circuits and the rooms below them, no path.
package predict

import (
	"errors"
	"fmt"
	"os"

	"lightpath/plans/fabric"
	"lightpath/plans/packets"
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

// Group returns how long a group of calls takes, in microseconds. Calls of one communicator follow one another, its
// sends and receives after its collectives. Those of different communicators run at the same time.
func Group(group []calls.Call) (us float64, err error) {
	total := map[*comm.Core]float64{}
	for i := range group {
		c := &group[i]
		if err := calls.Check(c); err != nil {
			return 0, err
		}
		if c.Kind.OneSided() {
			t, err := oneSided(c)
			if err != nil {
				return 0, err
			}
			total[c.Comm] += t
			continue
		}
		if c.Kind.P2P() || c.Count == 0 {
			continue
		}
		t, err := collective(c)
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
		total[c] += costs.US(1, float64(max(bytes.send, bytes.recv)))
	}
	for _, t := range total {
		us = max(us, t)
	}
	return us, nil
}

// oneSided returns the time of a one-sided call, in microseconds.
func oneSided(c *calls.Call) (float64, error) {
	costs, err := packetModel(c.Comm)
	if err != nil {
		return 0, err
	}
	bytes := uint64(onesided.SignalBytes)
	if c.Kind == calls.PutSignal {
		bytes += c.Count * uint64(c.Type.Size())
	}
	return costs.US(1, float64(bytes)), nil
}

// traffic counts the bytes that a rank sends and receives.
type traffic struct{ send, recv int64 }

// exchanged adds up the sends and receives of each communicator.
func exchanged(group []calls.Call) map[*comm.Core]traffic {
	sum := map[*comm.Core]traffic{}
	for i := range group {
		if c := &group[i]; c.Kind.P2P() {
			t := sum[c.Comm]
			send, recv := c.Extents()
			sum[c.Comm] = traffic{t.send + send, t.recv + recv}
		}
	}
	return sum
}

// collective returns the time of a collective, in microseconds.
func collective(c *calls.Call) (float64, error) {
	s := calls.ShapeOf(c)
	if circuits.Of(c.Comm) != nil {
		us, err := onCircuits(c.Comm, s)
		if err == nil || !errors.Is(err, planner.ErrInfeasible) {
			return us, err
		}
	}
	return onPackets(c.Comm, s)
}

// onCircuits returns the time that a plan predicts.
func onCircuits(c *comm.Core, s calls.Shape) (float64, error) {
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
	use := circuits.Of(c).Site.All()
	if s.Request.Planes != 0 {
		use = s.Request.Planes
	}
	job, err := circuits.Of(c).Site.Job(planning.ShapeOf(s), use.Len(), nil)
	if err != nil {
		return 0, err
	}
	if circuits.Of(c).Site.OnPackets(job.Key.Shape, job.Problem) {
		return onPackets(c, s)
	}
	interim, err := circuits.Of(c).Site.Interim(job)
	if err != nil {
		return 0, err
	}
	return interim.Plan.CCTUS, nil
}

// onPackets adds up the steps of the schedule.
func onPackets(c *comm.Core, s calls.Shape) (float64, error) {
	costs, err := packetModel(c)
	if err != nil {
		return 0, err
	}
	if s.Request.Planes != 0 && circuits.Of(c) == nil {
		costs.Gbps *= float64(s.Request.Planes.Len()) / float64(len(session.Of(c).Packet.Planes()))
	}
	return dispatch.PacketsUS(s, c.Ranks, dispatch.PacketsOf(c), c.Cfg, costs)
}

// packetModel returns the costs of the packet planes, all of them together.
func packetModel(c *comm.Core) (*packets.Costs, error) {
	if p := circuits.Of(c); p != nil {
		costs := *p.Site.Packets
		return &costs, nil
	}
	kind, err := endpoints.ChooseTransport(c.Table, c.Cfg)
	if err != nil {
		return nil, err
	}
	costs := dispatch.PacketCosts(kind, nil)
	if c.Cfg.Fabric == "" {
		return &costs, nil
	}
	fab, err := fabric.Load(c.Cfg.Fabric)
	switch {
	case errors.Is(err, os.ErrNotExist): // the file existed when the communicator was made
	case err != nil:
		return nil, fmt.Errorf("shim: environment variable LIGHTPATH_FABRIC: %w: %w", err, errdefs.ErrInvalidUsage)
	case !fab.Optical():
		f := fab.Problem()
		costs.AlphaUS, costs.Gbps = f.AlphaUS+f.HopUS, f.BandwidthGbps*float64(len(fab.Planes))
	}
	return &costs, nil
}
