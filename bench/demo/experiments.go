package demo

import (
	"fmt"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans/circuit"
)

// Experiment is one collective on one fabric, run under each of the planners.
type Experiment struct {
	Key        string // "a", "b", "c"
	Title      string
	Collective schedule.Collective
	Algorithm  string
	Bytes      int64 // nccl-tests' S
	Forwarding bool
	Reconfig   time.Duration
	// Start is the first map of all planes; nil: the planner chooses it, and the first operation installs it.
	Start circuit.Permutation
	Scale Scale
}

// name returns the title as users see it.
func (e *Experiment) name() string { return fmt.Sprintf("(%s) %s", e.Key, e.Title) }

// facts returns the numbers of the experiment for a headline.
func (e *Experiment) facts() string {
	return fmt.Sprintf("%d planes of %g Mb/s per port, %d bytes, reconfiguration %v",
		e.Scale.Planes, e.Scale.RateGbps*1e3, e.Bytes, e.Reconfig)
}

// Scale describes the planes of an experiment.
type Scale struct {
	Planes    int
	RateGbps  float64       // per port
	FrameData int           // payload bytes of a frame
	Hop       time.Duration // latency of a hop in the cost model; see [Scale.frameTime]
}

// frameTime returns how long a frame is on the wire. One more hop costs this time, since a rank forwards whole frames.
func (s Scale) frameTime() time.Duration {
	return time.Duration(float64(s.FrameData*8) / (s.RateGbps * 1e9) * float64(time.Second))
}

const ranks = 8

// demoScale returns the scale of the demonstration. A host with two cores carries 8 ranks x 2 planes x 50 Mb/s easily.
// Its scheduling noise is small beside times of 50 ms and more. SWOT's example (400 Gb/s, 40 MB, 200 us) is scaled:
// rates by 1/8000, sizes by 1/32, and so times by 250. This keeps every ratio of the paper.
func demoScale() Scale {
	s := Scale{Planes: 2, RateGbps: 0.05, FrameData: 8192}
	s.Hop = s.frameTime()
	return s
}

const (
	timeScale    = 250
	swotReconfig = 200 * time.Microsecond * timeScale
)

// planners run every experiment.
var planners = []string{"static", "perstep", "harvest", "swot", "weave"}

// experiments returns the experiments of the demonstration.
func experiments() []Experiment {
	scale := demoScale()
	return []Experiment{
		{
			Key: "a", Title: "Rabenseifner AllReduce, the example of SWOT Fig. 5 (times x 250)",
			Collective: schedule.AllReduce, Algorithm: "rabenseifner", Bytes: 1_250_000,
			Reconfig: swotReconfig, Start: circuit.Xor(ranks, 1), Scale: scale,
		},
		{
			Key: "b", Title: "pairwise All-to-All",
			Collective: schedule.AllToAll, Algorithm: "pairwise", Bytes: 4_000_000,
			Reconfig: swotReconfig, Scale: scale,
		},
		{
			Key: "c", Title: "cyclic recursive doubling AllReduce, ranks forward for each other",
			Collective: schedule.AllReduce, Algorithm: "recursive-doubling", Bytes: 1_250_000,
			Forwarding: true, Reconfig: 30 * time.Millisecond, Scale: scale,
		},
	}
}

// kernelScale returns the scale for planes in the kernel. A host with two cores carries these rates easily (see
// [measureCapacity]). The shaper of the kernel sends a frame and then waits. So a hop costs the forwarding of a frame,
// not its time on the wire. A transmission costs its bytes only, as `lightpath fabric calibrate` finds.
func kernelScale(planes int) Scale {
	return Scale{Planes: planes, RateGbps: 0.16 / float64(planes), FrameData: 8192, Hop: kernelHop}
}

const kernelHop = 200 * time.Microsecond

// kernelExperiments returns the experiments over planes in the kernel: numbers of planes x reconfiguration times x
// collectives. They are long, since a call costs some 4 ms before its first byte with four ranks per core.
func kernelExperiments() []Experiment {
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
					Reconfig: reconfig, Scale: kernelScale(planes),
				})
			}
		}
	}
	return list
}
