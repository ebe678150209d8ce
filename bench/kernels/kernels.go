// Package kernels measures what reductions get out of memory, beside STREAM: the kernels of package datatype and the
// folding of package shared on buffers beyond the caches, by turns with STREAM's loops in C on as many threads.
//
// Layer: bench.
package kernels

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"lightpath/bench"
	"lightpath/collectives/datatype"
	"lightpath/collectives/sharedmem"
)

// Options say what is measured.
type Options struct {
	Stream  string // path of lightpath-stream
	Type    datatype.Type
	Op      datatype.Op
	Bytes   int   // of a buffer, all threads together
	Threads []int // one table for each
	Sources []int // of folds, two at least each
	Rounds  int   // of which every kernel has one turn in each
}

// Line is one kernel on one number of threads.
type Line struct {
	Threads int    `json:"threads"`
	Name    string `json:"name"`
	Stream  bool   `json:"stream"` // it is STREAM's
	// Arrays is how many buffers' worth of bytes a turn must move through memory; an ordinary store's reading of the
	// line before it is not counted, as STREAM does not count it.
	Arrays int     `json:"arrays"`
	Best   float64 `json:"best_gb_s"`
	Median float64 `json:"median_gb_s"`
	// OfAdd are the best and the median over those of STREAM's better addition, of the same threads.
	OfAdd       float64 `json:"of_add"`
	OfAddMedian float64 `json:"of_add_median"`

	run func() (time.Duration, error)
	ns  []float64
}

// Run measures on one number of threads after the other.
func Run(ctx context.Context, o *Options) ([]*Line, error) {
	var all []*Line
	for _, n := range o.Threads {
		lines, err := onThreads(ctx, o, n)
		if err != nil {
			return all, fmt.Errorf("kernels: %d threads: %w", n, err)
		}
		all = append(all, lines...)
	}
	return all, nil
}

func onThreads(ctx context.Context, o *Options, threads int) ([]*Line, error) {
	stream, err := startStream(ctx, o, threads)
	if err != nil {
		return nil, err
	}
	defer stream.stop()
	lines := append(stream.lines(threads), ours(o, threads)...)
	for round := -1; round < o.Rounds; round++ { // the first touches memory
		for _, l := range lines {
			took, err := l.run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.Name, err)
			}
			if round >= 0 {
				l.ns = append(l.ns, float64(took.Nanoseconds()))
			}
		}
	}
	judge(lines, o.Bytes)
	return lines, nil
}

// judge turns times into rates.
func judge(lines []*Line, bytes int) {
	var best, median float64
	for _, l := range lines {
		slices.Sort(l.ns)
		moved := float64(l.Arrays * bytes)
		l.Best, l.Median = moved/l.ns[0], moved/l.ns[len(l.ns)/2]
		if l.Stream && strings.HasPrefix(l.Name, "add") {
			best, median = max(best, l.Best), max(median, l.Median)
		}
	}
	for _, l := range lines {
		l.OfAdd, l.OfAddMedian = l.Best/best, l.Median/median
	}
}

// ours are the kernels, each of which has as many buffers as it needs out of the same ones.
func ours(o *Options, threads int) []*Line {
	most := slices.Max(append([]int{2}, o.Sources...))
	per := o.Bytes / threads &^ 63
	dst := make([][]byte, threads)
	src := make([][][]byte, threads)
	for t := range threads {
		dst[t], src[t] = make([]byte, per), make([][]byte, most)
		for i := range src[t] {
			src[t][i] = ones(per)
		}
	}
	reduce, combine := datatype.Reduce(o.Op, o.Type), datatype.Combine(o.Op, o.Type)
	name := o.Op.String() + " "
	lines := []*Line{
		{Name: "copy past the caches", Arrays: 2, run: together(threads, func(t int) { datatype.Stream(dst[t], src[t][0]) })},
		{Name: name + "into a source", Arrays: 3, run: together(threads, func(t int) { reduce(dst[t], src[t][1]) })},
		{Name: name + "of 2", Arrays: 3, run: together(threads, func(t int) { combine(dst[t], src[t][0], src[t][1]) })},
	}
	for _, n := range o.Sources {
		lines = append(lines, &Line{
			Name: fmt.Sprintf("%sof %d past the caches", name, n), Arrays: n + 1,
			run: together(threads, func(t int) { sharedmem.FoldPastCaches(o.Op, o.Type, dst[t], src[t][:n]) }),
		})
	}
	for _, l := range lines {
		l.Threads = threads
	}
	return lines
}

// ones is memory of ordinary numbers.
func ones(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0x3c // 0.01 to 1.1 as a float of any size
	}
	return b
}

// together times work on so many threads, from when all may begin until all have ended.
func together(threads int, work func(thread int)) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		begin := make(chan struct{})
		var ready, done sync.WaitGroup
		for t := range threads {
			ready.Add(1)
			done.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				ready.Done()
				<-begin
				work(t)
			})
		}
		ready.Wait()
		start := time.Now()
		close(begin)
		done.Wait()
		return time.Since(start), nil
	}
}

// streamer is a process of lightpath-stream.
type streamer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	said bench.Tail // whole once stop has returned
	stop func()     // ends the process, the first time
}

func startStream(ctx context.Context, o *Options, threads int) (*streamer, error) {
	s := &streamer{cmd: exec.CommandContext(ctx, o.Stream, strconv.Itoa(o.Bytes), strconv.Itoa(threads))}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = &s.said
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	s.stop = sync.OnceFunc(func() {
		_ = s.in.Close() // which ends it
		_ = s.cmd.Wait() // whatever it says: what was asked has been answered
	})
	return s, s.cmd.Start()
}

func (s *streamer) lines(threads int) []*Line {
	var all []*Line
	for _, l := range []Line{{Name: "copy", Arrays: 2}, {Name: "add", Arrays: 3}, {Name: "triad", Arrays: 3}} {
		for _, kind := range []string{"", "-nt"} {
			l := l
			l.Name += kind
			l.Threads, l.Stream = threads, true
			l.run = func() (time.Duration, error) { return s.time(l.Name) }
			all = append(all, &l)
		}
	}
	return all
}

// time has the process run a loop once.
func (s *streamer) time(loop string) (time.Duration, error) {
	if _, err := fmt.Fprintln(s.in, loop); err != nil {
		return 0, s.ended(err)
	}
	if !s.out.Scan() {
		return 0, s.ended(bench.ErrEnded)
	}
	ns, err := strconv.ParseInt(s.out.Text(), 10, 64)
	if err != nil || ns <= 0 {
		return 0, fmt.Errorf("lightpath-stream says %q for a time", s.out.Text())
	}
	return time.Duration(ns), nil
}

// ended is the error of a process that has, with what it said.
func (s *streamer) ended(err error) error {
	s.stop()
	return fmt.Errorf("lightpath-stream: %w %s", err, s.said.String())
}
