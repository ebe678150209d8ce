package recorder

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"lightpath/collectives/program"
	"lightpath/internal/files"
	"lightpath/internal/monotonic"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/flight"
)

// Dump returns the content of the communicator's flight recorder, as a file.
func Dump(c *comm.Core) ([]byte, error) {
	d, err := Record(c, c.AsyncError())
	if err != nil {
		return nil, err
	}
	return d.Encode()
}

// Record converts the flight recorder to a [flight.Dump]. failed is the error of the communicator, nil if it is
// healthy.
func Record(c *comm.Core, failed error) (*flight.Dump, error) {
	if !c.Joined() {
		return nil, fmt.Errorf("shim: the communicator has not been made: %w", errdefs.ErrInvalidUsage)
	}
	h := &c.Table[c.Rank]
	d := &flight.Dump{
		Version: flight.Version, Library: bootstrap.Version, Comm: fmt.Sprintf("%x", c.ID), Name: c.Name,
		Ranks: c.Ranks, Rank: c.Rank, Host: h.Name, PID: h.PID, Time: monotonic.Now(), UnixTime: time.Now().UnixNano(),
	}
	if failed != nil {
		d.Error = failed.Error()
	}
	f := Of(c)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	first := f.first()
	d.Forgotten, d.Operations = first-1, []flight.Operation{}
	for n := first; n <= f.last; n++ {
		if op := f.at(n); op.Number == n {
			d.Operations = append(d.Operations, f.word(op))
		}
	}
	return d, nil
}

// groupName names groups of sends and receives.
const groupName = "Send/Recv"

// word converts an operation. The caller holds f.mu.
func (f *Recorder) word(op *Operation) flight.Operation {
	o := flight.Operation{
		Number: op.Number, Seq: op.Seq, Call: groupName, Bytes: op.Bytes, Planes: []flight.Lane{},
		Arrived: op.Arrived, Asked: op.Asked, Ticketed: op.Ticketed, Ended: op.Ended,
	}
	switch op.Outcome {
	case Completed:
		o.Outcome = flight.Completed
	case Failed:
		o.Outcome = flight.Failed
	default:
		o.Outcome = flight.UnderWay
	}
	switch s := &op.Shape; {
	case op.IsCollective():
		o.Call, o.Detail, o.Bytes = s.Kind.String(), s.String(), int64(s.Count)*int64(s.Type.Size())
	case s.Kind.OneSided():
		o.Call, o.Detail = s.Kind.String(), calls.DescribeOneSided(s.Kind, s.Count, s.Type, s.Root)
	default:
		o.Detail = fmt.Sprintf("%d messages", op.Messages)
	}
	if op.Replay {
		o.Detail += ", in a graph"
	}
	if e := op.Entry; e != nil {
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
	if f.stall.number == op.Number && op.Outcome != Completed {
		o.Wait = op.WaitText(&f.stall.Wait)
	}
	return o
}

// wordCircuits adds the lanes and moves on planes with circuits.
func (f *Recorder) wordCircuits(op *Operation, o *flight.Operation) {
	slot := int(op.Number & (f.Size - 1))
	if len(o.Planes) == 0 {
		for j := range op.use.Each() {
			o.Planes = append(o.Planes, flight.Lane{Plane: j})
		}
	}
	if op.Outcome != Completed {
		return // the entry still holds an earlier operation
	}
	for i := range o.Planes {
		l := &o.Planes[i]
		if at := f.lanes[slot*f.Planes:]; l.Plane < f.Planes {
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
	for part, count := range p.Parts() {
		for i := range part.Code {
			in := &part.Code[i]
			if in.Plane < 0 || int(in.Plane) >= len(all) {
				continue
			}
			switch l := &all[in.Plane]; in.Kind {
			case program.Send:
				l.Sent += in.Bytes * int64(count)
			case program.Recv, program.RecvReduce:
				l.Received += in.Bytes * int64(count)
			}
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

// leave writes the flight recorder of a communicator that fails, if LIGHTPATH_FLIGHT_RECORDER_DIR is set.
func leave(c *comm.Core, why error) {
	if c.Cfg.Flight.Dir == "" {
		return
	}
	d, err := Record(c, why)
	if err != nil {
		return // there is nothing to tell yet
	}
	text, err := d.Encode()
	path := filepath.Join(c.Cfg.Flight.Dir, d.FileName())
	if err == nil {
		err = os.MkdirAll(c.Cfg.Flight.Dir, 0o700)
	}
	if err == nil {
		err = files.Write(path, append(text, '\n'), 0o600)
	}
	if err != nil {
		c.Log.Warn("LIGHTPATH_FLIGHT_RECORDER_DIR: %v", err)
		return
	}
	c.Log.Warn("comm %#x rank %d: flight recorder in %s", c.ID, c.Rank, path)
}
