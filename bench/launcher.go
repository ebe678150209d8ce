package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"lightpath/shim/result"
)

// ErrRankFailed reports that a rank ended with an error; the text is the rank's own.
var ErrRankFailed = errors.New("bench: a rank failed")

// ErrEnded reports a process that was needed still and has ended without an error of its own.
var ErrEnded = errors.New("exit status 0")

// Report is one run as one rank saw it.
type Report struct {
	Rank       int        `json:"rank"`
	Collective string     `json:"collective"`
	Bytes      int64      `json:"bytes"`
	Count      int64      `json:"count"`
	InPlace    int        `json:"inplace"`
	TimeUS     float64    `json:"time_us"`
	Iters      [][2]int64 `json:"iters_ns"` // sync runs: start and end, CLOCK_MONOTONIC
	Wrong      int64      `json:"wrong"`
	Error      string     `json:"error"`
	Result     int        `json:"result"`
}

// Ranks says how rank processes are started.
type Ranks struct {
	N int // ranks of the job
	// External is set where somebody else started the other ranks: only World.Rank is started
	// here, and Rendezvous is the file through which the ranks find each other.
	External   *World
	Rendezvous string
	Worker     string // path of lightpath-rank
	Transport  string // auto, shm, tcp or inproc, which is threads of one process
	Threads    bool   // with any transport
	Buffers    Buffers
	Library    string // libnccl.so.2 that ranks use instead of the one beside them; "" is that one
	Env        []string
	// Apart has ranks meet in collectives only: no barrier that the others would wait in for one
	// that is gone. Runs of mode=sync need that barrier.
	Apart    bool
	Deadline time.Duration // for the whole job; 0 is none
	// OnReport, when set, is called for every report as it arrives, one call at a time.
	OnReport func(Report)
	// OnStart, when set, is called with every process of ranks as it is started, for faults to be
	// done to it; OnError with what a rank says of its failure, as it says it, one call at a time.
	OnStart func(rank int, p *os.Process)
	OnError func(rank int, text string)

	grace time.Duration // 0: failureGrace
}

// Run starts the ranks, feeds them the run lines and returns the reports of each rank in
// order. The first rank that fails stops the others (after a moment in which they may say
// what they saw); the error then holds every rank's own message.
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
	job := &job{ranks: r, dir: dir, reports: make([][]Report, r.N)}
	return job.run(ctx, lines)
}

// job is one start of all ranks.
type job struct {
	ranks *Ranks
	dir   string

	mu      sync.Mutex
	reports [][]Report  // by rank
	errs    []rankError // in order of arrival
}

func (j *job) run(ctx context.Context, lines []string) ([][]Report, error) {
	first, processes, threads := 0, j.ranks.N, 1
	switch {
	case j.ranks.External != nil:
		first, processes = j.ranks.External.Rank, 1
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
		cmd, err := j.start(ctx, p, threads, lines)
		if err != nil {
			cancel()
			wg.Wait()
			return nil, err
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			// After the first failure the others have time to report what they saw; then
			// whoever is left is stopped.
			j.watch(ctx, p, cmd, func() { time.AfterFunc(grace, cancel) })
		}()
	}
	wg.Wait()
	switch {
	case len(j.errs) == 0:
		return j.reports, nil
	case errors.Is(whole.Err(), context.DeadlineExceeded) && j.ranks.Deadline > 0:
		return j.reports, fmt.Errorf("%w: not done within %v; %s", ErrRankFailed, j.ranks.Deadline, summary(j.errs))
	case whole.Err() != nil:
		return j.reports, whole.Err()
	}
	return j.reports, fmt.Errorf("%w: %s", ErrRankFailed, summary(j.errs))
}

// failureGrace is how long ranks have to report after the first of them failed.
const failureGrace = 5 * time.Second

func (j *job) start(ctx context.Context, rank, threads int, lines []string) (*rankProcess, error) {
	file := jobFile{
		rank: rank, world: j.ranks.N, threads: threads, runs: lines,
		rendezvous: filepath.Join(j.dir, "unique-id"), barrier: filepath.Join(j.dir, "barrier"),
		buffers: j.ranks.Buffers, library: j.ranks.Library,
	}
	if j.ranks.External != nil {
		file.rendezvous, file.barrier = j.ranks.Rendezvous, ""
	}
	if j.ranks.Apart {
		file.barrier = ""
	}
	path := filepath.Join(j.dir, fmt.Sprintf("job-%d", rank))
	if err := os.WriteFile(path, file.encode(), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, j.ranks.Worker, "--job", path)
	cmd.Env = append(os.Environ(), j.ranks.Env...)
	if t := j.ranks.Transport; t != "" {
		cmd.Env = append(cmd.Env, "LIGHTPATH_TRANSPORT="+t)
	}
	if l := j.ranks.Library; l != "" {
		path := filepath.Dir(l)
		if others := os.Getenv("LD_LIBRARY_PATH"); others != "" {
			path += string(filepath.ListSeparator) + others
		}
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+path)
	}
	// A rank must not outlive its launcher.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &rankProcess{cmd: cmd, out: out}
	cmd.Stderr = &p.stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: cannot start rank %d: %w (build it with make)", rank, err)
	}
	if j.ranks.OnStart != nil {
		j.ranks.OnStart(rank, cmd.Process)
	}
	return p, nil
}

type rankProcess struct {
	cmd    *exec.Cmd
	out    io.Reader
	stderr Tail
}

// watch reads a process's reports until it ends. It calls failed at the first sign of a
// failure, which may be long before the end.
func (j *job) watch(ctx context.Context, process int, p *rankProcess, failed func()) {
	lines := bufio.NewScanner(p.out)
	lines.Buffer(make([]byte, 64<<10), 16<<20)
	said := false
	fail := func(rank int, text string) {
		if !said {
			said = true
			j.fail(rank, text)
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
		case err != nil || r.Rank < 0 || r.Rank >= len(j.reports):
			fail(process, fmt.Sprintf("unreadable report %.200q", text))
		case r.Error != "":
			fail(r.Rank, r.Error)
		default:
			j.add(r)
		}
	}
	if err := lines.Err(); err != nil {
		fail(process, err.Error())
		_, _ = io.Copy(io.Discard, p.out) // a full pipe would keep the rank from ending
	}
	switch err := p.cmd.Wait(); {
	case err == nil:
	case ctx.Err() != nil:
		fail(process, "did not end and was stopped")
	default:
		fail(process, strings.TrimSpace(fmt.Sprintf("%v %s", err, p.stderr.String())))
	}
}

// rankError is what one rank said of its failure.
type rankError struct {
	rank int
	text string
}

// summary joins what ranks said, once each: when one fails, the others mostly repeat it.
func summary(errs []rankError) string {
	var texts []string
	said := map[string][]int{}
	for _, e := range errs {
		text := strings.TrimSuffix(e.text, result.ReportedByPeer)
		if said[text] == nil {
			texts = append(texts, text)
		}
		said[text] = append(said[text], e.rank)
	}
	for i, text := range texts {
		if who := said[text]; len(who) == 1 {
			texts[i] = fmt.Sprintf("rank %d: %s", who[0], text)
		} else {
			slices.Sort(who)
			texts[i] = fmt.Sprintf("ranks %s: %s", strings.Trim(fmt.Sprint(who), "[]"), text)
		}
	}
	return strings.Join(texts, "; ")
}

func (j *job) fail(rank int, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.errs = append(j.errs, rankError{rank, text})
	if j.ranks.OnError != nil {
		j.ranks.OnError(rank, text)
	}
}

func (j *job) add(r Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reports[r.Rank] = append(j.reports[r.Rank], r)
	if j.ranks.OnReport != nil {
		j.ranks.OnReport(r)
	}
}

// Tail keeps the last bytes written to it: enough of a process's standard error to explain. The zero
// value is ready; any number of goroutines may write.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 2000

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > tailBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
