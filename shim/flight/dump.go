package flight

import (
	"encoding/json"
	"errors"
	"fmt"

	"lightpath/internal/decode"
)

// Version of the format.
const Version = 1

// maxRanks bounds the number of ranks in a file.
const maxRanks = 4096

// ErrDump reports a file that is no usable dump.
var ErrDump = errors.New("flight: not a flight recorder's dump")

// States of an operation.
const (
	Completed = "completed"
	UnderWay  = "under way"
	Failed    = "failed"
)

// Dump is the flight recorder of one rank of a communicator: its last operations, oldest first.
// Times are nanoseconds of the host's CLOCK_MONOTONIC; 0 is none.
type Dump struct {
	Version int    `json:"version"`
	Library string `json:"library"`
	Comm    string `json:"comm"`
	Name    string `json:"name,omitempty"`
	Ranks   int    `json:"ranks"`
	Rank    int    `json:"rank"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	// Time and UnixTime are the time of writing by two clocks.
	Time     int64  `json:"time_ns"`
	UnixTime int64  `json:"unix_time_ns"`
	Error    string `json:"error,omitempty"` // the error with which the communicator has failed
	// Forgotten is the number of operations before the first of Operations.
	Forgotten  uint64      `json:"forgotten"`
	Operations []Operation `json:"operations"`
}

// Operation is a collective, a group of sends and receives, a one-sided call, or a graph's replay of one of the first
// two.
type Operation struct {
	Number    uint64  `json:"number"` // of this rank's operations
	Seq       uint64  `json:"seq"`    // of a collective, equal on all ranks; 0 for a group, a one-sided call, or a replay
	Call      string  `json:"call"`
	Detail    string  `json:"detail"`    // what must agree between ranks
	Bytes     int64   `json:"bytes"`     // of a rank's block, of all messages of a group, or of a put
	Algorithm string  `json:"algorithm"` // "" where it was not known yet
	Planner   string  `json:"planner,omitempty"`
	Plan      string  `json:"plan,omitempty"` // digest
	Predicted float64 `json:"predicted_us,omitempty"`
	Outcome   string  `json:"outcome"`
	Wait      string  `json:"wait,omitempty"` // the last wait that was seen
	Arrived   int64   `json:"arrived_ns"`
	Asked     int64   `json:"asked_ns,omitempty"` // the leader, for a ticket
	Ticketed  int64   `json:"ticketed_ns,omitempty"`
	Ended     int64   `json:"ended_ns"`
	Planes    []Lane  `json:"planes"`
	Moves     []Move  `json:"moves,omitempty"`
}

// Lane is the part of an operation on one plane.
type Lane struct {
	Plane    int    `json:"plane"`
	Epoch    uint32 `json:"epoch"`
	Sent     int64  `json:"sent"` // bytes that this rank sends on the plane
	Received int64  `json:"received"`
	Start    int64  `json:"start_ns,omitempty"`
	End      int64  `json:"end_ns,omitempty"`
}

// Move is a reconfiguration of a plane in which this rank took part: from its request until it may send again.
type Move struct {
	Plane int    `json:"plane"`
	Epoch uint32 `json:"epoch"` // that it ends
	Start int64  `json:"start_ns"`
	End   int64  `json:"end_ns,omitempty"`
}

// Decode reads a dump. It ignores unknown fields, which later versions may have.
func Decode(text []byte) (*Dump, error) {
	d := new(Dump)
	if err := decode.JSON(text, d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDump, err)
	}
	switch {
	case d.Version != Version:
		return nil, fmt.Errorf("%w: version is %d, not %d", ErrDump, d.Version, Version)
	case d.Comm == "":
		return nil, fmt.Errorf("%w: comm is empty", ErrDump)
	case d.Ranks < 1 || d.Ranks > maxRanks:
		return nil, fmt.Errorf("%w: ranks is %d", ErrDump, d.Ranks)
	case d.Rank < 0 || d.Rank >= d.Ranks:
		return nil, fmt.Errorf("%w: rank is %d of %d", ErrDump, d.Rank, d.Ranks)
	}
	for i := range d.Operations {
		o := &d.Operations[i]
		if o.Number == 0 || i > 0 && o.Number <= d.Operations[i-1].Number {
			return nil, fmt.Errorf("%w: operations[%d].number %d does not ascend", ErrDump, i, o.Number)
		}
		switch o.Outcome {
		case Completed, UnderWay, Failed:
		default:
			return nil, fmt.Errorf("%w: operations[%d].outcome is %q", ErrDump, i, o.Outcome)
		}
		for k := range o.Planes {
			if p := o.Planes[k].Plane; p < 0 || p >= maxPlanes {
				return nil, fmt.Errorf("%w: operations[%d].planes[%d].plane is %d", ErrDump, i, k, p)
			}
		}
		for k := range o.Moves {
			if p := o.Moves[k].Plane; p < 0 || p >= maxPlanes {
				return nil, fmt.Errorf("%w: operations[%d].moves[%d].plane is %d", ErrDump, i, k, p)
			}
		}
	}
	return d, nil
}

// maxPlanes bounds the planes of an operation.
const maxPlanes = 64

// Encode writes a dump.
func (d *Dump) Encode() ([]byte, error) { return json.Marshal(d) }

// FileName returns the name of a dump's file.
func (d *Dump) FileName() string {
	return fmt.Sprintf("flight-%s-rank%d-%d.json", d.Comm, d.Rank, d.PID)
}

// label names an operation, as "AllReduce #42".
func (o *Operation) label() string {
	if o.Seq == 0 {
		return o.Call
	}
	return fmt.Sprintf("%s #%d", o.Call, o.Seq)
}

// end returns the end of the operation or, if it has not ended, the time of the dump.
func (d *Dump) end(o *Operation) int64 {
	if o.Ended == 0 {
		return d.Time
	}
	return o.Ended
}
