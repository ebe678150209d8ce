package bench

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Options is one benchmark: what to time and where.
type Options struct {
	Spec
	Ranks     int
	Transport string // auto, shm, tcp, inproc
	Fabric    string // fabric file; "" is packet planes
	Planner   string // "" is the runtime's choice
	Algorithm string // "" is the runtime's choice
	Planes    int    // packet planes; 0 is the runtime's default
	Worker    string // path of lightpath-rank
	Threads   bool   // as in Ranks
	Buffers   Buffers
	Library   string // as in Ranks
	Env       []string
	Deadline  time.Duration
	// Progress, when set, hears of every size that rank 0 (or the only local rank) finished.
	Progress func(done, total int, r Report)
	// World is set where a launcher such as mpirun started this process as one rank.
	World *World
}

// Run times o. The document is complete only without an error; wrong elements are not an
// error but Result.Wrong.
func Run(ctx context.Context, o *Options) (*Document, error) {
	lines, points := runLines(&o.Spec, o.Ranks)
	dir, err := os.MkdirTemp("", "lightpath-trace-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	trace := filepath.Join(dir, "trace")
	job := Ranks{
		N: o.Ranks, Worker: o.Worker, Transport: o.Transport, Deadline: o.Deadline, Threads: o.Threads, Buffers: o.Buffers, Library: o.Library,
		Env: append(o.environment(), "LIGHTPATH_TRACE="+trace), External: o.World,
	}
	if o.World != nil {
		if job.Rendezvous, err = rendezvous(o.World); err != nil {
			return nil, err
		}
		if o.World.Rank == 0 {
			defer os.Remove(job.Rendezvous)
		}
	}
	done, first := 0, o.firstLocal()
	job.OnReport = func(r Report) {
		if done == 0 && first == 0 && o.World != nil {
			// All ranks have met, and the next run of this job must not meet the same way.
			os.Remove(job.Rendezvous)
		}
		if r.Rank == first {
			if done++; o.Progress != nil {
				o.Progress(done, len(points), r)
			}
		}
	}
	reports, err := job.Run(ctx, lines)
	if err != nil {
		return nil, err
	}
	results, err := collect(&o.Spec, o.Ranks, points, reports)
	if err != nil {
		return nil, err
	}
	if err := annotate(results, trace); err != nil {
		return nil, err
	}
	return &Document{Ranks: o.Ranks, Transport: o.Transport, Results: results}, nil
}

func (o *Options) firstLocal() int {
	if o.World != nil {
		return o.World.Rank
	}
	return 0
}

func (o *Options) environment() []string {
	env := append([]string(nil), o.Env...)
	if o.Fabric != "" {
		env = append(env, "LIGHTPATH_FABRIC="+o.Fabric)
	}
	if o.Planner != "" {
		env = append(env, "LIGHTPATH_PLANNER="+o.Planner)
	}
	if o.Algorithm != "" {
		env = append(env, fmt.Sprintf("LIGHTPATH_ALGORITHM=%s:%s", o.Collective, o.Algorithm))
	}
	if o.Planes > 0 {
		env = append(env, fmt.Sprintf("LIGHTPATH_PLANES=%d", o.Planes))
	}
	return env
}

// rendezvous names the file through which ranks of a foreign launcher's job on this host
// find each other: the same for all of them and another for every job.
func rendezvous(w *World) (string, error) {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = os.TempDir()
	}
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

// traceRecord is what the runtime writes about each program it makes (LIGHTPATH_TRACE).
type traceRecord struct {
	Event       string  `json:"event"`
	Collective  string  `json:"collective"`
	Count       int64   `json:"count"` // elements per block, as the call has it
	InPlace     bool    `json:"in_place"`
	Algorithm   string  `json:"algorithm"`
	Planner     string  `json:"planner"`
	PredictedUS float64 `json:"predicted_us"`
}

// annotate adds the algorithm, planner and prediction of each result from the trace: the last
// program made for its shape is the one that the timed iterations ran.
func annotate(results []Result, trace string) error {
	f, err := os.Open(trace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var t traceRecord
		if json.Unmarshal(lines.Bytes(), &t) != nil || t.Event != "program" {
			continue
		}
		for i := range results {
			r := &results[i]
			// A call in place may share the program of its out-of-place twin.
			if r.Collective == t.Collective && r.Count == t.Count && (r.InPlace == t.InPlace || r.Algorithm == "") {
				r.Algorithm, r.Planner, r.PredictedUS = t.Algorithm, t.Planner, t.PredictedUS
			}
		}
	}
	return lines.Err()
}
