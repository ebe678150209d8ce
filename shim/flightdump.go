package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/flight"
)

// flightDump is the communicator's flight recorder as a file.
func flightDump(c *comm.Core) ([]byte, error) {
	d, err := flightRecord(c, c.AsyncError())
	if err != nil {
		return nil, err
	}
	return d.Encode()
}

// flightRecord puts the flight recorder into words. failed is what the communicator fails with.
func flightRecord(c *comm.Core, failed error) (*flight.Dump, error) {
	if !c.Joined() {
		return nil, fmt.Errorf("shim: the communicator has not been made: %w", errdefs.ErrInvalidUsage)
	}
	h := &c.Table[c.Rank]
	d := &flight.Dump{
		Version: flight.Version, Library: Version, Comm: fmt.Sprintf("%x", c.ID), Name: c.Name,
		Ranks: c.Ranks, Rank: c.Rank, Host: h.Name, PID: h.PID, Time: monotonic.Now(), UnixTime: time.Now().UnixNano(),
	}
	if failed != nil {
		d.Error = failed.Error()
	}
	f := flightOf(c)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	first := uint64(1)
	if f.last > f.size {
		first = f.last - f.size + 1
	}
	d.Forgotten, d.Operations = first-1, []flight.Operation{}
	for n := first; n <= f.last; n++ {
		if op := f.at(n); op.number == n {
			d.Operations = append(d.Operations, f.word(op))
		}
	}
	return d, nil
}

// word puts an operation into words. f.mu is held.
func (f *recorder) word(op *flown) flight.Operation {
	o := flight.Operation{
		Number: op.number, Seq: op.seq, Call: "Send/Recv", Bytes: op.bytes, Planes: []flight.Lane{},
		Arrived: op.arrived, Asked: op.asked, Ticketed: op.ticketed, Ended: op.ended,
	}
	switch op.outcome {
	case completed:
		o.Outcome = flight.Completed
	case failed:
		o.Outcome = flight.Failed
	default:
		o.Outcome = flight.UnderWay
	}
	switch s := &op.shape; {
	case op.isCollective():
		o.Call, o.Detail, o.Bytes = s.Kind.String(), s.String(), int64(s.Count)*int64(s.Type.Size())
	case s.Kind.OneSided():
		o.Call, o.Detail = s.Kind.String(), calls.DescribeOneSided(s.Kind, s.Count, s.Type, s.Root)
	default:
		o.Detail = fmt.Sprintf("%d messages", op.messages)
	}
	if op.replay {
		o.Detail += ", in a graph"
	}
	if e := op.entry; e != nil {
		o.Algorithm = e.Algorithm
		if e.Plan != nil {
			o.Planner, o.Plan, o.Predicted = e.Plan.Planner, e.Plan.Digest, e.Plan.CCTUS
		}
		if e.Prog != nil {
			o.Planes = lanesOf(e.Prog)
		}
	}
	if op.circuits {
		f.wordCircuits(op, &o)
	}
	if f.stall.number == op.number && op.outcome != completed {
		o.Wait = op.waitText(&f.stall.wait)
	}
	return o
}

// wordCircuits adds what is known of planes with circuits.
func (f *recorder) wordCircuits(op *flown, o *flight.Operation) {
	slot := int(op.number & (f.size - 1))
	if len(o.Planes) == 0 {
		for j := range op.use.Each() {
			o.Planes = append(o.Planes, flight.Lane{Plane: j})
		}
	}
	if op.outcome != completed {
		return // what is there is of the operation before in this place
	}
	for i := range o.Planes {
		l := &o.Planes[i]
		if at := f.lanes[slot*f.planes:]; l.Plane < f.planes {
			l.Epoch, l.Start, l.End = at[l.Plane].base, at[l.Plane].start, at[l.Plane].end
		}
	}
	for _, m := range f.moves[slot*maxMoves:][:op.moves] {
		o.Moves = append(o.Moves, flight.Move{Plane: int(m.plane), Epoch: m.epoch, Start: m.start, End: m.end})
	}
}

// lanesOf sums up what a program sends and receives on each plane that it uses.
func lanesOf(p *program.Program) []flight.Lane {
	all := make([]flight.Lane, len(p.Lanes))
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Plane < 0 || int(o.Plane) >= len(all) {
			continue
		}
		switch l := &all[o.Plane]; o.Kind {
		case program.Send:
			l.Sent += o.Bytes
		case program.Recv, program.RecvReduce:
			l.Received += o.Bytes
		}
	}
	lanes := []flight.Lane{}
	for j, l := range all {
		if l.Sent > 0 || l.Received > 0 {
			l.Plane = j
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// leaveFlight writes the flight recorder of a communicator that fails, where the user has asked
// for that.
func leaveFlight(c *comm.Core, why error) {
	if c.Cfg.FlightDir == "" {
		return
	}
	d, err := flightRecord(c, why)
	if err != nil {
		return // there is nothing to tell yet
	}
	text, err := d.Encode()
	path := filepath.Join(c.Cfg.FlightDir, d.FileName())
	if err == nil {
		err = os.MkdirAll(c.Cfg.FlightDir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o600)
	}
	if err != nil {
		c.Log.Warn("LIGHTPATH_FLIGHT_RECORDER_DIR: %v", err)
		return
	}
	c.Log.Warn("comm %#x rank %d: flight recorder in %s", c.ID, c.Rank, path)
}
