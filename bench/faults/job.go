package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"lightpath/bench"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/internal/monotonic"
	"lightpath/shim/status"
)

// job is the ranks of a scenario with their reports and errors so far. Each operation is a run of its own, so that
// every rank reports it when it ends.
type job struct {
	ctx    context.Context // of waits
	ranks  int
	cancel context.CancelFunc
	done   chan struct{} // closed when every process has ended, and err is set
	err    error

	mu      sync.Mutex
	process map[int]*os.Process
	spans   [][]span // by rank: its operations
	wrong   int64
	failed  map[int]failure // by rank
}

// span is the time that a rank spent in an operation.
type span struct{ start, end time.Time }

// failure is the error that a rank reported, and the time when the report arrived.
type failure struct {
	at   time.Time
	text string
}

// phase is some operations of one size. Ranks pause before each of them.
type phase struct {
	operations int
	bytes      int64
	pause      time.Duration
}

// lines returns the runs of a job: All-to-All, in which each step needs other circuits. If apart is set, ranks do not
// wait for each other before a run.
func lines(ranks int, phases []phase, apart bool) []string {
	var all []string
	for _, p := range phases {
		s := bench.Spec{
			Collective: schedule.AllToAll, Type: datatype.Float32, Op: datatype.Sum, Iters: 1, Check: true, Sync: !apart,
			Pause: p.pause,
		}
		line := s.RunLine(p.bytes, bench.Count(schedule.AllToAll, p.bytes, datatype.Float32, ranks), false)
		all = append(all, slices.Repeat([]string{line}, p.operations)...)
	}
	return all
}

// jobDeadline ends ranks that hang.
const jobDeadline = 3 * time.Minute

// startJob starts rank processes.
func startJob(ctx context.Context, worker string, env []string, ranks int, phases []phase, apart bool) *job {
	waits := ctx
	ctx, cancel := context.WithCancel(ctx)
	j := &job{
		ctx: waits, ranks: ranks, cancel: cancel, done: make(chan struct{}),
		process: make(map[int]*os.Process), spans: make([][]span, ranks), failed: make(map[int]failure),
	}
	r := bench.Ranks{
		N: ranks, Worker: worker, Transport: "shm", Env: env, NoBarrier: apart, Deadline: jobDeadline,
		OnReport: j.reported, OnStart: j.started, OnError: j.told,
	}
	go func() {
		defer close(j.done)
		defer cancel()
		_, j.err = r.Run(ctx, lines(ranks, phases, apart))
	}()
	return j
}

func (j *job) started(rank int, p *os.Process) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.process[rank] = p
}

func (j *job) reported(r bench.Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := span{time.Now(), time.Now()}
	if n := len(r.Iters); n > 0 { // by the rank's own clock, which is this host's
		now := monotonic.Now()
		ago := func(ns int64) time.Time { return at.end.Add(time.Duration(ns - now)) }
		at = span{ago(r.Iters[n-1][0]), ago(r.Iters[n-1][1])}
	}
	j.spans[r.Rank] = append(j.spans[r.Rank], at)
	j.wrong += r.Wrong
}

func (j *job) told(rank int, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed[rank] = failure{time.Now(), text}
}

// operations returns how many operations all ranks have completed.
func (j *job) operations() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := len(j.spans[0])
	for _, list := range j.spans {
		n = min(n, len(list))
	}
	return n
}

// wrongs returns how many elements of results were wrong.
func (j *job) wrongs() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.wrong
}

// completed returns the first operation that a rank had not completed at a time and that all ranks have completed now.
// It lasts from the start on the first rank to the end on the last.
func (j *job) completed(after time.Time) (whole span, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.spans[0] {
		whole = j.spans[0][i]
		for _, list := range j.spans {
			if i >= len(list) {
				return span{}, false
			}
			if list[i].start.Before(whole.start) {
				whole.start = list[i].start
			}
			if list[i].end.After(whole.end) {
				whole.end = list[i].end
			}
		}
		if whole.end.After(after) {
			return whole, true
		}
	}
	return span{}, false
}

// await waits until all ranks have completed n operations.
func (j *job) await(n int) error {
	return wait(j.ctx, fmt.Sprintf("the ranks have done %d operations", n), patience, func() (bool, error) {
		if j.operations() >= n {
			return true, nil
		}
		return false, j.running()
	})
}

// running reports why the job has ended, if it has.
func (j *job) running() error {
	if isClosed(j.done) {
		return fmt.Errorf("the ranks ended after %d operations: %w", j.operations(), errors.Join(j.err, errEnded))
	}
	return nil
}

// signal sends a signal to a rank.
func (j *job) signal(rank int, s os.Signal) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.process[rank]
	if p == nil {
		return fmt.Errorf("faults: rank %d has not been started", rank)
	}
	if err := p.Signal(s); err != nil {
		return fmt.Errorf("faults: rank %d: %w", rank, err)
	}
	return nil
}

// failures returns the errors of ranks, by rank.
func (j *job) failures() map[int]failure {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.failed)
}

// awaitFailures waits until every rank except but has reported an error. It returns the time of the last report.
func (j *job) awaitFailures(but ...int) (last time.Time, err error) {
	err = wait(j.ctx, "the ranks have failed", patience, func() (bool, error) {
		all := j.failures()
		last = time.Time{}
		for r := range j.ranks {
			f, failed := all[r]
			switch {
			case slices.Contains(but, r):
			case !failed:
				return false, j.running()
			case f.at.After(last):
				last = f.at
			}
		}
		return true, nil
	})
	return last, err
}

// text returns the error of the first rank that failed, except the ranks of but.
func (j *job) text(but ...int) string {
	first := failure{}
	for r, f := range j.failures() {
		if !slices.Contains(but, r) && (first.text == "" || f.at.Before(first.at)) {
			first = f
		}
	}
	return strings.TrimSpace(strings.TrimSuffix(first.text, status.ReportedByPeer))
}

// says reports whether a failure's text contains one of words, "a|b".
func (f failure) says(words string) bool { return containsAny(f.text, words) }

// containsAny reports whether text contains one of words, "a|b".
func containsAny(text, words string) bool {
	return slices.ContainsFunc(strings.Split(words, "|"), func(w string) bool { return strings.Contains(text, w) })
}

// named reports whether the error of any rank contains one of words.
func (j *job) named(words string) bool {
	for _, f := range j.failures() {
		if f.says(words) {
			return true
		}
	}
	return false
}

// stop ends the ranks.
func (j *job) stop() {
	j.cancel()
	<-j.done
}
