package protocols

import (
	"cmp"
	"fmt"
	"time"

	"lightpath/bench/protocols/trace"
)

// Config describes a world. A field that is zero has its default ([Config.Sizes]).
type Config struct {
	Controllers int      // processes that can lead
	Members     int      // of etcd
	Planes      int      // default 2
	Ports       int      // of each plane
	Jobs        int      // that share the ports and contend for the planes
	Unfenced    int      // 1: switches do not know the tokens of controllers
	Repeats     int      // of operations, after which tickets go out ahead; 1: they never do
	Share       int      // 1: most operations keep their circuits, and halves of jobs have communicators
	Turns       int      // 1: each rank makes one call at a time, in the order of its job's program
	Operations  int      // after which the run heals and ends
	Faults      []string // names of the faults that may happen; empty: all
	Lines       bool     // fill Trace.Lines; without it a run is faster, and the trace has only its hash
}

// version is that of the model. A run is only comparable with runs of the same version.
const version = 2

// Result is what a run has shown.
type Result struct {
	Trace      trace.Trace
	Operations int           // that have ended, with success or not
	Ahead      int           // tickets that ranks used without asking
	Beside     int           // moves for communicators while others held the plane, too
	Time       time.Duration // simulated
	Coverage   Coverage      // which faults happened in which states
	Violation  error         // of the first invariant that did not hold; nil: all held
}

// complete returns c with its defaults.
func (c Config) complete() Config {
	for _, size := range c.Sizes() {
		*size.Value = cmp.Or(*size.Value, size.Default)
	}
	return c
}

// Run runs a world to its end: after cfg.Operations operations all faults end, and every job must be served again. The
// result depends on cfg and the choices only.
func Run(cfg Config, c Chooser) *Result {
	w, err := newWorld(cfg.complete(), c)
	if err != nil {
		return &Result{Violation: fmt.Errorf("%s: %w", panics, err)}
	}
	w.run()
	return w.result
}

// FaultNames returns the names of all faults, sorted.
func FaultNames() []string {
	var names []string
	for _, k := range faultKinds {
		names = append(names, k.name)
	}
	return names
}
