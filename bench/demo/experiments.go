// Package demo runs the project's main job on one machine without root: collectives through
// the NCCL ABI, by rank processes, over an emulated optical switch whose circuits change
// during the collective, under several planners; measured beside predicted, and audited
// against the switch's own log.
//
// Layer: inside bench.
package demo

import (
	"fmt"
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
	Scale    Scale
}

// facts says in numbers what the experiment is.
func (e *Experiment) facts() string {
	return fmt.Sprintf("%d planes of %g Mb/s per port, %d bytes, reconfiguration %v", e.Scale.Planes, e.Scale.RateGbps*1e3, e.Bytes, e.Reconfig)
}

// Scale is what an experiment's planes are like.
type Scale struct {
	Planes    int
	RateGbps  float64 // per port
	FrameData int     // payload bytes of a frame
	// Alpha and Hop are the latencies of the cost model; see [Scale.frameTime].
	Alpha, Hop time.Duration
}

// frameTime is how long a frame is on the wire: what one more rank on the way costs, since a
// rank forwards whole frames.
func (s Scale) frameTime() time.Duration {
	return time.Duration(float64(s.FrameData*8) / (s.RateGbps * 1e9) * float64(time.Second))
}

const ranks = 8

// demoScale is the demonstration's. A host with two cores moves 8 ranks x 2 planes x 50 Mb/s with ease, and
// against times of 50 ms and more its scheduling noise is small. SWOT's example (400 Gb/s, 40 MB,
// 200 us) is scaled by one factor throughout: rates by 1/8000, sizes by 1/32, so times
// by 250, which keeps every ratio of the paper.
func demoScale() Scale {
	s := Scale{Planes: 2, RateGbps: 0.05, FrameData: 8192}
	s.Hop = s.frameTime()
	return s
}

const (
	timeScale    = 250
	swotReconfig = 200 * time.Microsecond * timeScale
)

var everyPlanner = []string{"static", "perstep", "harvest", "swot", "weave"}

// experiments are those of the demonstration.
func experiments() []Experiment {
	scale := demoScale()
	return []Experiment{
		{
			Key: "a", Title: "Rabenseifner AllReduce, the example of SWOT Fig. 5 (times x 250)",
			Collective: schedule.AllReduce, Algorithm: "rabenseifner", Bytes: 1_250_000,
			Reconfig: swotReconfig, Start: circuit.Xor(ranks, 1), Planners: everyPlanner, Scale: scale,
		},
		{
			Key: "b", Title: "pairwise All-to-All",
			Collective: schedule.AllToAll, Algorithm: "pairwise", Bytes: 4_000_000,
			Reconfig: swotReconfig, Planners: everyPlanner, Scale: scale,
		},
		{
			Key: "c", Title: "cyclic recursive doubling AllReduce, ranks forward for each other",
			Collective: schedule.AllReduce, Algorithm: "recursive-doubling", Bytes: 1_250_000,
			Forwarding: true, Reconfig: 30 * time.Millisecond, Planners: everyPlanner, Scale: scale,
		},
	}
}

// proofScale is that of planes in the kernel: rates that a host with two cores carries with room to
// spare (see [aggregate]). Its shaper sends a frame and then waits, so a hop costs what moves the frame on and
// not its time on the wire, and a transmission no more than its bytes, as `lightpath fabric calibrate` finds.
func proofScale(planes int) Scale {
	return Scale{Planes: planes, RateGbps: 0.16 / float64(planes), FrameData: 8192, Hop: proofHop}
}

const proofHop = 200 * time.Microsecond

// proofs are the experiments over planes in the kernel: numbers of planes x reconfiguration times x
// collectives, long enough that what a call costs before its first byte, some 4 ms with four ranks per core, is little of it.
func proofs() []Experiment {
	var list []Experiment
	for _, planes := range []int{2, 4} {
		for _, reconfig := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
			for _, c := range []struct {
				name, algorithm string
				kind            schedule.Collective
				bytes           int64
				forwarding      bool
			}{
				{"Rabenseifner AllReduce", "rabenseifner", schedule.AllReduce, 2_500_000, false},
				{"cyclic recursive doubling AllReduce, forwarding", "recursive-doubling", schedule.AllReduce, 1_250_000, true},
				{"pairwise All-to-All", "pairwise", schedule.AllToAll, 8_000_000, false},
			} {
				list = append(list, Experiment{
					Key: fmt.Sprintf("k=%d, %v, %s", planes, reconfig, c.algorithm), Title: c.name,
					Collective: c.kind, Algorithm: c.algorithm, Bytes: c.bytes, Forwarding: c.forwarding,
					Reconfig: reconfig, Planners: everyPlanner, Scale: proofScale(planes),
				})
			}
		}
	}
	return list
}
