package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Options is one benchmark: what to time and where.
type Options struct {
	// Ranks are started. [Run] adds the settings below to their Env, and uses their OnReport itself.
	Ranks Ranks
	// Specs are timed one after the other by the same ranks. All have the same collective.
	Specs     []Spec
	Fabric    string // fabric file; "": packet planes
	Planner   string // "": the runtime chooses
	Algorithm string // "": the runtime chooses
	Planes    int    // packet planes; 0: the runtime's default
	// OnResult, when not nil, is called with each result as soon as the ranks that run here have reported it. The result
	// does not yet name the algorithm, the planner and the predicted time.
	OnResult func(Result)
}

// Run times o. Wrong elements are no error: [Result.Wrong] counts them.
func Run(ctx context.Context, o *Options) (*Document, error) {
	lines, points := o.runs()
	dir, err := os.MkdirTemp("", "lightpath-trace-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// If the user has set the variable, this run appends its part to those files.
	trace := cmp.Or(os.Getenv(traceVar), filepath.Join(dir, "trace"))
	begin := traceSizes(trace)
	c := &collector{points: points, here: o.Ranks.N, onResult: o.OnResult, reports: make([][]Report, o.Ranks.N)}
	if o.Ranks.World != nil {
		c.here = 1
	}
	job := o.Ranks
	job.Env, job.OnReport = append(o.environment(), traceVar+"="+trace), c.add
	if _, err := job.Run(ctx, lines); err != nil {
		return nil, err
	}
	results, err := c.end()
	if err != nil {
		return nil, err
	}
	for file := range traceSizes(trace) {
		programs, err := ReadTrace(file, begin[file])
		if err != nil {
			return nil, err
		}
		annotate(results, programs)
	}
	return &Document{Ranks: o.Ranks.N, Transport: o.Ranks.Transport, Results: results}, nil
}

// runs returns the runs of all specs as ranks read them, and the point of each.
func (o *Options) runs() (lines []string, points []point) {
	for i := range o.Specs {
		l, p := runLines(&o.Specs[i], o.Ranks.N)
		lines, points = append(lines, l...), append(points, p...)
	}
	return lines, points
}

// environment returns the ranks' Env and the variables for the settings that o states. Other settings stay as the user
// has them.
func (o *Options) environment() []string {
	env := slices.Clone(o.Ranks.Env)
	if o.Fabric != "" {
		env = append(env, "LIGHTPATH_FABRIC="+o.Fabric)
	}
	if o.Planner != "" {
		env = append(env, "LIGHTPATH_PLANNER="+o.Planner)
	}
	if o.Algorithm != "" {
		env = append(env, fmt.Sprintf("LIGHTPATH_ALGORITHM=%s:%s", o.Specs[0].Collective, o.Algorithm))
	}
	if o.Planes > 0 {
		env = append(env, fmt.Sprintf("LIGHTPATH_PLANES=%d", o.Planes))
	}
	return env
}
