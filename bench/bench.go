package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Options is one benchmark: what to time and where.
type Options struct {
	// Specs are timed one after the other by the same ranks. All have the same collective.
	Specs     []Spec
	Ranks     int
	Transport string // auto, shm, tcp, inproc, rdma or ebpf
	Fabric    string // fabric file; "": packet planes
	Planner   string // "": the runtime chooses
	Algorithm string // "": the runtime chooses
	Planes    int    // packet planes; 0: the runtime's default
	Worker    string // path of lightpath-rank
	Threads   bool   // see Ranks
	Buffers   Buffers
	Library   string // see Ranks
	Env       []string
	Deadline  time.Duration // for the whole job; 0: none
	// OnResult, when not nil, is called with each result as soon as the ranks that run here have reported it. The result
	// does not yet name the algorithm, the planner and the predicted time.
	OnResult func(Result)
	// World is set if a launcher such as mpirun started this process as one rank.
	World *World
}

// Run times o. Wrong elements are no error: [Result.Wrong] counts them.
func Run(ctx context.Context, o *Options) (*Document, error) {
	lines, points := o.runs()
	dir, err := os.MkdirTemp("", "lightpath-trace-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// If the user has set the variable, this run appends its part to that file.
	trace := cmp.Or(os.Getenv(traceVar), filepath.Join(dir, "trace"))
	begin := fileSize(trace)
	job := Ranks{
		N: o.Ranks, Worker: o.Worker, Transport: o.Transport, Deadline: o.Deadline, Threads: o.Threads,
		Buffers: o.Buffers, Library: o.Library, Env: append(o.environment(), traceVar+"="+trace), External: o.World,
	}
	if o.World != nil {
		if job.Rendezvous, err = rendezvous(o.World); err != nil {
			return nil, err
		}
		if o.World.Rank == 0 {
			defer os.Remove(job.Rendezvous)
		}
	}
	c := &collector{points: points, here: o.Ranks, onResult: o.OnResult, reports: make([][]Report, o.Ranks)}
	job.OnReport = c.add
	if o.World != nil {
		c.here = 1
		job.OnReport = func(r Report) {
			if r.Rank == 0 {
				os.Remove(job.Rendezvous) // all ranks have met; the next run of this job must not find this file
			}
			c.add(r)
		}
	}
	if _, err := job.Run(ctx, lines); err != nil {
		return nil, err
	}
	results, err := c.end()
	if err != nil {
		return nil, err
	}
	programs, err := ReadTrace(trace, begin)
	if err != nil {
		return nil, err
	}
	annotate(results, programs)
	return &Document{Ranks: o.Ranks, Transport: o.Transport, Results: results}, nil
}

// runs returns the runs of all specs as ranks read them, and the point of each.
func (o *Options) runs() (lines []string, points []point) {
	for i := range o.Specs {
		l, p := runLines(&o.Specs[i], o.Ranks)
		lines, points = append(lines, l...), append(points, p...)
	}
	return lines, points
}

// environment returns the variables for the settings that o states. Other settings stay as the user has them.
func (o *Options) environment() []string {
	env := append([]string(nil), o.Env...)
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

// rendezvous returns the file through which ranks of a launcher's job find each other on this host. All ranks of
// a job get the same file, and every job gets another one.
func rendezvous(w *World) (string, error) {
	dir := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
	dir = filepath.Join(dir, fmt.Sprintf("lightpath-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	parent := 0
	if !w.Unique {
		parent = os.Getppid()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d", w.Launcher, w.Job, parent, w.Size))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])), nil
}

// fileSize returns 0 for a file that does not exist.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
