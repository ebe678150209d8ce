package kernels

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"lightpath/bench/sampling"
	"lightpath/collectives/datatype"
	"lightpath/collectives/sharedmem"
)

// Options say what to measure.
type Options struct {
	Stream  string // path of lightpath-stream
	Type    datatype.Type
	Op      datatype.Op
	Bytes   int   // of a buffer, all threads together
	Threads []int // numbers of threads
	Sources []int // numbers of buffers of a fold, at least 2 each
	Rounds  int   // samples of every kernel
}

// Line is one kernel on one number of threads.
type Line struct {
	Threads int    `json:"threads"`
	Name    string `json:"name"`
	Stream  bool   `json:"stream"` // a loop of STREAM
	// Arrays is how many buffers a run must move through memory. As in STREAM, an ordinary store counts once,
	// although it first reads its cache line.
	Arrays int     `json:"arrays"`
	Best   float64 `json:"best_gb_s"`
	Median float64 `json:"median_gb_s"`
	// OfAdd and OfAddMedian are Best and Median over those of STREAM's faster addition on as many threads.
	OfAdd       float64 `json:"of_add"`
	OfAddMedian float64 `json:"of_add_median"`

	run func() (time.Duration, error)
	ns  []float64
}

// Run measures on one number of threads after the other.
func Run(ctx context.Context, o *Options) ([]*Line, error) {
	var all []*Line
	for _, n := range o.Threads {
		lines, err := o.onThreads(ctx, n)
		if err != nil {
			return all, fmt.Errorf("kernels: %d threads: %w", n, err)
		}
		all = append(all, lines...)
	}
	return all, nil
}

func (o *Options) onThreads(ctx context.Context, threads int) ([]*Line, error) {
	stream, err := startStream(ctx, o, threads)
	if err != nil {
		return nil, err
	}
	defer stream.stop()
	lines := append(stream.lines(threads), o.kernels(threads)...)
	for round := range 1 + o.Rounds { // round 0 touches the memory
		for i := range sampling.Turns(round, len(lines)) {
			l := lines[i]
			took, err := l.run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.Name, err)
			}
			if round > 0 {
				l.ns = append(l.ns, float64(took.Nanoseconds()))
			}
		}
	}
	rate(lines, o.Bytes)
	return lines, nil
}

// rate turns times into rates.
func rate(lines []*Line, bytes int) {
	var best, median float64
	for _, l := range lines {
		moved := float64(l.Arrays * bytes)
		l.Best, l.Median = moved/slices.Min(l.ns), moved/sampling.Median(l.ns)
		if l.Stream && strings.HasPrefix(l.Name, "add") {
			best, median = max(best, l.Best), max(median, l.Median)
		}
	}
	for _, l := range lines {
		l.OfAdd, l.OfAddMedian = l.Best/best, l.Median/median
	}
}

// kernels returns a line for each kernel of Lightpath. All share the same buffers.
func (o *Options) kernels(threads int) []*Line {
	most := slices.Max(append([]int{2}, o.Sources...))
	per := o.Bytes / threads &^ 63
	dst := make([][]byte, threads)
	src := make([][][]byte, threads)
	for t := range threads {
		dst[t], src[t] = make([]byte, per), make([][]byte, most)
		for i := range src[t] {
			src[t][i] = ordinaryNumbers(per)
		}
	}
	reduce, combine := datatype.Reduce(o.Op, o.Type), datatype.Combine(o.Op, o.Type)
	copyOne := func(t int) { datatype.Stream(dst[t], src[t][0]) }
	reduceInto := func(t int) { reduce(dst[t], src[t][1]) }
	combineTwo := func(t int) { combine(dst[t], src[t][0], src[t][1]) }
	name := o.Op.String() + " "
	lines := []*Line{
		{Name: "copy past the caches", Arrays: 2, run: onAll(threads, copyOne)},
		{Name: name + "into a source", Arrays: 3, run: onAll(threads, reduceInto)},
		{Name: name + "of 2", Arrays: 3, run: onAll(threads, combineTwo)},
	}
	for _, n := range o.Sources {
		fold := func(t int) { sharedmem.FoldPastCaches(o.Op, o.Type, dst[t], src[t][:n]) }
		lines = append(lines, &Line{
			Name: fmt.Sprintf("%sof %d past the caches", name, n), Arrays: n + 1, run: onAll(threads, fold),
		})
	}
	for _, l := range lines {
		l.Threads = threads
	}
	return lines
}

// ordinaryNumbers returns n bytes that are numbers from 0.01 to 1.1 as floats of any size. Denormal numbers would be
// slower.
func ordinaryNumbers(n int) []byte { return slices.Repeat([]byte{0x3c}, n) }

// onAll returns a function that times work on all threads: from the moment when all may begin until all have ended.
func onAll(threads int, work func(thread int)) func() (time.Duration, error) {
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
