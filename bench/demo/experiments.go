// Package demo runs the project's main job on one machine without root: collectives through
// the NCCL ABI, by rank processes, over an emulated optical switch whose circuits change
// during the collective, under several planners; measured beside predicted, and audited
// against the switch's own log.
//
// Layer: inside bench.
package demo

import (
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans/circuit"
)

// Experiment is one collective on one fabric, run under each of Planners.
type Experiment struct {
	Key        string // "a", "b", "c"
	Title      string
	Collective schedule.Collective
	Algorithm  string
	Bytes      int64 // nccl-tests' S
	Forwarding bool
	Reconfig   time.Duration
	// Start is the map all planes hold at first; nil lets the planner choose (and the first
	// operation sets it up).
	Start    circuit.Permutation
	Planners []string
}

// The demonstration's scale. A host with two cores moves 8 ranks x 2 planes x 50 Mb/s with ease, and
// against times of 50 ms and more its scheduling noise is small. SWOT's example (400 Gb/s, 40 MB,
// 200 us) is scaled by one factor throughout: rates by 1/8000, sizes by 1/32, so times
// by 250, which keeps every ratio of the paper.
const (
	ranks        = 8
	planes       = 2
	rateGbps     = 0.05
	frameData    = 8192 // payload bytes of a frame
	timeScale    = 250
	swotReconfig = 200 * time.Microsecond * timeScale
)

// hop is what one more rank on the way costs: a rank forwards whole frames, so a hop is the
// time of one frame on the wire.
const hop = time.Duration(frameData * 8 / (rateGbps * 1e9) * float64(time.Second))

var everyPlanner = []string{"static", "perstep", "harvest", "swot", "weave"}

// experiments are those of the demonstration.
func experiments() []Experiment {
	return []Experiment{
		{
			Key: "a", Title: "Rabenseifner AllReduce, the example of SWOT Fig. 5 (times x 250)",
			Collective: schedule.AllReduce, Algorithm: "rabenseifner", Bytes: 1_250_000,
			Reconfig: swotReconfig, Start: circuit.Xor(ranks, 1), Planners: everyPlanner,
		},
		{
			Key: "b", Title: "pairwise All-to-All",
			Collective: schedule.AllToAll, Algorithm: "pairwise", Bytes: 4_000_000,
			Reconfig: swotReconfig, Planners: everyPlanner,
		},
		{
			Key: "c", Title: "cyclic recursive doubling AllReduce, ranks forward for each other",
			Collective: schedule.AllReduce, Algorithm: "recursive-doubling", Bytes: 1_250_000,
			Forwarding: true, Reconfig: 30 * time.Millisecond, Planners: everyPlanner,
		},
	}
}
