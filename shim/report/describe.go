package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/endpoints"
	"lightpath/shim/recorder"
	"lightpath/shim/result"
	"lightpath/shim/status"
)

// node names a host and its process numbers: equal numbers of one node are one process.
func node(host, pids string) string {
	sum := sha256.Sum256([]byte(host + "\x00" + pids))
	return hex.EncodeToString(sum[:8])
}

// describe describes a communicator as this rank knows it: itself, and where the other ranks are. It may block, since
// it may ask the controller of the planes.
func describe(c *comm.Core) status.Comm {
	if !c.Joined() {
		return describeMaking(c)
	}
	s := status.Comm{ID: fmt.Sprintf("%x", c.ID), Name: c.Name, Size: c.Ranks}
	for i := range c.Table {
		h := &c.Table[i]
		s.Ranks = append(s.Ranks, status.Rank{Rank: i, Host: h.Name, Node: node(h.Host, h.PIDs), PID: h.PID,
			Answer: status.Unasked})
	}
	s.Ranks[c.Rank] = Self(c)
	s.Circuits = c.Made() && circuits.Of(c) != nil
	return s
}

// describeMaking describes a communicator whose ranks have not met, by the request alone.
func describeMaking(c *comm.Core) status.Comm {
	a := &Of(c).request
	s := status.Comm{ID: a.Key, Name: a.Name, Size: a.Ranks}
	if a.Rank >= 0 {
		s.Ranks = []status.Rank{{
			Rank: a.Rank, Host: c.Log.Host, Node: node(bootstrap.HostID(), bootstrap.PIDNamespace()), PID: c.Log.PID,
			Device: a.Device, State: status.Making,
		}}
		describeFailure(c, &s.Ranks[0])
	}
	return s
}

// Self describes this rank, and the wait of its operation. The communicator has been joined.
func Self(c *comm.Core) status.Rank {
	r, g := ownState(c)
	if g.Running {
		if describeWait(c, r.Op, &g); r.Op.Wait != nil {
			r.Faults = c.Faults(endpoints.SilentAfter)
		}
	}
	return r
}

// ownState describes this rank by what it knows itself. It does not block.
func ownState(c *comm.Core) (status.Rank, recorder.Snapshot) {
	h := &c.Table[c.Rank]
	r := status.Rank{Rank: c.Rank, Host: h.Name, Node: node(h.Host, h.PIDs), PID: h.PID, Device: c.Device,
		State: status.Healthy}
	switch c.Life() {
	case comm.Making:
		r.State = status.Making
	case comm.Suspended:
		r.State = status.Suspended
	case comm.Finalized, comm.Destroyed:
		r.State = status.Finalized
	}
	describeFailure(c, &r)
	now := monotonic.Now()
	g := recorder.Of(c).Snapshot()
	r.Groups, r.Counts = g.Groups, map[string]uint64{}
	for k, n := range g.Counts {
		r.Counts[calls.Kind(k).String()] = n
		if !calls.Kind(k).P2P() && !calls.Kind(k).OneSided() {
			r.Collectives += n
		}
	}
	if p := circuits.Of(c); p != nil {
		if u := p.Uses(); u.Ahead+u.Asked > 0 {
			r.Ahead = &status.Ahead{Used: u.Ahead, Asked: u.Asked, Declined: u.Declined,
				HiddenSeconds: u.Hidden.Seconds(), ExposedSeconds: u.Exposed.Seconds()}
		}
	}
	if g.Last.Number > 0 {
		r.Last = g.Last.Shape.Kind.String()
	}
	switch {
	case g.Running:
		r.Op = describeOp(&g.Op, now)
	case g.Op.Ended > 0:
		r.IdleSeconds = seconds(now - g.Op.Ended)
	}
	return r, g
}

func describeFailure(c *comm.Core, r *status.Rank) {
	if err := c.AsyncError(); err != nil {
		r.State, r.Error, r.Result = status.Failed, err.Error(), int(result.Of(err))
	}
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

// describeOp describes the operation in progress.
func describeOp(op *recorder.Operation, now int64) *status.Op {
	out := &status.Op{Seq: op.Seq}
	switch {
	case op.Shape.Kind.OneSided():
		out.Call = op.Shape.Kind.String()
		out.Detail = calls.DescribeOneSided(op.Shape.Kind, op.Shape.Count, op.Shape.Type, op.Shape.Root)
	case !op.IsCollective():
		out.Call = "Send/Recv"
		out.Detail = fmt.Sprintf("group of %d messages, %d bytes", op.Messages, op.Bytes)
	default:
		out.Call, out.Detail, out.Signature = op.Shape.Kind.String(), op.Shape.String(), op.Shape.Signature()
	}
	if op.Arrived > 0 {
		out.Seconds = seconds(now - op.Arrived)
	}
	if e := op.Entry; e != nil {
		out.Algorithm = e.Algorithm
		if e.Plan != nil {
			out.Plan = e.Plan.Digest
		}
	}
	return out
}

// describeWait adds the wait of an operation to its description.
func describeWait(c *comm.Core, out *status.Op, g *recorder.Snapshot) {
	op := &g.Op
	switch {
	case op.Asked > 0 && op.Ticketed == 0:
		out.Wait = &status.Wait{
			For: status.ForTicket, Peer: -1, Plane: -1, Text: fmt.Sprintf("ticket of operation %d", op.Seq),
			Seconds: out.Seconds,
		}
	case g.Stall != nil:
		out.Wait = describeStall(c, g.Stall, op)
		out.Seconds = max(out.Seconds, out.Wait.Seconds) // if operations are not timed
	}
}

// waitKinds names the event for which an instruction of a program waits.
var waitKinds = map[program.Kind]string{
	program.Send: status.ForSend, program.Recv: status.ForReceive, program.RecvReduce: status.ForReceive,
	program.Forward: status.ForForward, program.Reconfigure: status.ForSwitch,
}

// describeStall describes a wait for others than the leader. For a switch it adds what the planes' controller reports.
func describeStall(c *comm.Core, s *recorder.Standstill, op *recorder.Operation) *status.Wait {
	w := s.Wait
	out := &status.Wait{
		For: waitKinds[w.Kind], Peer: w.Peer, Plane: w.Plane, Step: w.Step, Epoch: w.Epoch,
		Seconds: seconds(monotonic.Now() - s.Since),
	}
	switch {
	case op.Shape.Kind.OneSided():
		out.For, out.Text = status.ForSignal, op.WaitText(&w)
		return out
	case op.Entry != nil && op.Entry.Prog == nil:
		out.Plane = -1
		out.Text = fmt.Sprintf("memory of rank %d (%d of %d bytes)", w.Peer, w.Done, w.Bytes)
		return out
	case w.Kind == program.Reconfigure && c.Made() && circuits.Of(c) != nil:
		w.Detail = circuits.Of(c).WaitingOn(w.Plane)
	case out.For == "" || w.Plane < 0:
		out.For, out.Peer = status.ForOther, -1
	}
	out.Text = w.String()
	return out
}
