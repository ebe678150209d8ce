package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"lightpath/shim/status"
)

// ErrRankFailed reports that a rank ended with an error; the text is the rank's own.
var ErrRankFailed = errors.New("bench: a rank failed")

// Report is one run as one rank saw it.
type Report struct {
	Rank       int        `json:"rank"`
	Collective string     `json:"collective"`
	Bytes      int64      `json:"bytes"`
	Count      int64      `json:"count"`
	InPlace    int        `json:"inplace"`
	TimeUS     float64    `json:"time_us"`
	CPUUS      float64    `json:"cpu_us"`   // processor time of the rank's process per call, in loops
	Iters      [][2]int64 `json:"iters_ns"` // sync runs: start and end, CLOCK_MONOTONIC
	Wrong      int64      `json:"wrong"`
	Error      string     `json:"error"`
	Result     int        `json:"result"`

	// A rank of a launched job asks for these; they are no reports of runs.
	UniqueID string `json:"unique_id"` // for the other ranks
	Barrier  bool   `json:"barrier"`
}

// Ranks says how rank processes are started.
type Ranks struct {
	N int // ranks of the job
	// World is set if a launcher such as mpirun started this process as one rank: only World.Rank is started here.
	World *World
	// Launch, when not nil, returns the command that starts a process on the host of a rank, such as ssh and the host's
	// name; it is empty for ranks of this host. The ranks then need no files and no clock in common: they take their job,
	// the unique id and barriers over standard input. The command must pass its arguments on, as ssh and env do.
	Launch    func(rank int) []string
	Worker    string // path of lightpath-rank
	Transport string // LIGHTPATH_TRANSPORT; inproc implies Threads; "": as in the environment
	Threads   bool   // ranks are threads of one process
	Buffers   Buffers
	Library   string // libnccl.so.2 that ranks load; "": the one beside them
	Env       []string
	// NoBarrier starts ranks without the barrier between timed iterations, in which ranks would wait for a rank that
	// has ended. Runs of mode=sync need the barrier.
	NoBarrier bool
	Deadline  time.Duration // for the whole job; 0: none
	// OnReport, when not nil, is called for every report as it arrives, one call at a time.
	OnReport func(Report)
	// OnStart, when not nil, is called with every rank process after its start, so that the caller can inject faults.
	OnStart func(rank int, p *os.Process)
	// OnError, when not nil, is called with the error of each rank as it arrives, one call at a time.
	OnError func(rank int, text string)

	grace time.Duration // 0: failureGrace
}

// Run starts the ranks, sends them the run lines and returns the reports of each rank in order. After the first rank
// has failed, the others have a moment to report their errors and are then stopped. The first line of the error has
// the rank at fault and its reason. A line for each other message follows.
func (r *Ranks) Run(ctx context.Context, lines []string) ([][]Report, error) {
	dir, err := os.MkdirTemp("", "lightpath-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if r.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	job := &job{ranks: r, dir: dir, rendezvous: filepath.Join(dir, "unique-id"), reports: make([][]Report, r.N)}
	if r.World != nil {
		if job.rendezvous, err = r.World.rendezvous(); err != nil {
			return nil, err
		}
		if r.World.Rank == 0 {
			defer os.Remove(job.rendezvous)
		}
	}
	return job.run(ctx, lines)
}

// job is one start of all ranks.
type job struct {
	ranks      *Ranks
	dir        string
	rendezvous string // file in which rank 0 leaves the unique id

	mu      sync.Mutex
	reports [][]Report  // by rank
	errs    []rankError // in order of arrival
	meeting meeting
}

func (j *job) run(ctx context.Context, lines []string) ([][]Report, error) {
	first, processes, threads := 0, j.ranks.N, 1
	switch {
	case j.ranks.World != nil:
		first, processes = j.ranks.World.Rank, 1
	case j.ranks.Threads || j.ranks.Transport == "inproc":
		processes, threads = 1, j.ranks.N
	}
	whole := ctx
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	grace := j.ranks.grace
	if grace == 0 {
		grace = failureGrace
	}
	var wg sync.WaitGroup
	for p := first; p < first+processes; p++ {
		rank, err := j.start(ctx, p, threads, lines)
		if err != nil {
			cancel()
			wg.Wait()
			return nil, err
		}
		wg.Go(func() { j.watch(ctx, p, rank, func() { time.AfterFunc(grace, cancel) }) })
	}
	j.meeting.begin()
	wg.Wait()
	switch {
	case len(j.errs) == 0:
		return j.reports, nil
	case errors.Is(whole.Err(), context.DeadlineExceeded) && j.ranks.Deadline > 0:
		return j.reports, fmt.Errorf("%w: not done within %v: %s", ErrRankFailed, j.ranks.Deadline, summary(j.errs))
	case whole.Err() != nil:
		return j.reports, whole.Err()
	}
	return j.reports, fmt.Errorf("%w: %s", ErrRankFailed, summary(j.errs))
}

// failureGrace is how long ranks have to report their errors after the first of them failed.
const failureGrace = 5 * time.Second

// start starts the process of a rank, or of all ranks as threads.
func (j *job) start(ctx context.Context, rank, threads int, lines []string) (*rankProcess, error) {
	file := jobFile{
		rank: rank, world: j.ranks.N, threads: threads, runs: lines,
		rendezvous: j.rendezvous, barrier: filepath.Join(j.dir, "barrier"),
		buffers: j.ranks.Buffers, library: j.ranks.Library,
	}
	if j.ranks.NoBarrier || j.ranks.World != nil {
		file.barrier = ""
	}
	p, err := j.command(ctx, rank, &file)
	if err != nil {
		return nil, err
	}
	if p.out, err = p.StdoutPipe(); err != nil {
		return nil, err
	}
	p.Cancel = func() error {
		p.frozen = status.ProcessAnswer(p.Process.Pid) == status.Stopped
		return p.Process.Kill()
	}
	if err := p.Start(); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("bench: cannot start rank %d: %w (build it with make)", rank, err)
	} else if err != nil {
		return nil, fmt.Errorf("bench: cannot start rank %d: %w", rank, err)
	}
	if j.ranks.OnStart != nil {
		j.ranks.OnStart(rank, p.Process)
	}
	return p, nil
}

// command returns the process of a rank, not started, and leaves it its job.
func (j *job) command(ctx context.Context, rank int, file *jobFile) (*rankProcess, error) {
	if j.ranks.Launch != nil {
		argv := append(slices.Clone(j.ranks.Launch(rank)), "env")
		argv = append(append(argv, j.ranks.environment()...), j.ranks.Worker, "--job", launched)
		p := &rankProcess{Child: NewChild(ctx, argv...)}
		file.rendezvous, file.barrier = launched, launched
		input, err := p.StdinPipe()
		if err != nil {
			return nil, err
		}
		j.meeting.join(input, file.encode())
		return p, nil
	}
	path := filepath.Join(j.dir, fmt.Sprintf("job-%d", rank))
	p := &rankProcess{Child: NewChild(ctx, j.ranks.Worker, "--job", path)}
	p.Env = append(os.Environ(), j.ranks.environment()...)
	return p, os.WriteFile(path, file.encode(), 0o600)
}

// environment returns what the ranks have in their environment besides that of this process.
func (r *Ranks) environment() []string {
	env := slices.Clone(r.Env)
	if r.Transport != "" {
		env = append(env, "LIGHTPATH_TRANSPORT="+r.Transport)
	}
	if r.Library != "" {
		path := filepath.Dir(r.Library)
		if others := os.Getenv("LD_LIBRARY_PATH"); others != "" {
			path += string(filepath.ListSeparator) + others
		}
		env = append(env, "LD_LIBRARY_PATH="+path)
	}
	return env
}

// rankProcess is a started process and its standard output.
type rankProcess struct {
	*Child
	out    io.Reader
	frozen bool // when the launcher stopped it: a signal or a debugger had suspended it
}

// watch reads a process's reports until it ends. It calls failed at the first sign of a failure, which may be long
// before the end.
func (j *job) watch(ctx context.Context, process int, p *rankProcess, failed func()) {
	lines := bufio.NewScanner(p.out)
	lines.Buffer(make([]byte, 64<<10), 16<<20)
	reported := false
	fail := func(rank int, how end, text string) {
		if !reported {
			reported = true
			j.fail(rankError{rank, how, text})
			failed()
		}
	}
	for lines.Scan() {
		text := lines.Bytes()
		if !bytes.HasPrefix(text, []byte("{")) {
			fmt.Fprintf(os.Stderr, "%s\n", text) // the library's log (NCCL_DEBUG)
			continue
		}
		var r Report
		switch err := json.Unmarshal(text, &r); {
		case err == nil && (r.Barrier || r.UniqueID != ""):
			j.meeting.arrive(process, r.UniqueID)
		case err != nil || r.Rank < 0 || r.Rank >= len(j.reports):
			fail(process, said, fmt.Sprintf("unreadable report %.200q", text))
		case r.Error != "":
			fail(r.Rank, said, r.Error)
		default:
			j.add(r)
		}
	}
	if err := lines.Err(); err != nil {
		fail(process, said, err.Error())
		_, _ = io.Copy(io.Discard, p.out) // a full pipe would keep the rank from ending
	}
	switch err := p.Wait(); {
	case err == nil:
		fmt.Fprint(os.Stderr, p.notices())
	case p.frozen:
		fail(process, died, "its process was suspended (SIGSTOP or a debugger)")
	case ctx.Err() != nil:
		fail(process, stopped, "did not end; stopped")
	default:
		fail(process, died, p.Explain(err).Error())
	}
}

func (j *job) fail(e rankError) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.errs = append(j.errs, e)
	if j.ranks.OnError != nil {
		j.ranks.OnError(e.rank, e.text)
	}
}

func (j *job) add(r Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reports[r.Rank] = append(j.reports[r.Rank], r)
	if j.ranks.World != nil && r.Rank == 0 {
		os.Remove(j.rendezvous) // all ranks have met; the next run of this job must not find this file
	}
	if j.ranks.OnReport != nil {
		j.ranks.OnReport(r)
	}
}
