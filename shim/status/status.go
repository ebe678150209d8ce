package status

import "time"

// Answers of ranks: whether a [Rank] is the rank's own report.
const (
	Answered = "" // it is
	Unasked  = "unasked"
	Silent   = "silent"  // no answer in time
	Stopped  = "stopped" // its process is stopped by a signal or a debugger
	Gone     = "gone"    // its process has ended
)

// States of a rank in a communicator.
const (
	Making    = "making" // its ranks have not all met
	Healthy   = "healthy"
	Failed    = "failed"
	Suspended = "suspended"
	Finalized = "finalized"
)

// Rank is one rank of a communicator.
type Rank struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	Node   string `json:"node"` // equal for processes in one PID namespace
	PID    int    `json:"pid"`
	Device int    `json:"device"`
	Answer string `json:"answer"` // one of the constants; unless it is Answered, the fields below are not known

	State       string            `json:"state,omitempty"`
	Error       string            `json:"error,omitempty"`
	Result      int               `json:"result,omitempty"` // ncclResult_t of Error
	Collectives uint64            `json:"collectives"`      // called so far; the number of the last one
	Groups      uint64            `json:"groups"`           // of sends and receives
	Counts      map[string]uint64 `json:"counts,omitempty"` // calls by name
	Last        string            `json:"last,omitempty"`   // the last collective, in words
	IdleSeconds float64           `json:"idle_seconds"`     // since the end of the last operation, if Op is nil
	Ahead       *Ahead            `json:"ahead,omitempty"`  // nil: the rank has used no planes with circuits
	Totals      []Total           `json:"totals,omitempty"` // in files of LIGHTPATH_METRICS only
	Op          *Op               `json:"op,omitempty"`     // in progress
	Faults      []Fault           `json:"faults,omitempty"` // faults that the rank sees, if Op waits
}

// Ahead says how well the leader predicts the operations of a rank on circuits, since the communicator was made.
type Ahead struct {
	Used           uint64  `json:"used"`            // operations whose ticket was at the rank before the call
	Asked          uint64  `json:"asked"`           // operations whose ticket the rank had to ask for
	Declined       uint64  `json:"declined"`        // tickets at the rank before the call, but for another call
	HiddenSeconds  float64 `json:"hidden_seconds"`  // of switching between operations, without a call that waited
	ExposedSeconds float64 `json:"exposed_seconds"` // of switching between operations, for which calls have waited
}

// Total sums up the completed operations of one call, class of sizes and algorithm. The time of an operation
// begins with the call, or at the end of the operation before if that is later. It ends when the rank has ended it.
type Total struct {
	Call      string  `json:"call"`
	Size      uint64  `json:"size"`                // bytes of the largest operations of the class: a power of 4
	Algorithm string  `json:"algorithm,omitempty"` // "": none, as for groups of sends and receives
	Count     uint64  `json:"count"`
	Bytes     uint64  `json:"bytes"`     // as nccl-tests counts them; of a group, those of all its messages
	BusBytes  float64 `json:"bus_bytes"` // Bytes times the factor of nccl-tests' busbw
	Seconds   float64 `json:"seconds"`
	AlgBW     float64 `json:"algbw_gbs"` // Bytes over Seconds, in 1e9 bytes per second
	BusBW     float64 `json:"busbw_gbs"`
}

// Op is an operation in progress.
type Op struct {
	// of a collective, equal on all ranks; 0: a group of sends and receives, or a one-sided call
	Seq       uint64  `json:"seq"`
	Call      string  `json:"call"`
	Detail    string  `json:"detail"`    // the call, with the values that must agree between ranks
	Signature uint32  `json:"signature"` // of Detail; 0 where Seq is
	Algorithm string  `json:"algorithm,omitempty"`
	Plan      string  `json:"plan,omitempty"` // digest
	Seconds   float64 `json:"seconds"`        // since the call
	Wait      *Wait   `json:"wait,omitempty"` // nil while it moves
}

// Events for which an operation can wait.
const (
	ForSend    = "send"
	ForReceive = "receive"
	ForForward = "forward"
	ForSwitch  = "reconfiguration"
	ForTicket  = "ticket"
	ForSignal  = "signal"
	ForOther   = "other"
)

// Wait is the wait of an operation that does not move.
type Wait struct {
	For     string  `json:"for"`  // one of the constants
	Peer    int     `json:"peer"` // -1: no single rank
	Plane   int     `json:"plane"`
	Step    int     `json:"step"`
	Epoch   uint32  `json:"epoch"`
	Text    string  `json:"text"`
	Seconds float64 `json:"seconds"` // since it was seen first
}

// Comm is a communicator.
type Comm struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	Size      int    `json:"size"` // 0: not known yet
	Circuits  bool   `json:"circuits"`
	State     string `json:"state,omitempty"` // "" in files of LIGHTPATH_METRICS, as Diagnosis is
	Diagnosis string `json:"diagnosis,omitempty"`
	Ranks     []Rank `json:"ranks"` // ascending; all of them once the communicator is made
}

// Process is the answer of one process: its own ranks, and the places of the others.
type Process struct {
	Version string `json:"version"` // of the library
	Host    string `json:"host"`
	Node    string `json:"node"`
	PID     int    `json:"pid"`
	Comms   []Comm `json:"comms"`
}

// Report holds the answers of all processes that could be asked.
type Report struct {
	Version   int       `json:"version"` // of this format, 1
	Library   string    `json:"library"`
	Time      time.Time `json:"time"`
	Seconds   float64   `json:"seconds"`   // that asking took
	Processes int       `json:"processes"` // that have answered on this host
	Silent    []int     `json:"silent"`    // processes of this host that have not
	Comms     []Comm    `json:"communicators"`
}

// Worst returns the worst state of all communicators: Failed, Waiting, Making or Healthy.
func (r *Report) Worst() string {
	worst := Healthy
	for _, s := range []string{Making, Waiting, Failed} {
		for i := range r.Comms {
			if r.Comms[i].State == s {
				worst = s
			}
		}
	}
	return worst
}

// known returns the entry of a rank, nil if there is none.
func (c *Comm) known(rank int) *Rank {
	for i := range c.Ranks {
		if c.Ranks[i].Rank == rank {
			return &c.Ranks[i]
		}
	}
	return nil
}
