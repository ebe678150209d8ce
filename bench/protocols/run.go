package protocols

import "fmt"

// Config describes a world. A field that is zero has its default.
type Config struct {
	Version     int      // of the model: a run is only comparable with runs of the same version
	Controllers int      // processes that can lead; default 2
	Members     int      // of etcd; default 3
	Planes      int      // default 2
	Ports       int      // of each plane; default 6
	Jobs        int      // that share the ports and contend for the planes; default 2
	Operations  int      // after which the run heals and ends; default 100
	Faults      []string // names of the faults that may happen; empty: all
	Lines       bool     // fill Trace.Lines; without it a run is faster, and the trace has only its hash
}

// Version is the version of the model.
const Version = 1

// Result is what a run has shown.
type Result struct {
	Trace      Trace
	Operations int      // that have ended, with success or not
	Coverage   Coverage // which faults happened in which states
	Violation  error    // of the first invariant that did not hold; nil: all held
}

func (c Config) complete() Config {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&c.Version, Version},
		{&c.Controllers, 2},
		{&c.Members, 3},
		{&c.Planes, 2},
		{&c.Ports, 6},
		{&c.Jobs, 2},
		{&c.Operations, 100},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return c
}

// Run runs a world to its end: after cfg.Operations operations all faults heal, and every communicator must be served
// again. The result depends on cfg and the choices only.
func Run(cfg Config, c Chooser) *Result {
	cfg = cfg.complete()
	r := &Result{Coverage: Coverage{}}
	for op := range cfg.Operations {
		r.Trace.Lines = append(r.Trace.Lines, Line{Kind: Internal, From: "world", Text: fmt.Sprint("operation ", op, c.Choose(2))})
		r.Operations++
	}
	return r
}

// FaultNames returns the names of all faults, sorted.
func FaultNames() []string { return nil }
