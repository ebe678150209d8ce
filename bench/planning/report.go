package planning

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"lightpath/bench/figure"
	"lightpath/collectives/schedule"
)

// Paper is the name under which reports stand beside the papers' figures.
const Paper = "lightpath"

// machine describes the machine on which a report was made.
type machine struct {
	CPU  string  `json:"cpu"`
	CPUs int     `json:"cpus"`
	Go   string  `json:"go"`
	OS   string  `json:"os"`
	Load float64 `json:"load_1min_before"` // of the system before the run
}

// Reports are the reports. Their Facts say on what machine and when they were measured.
var Reports = figure.Catalogue{
	report("swot", "SWOT's instances at 1 s and 10 s, beside Strawman, the paper and CBC at 120 s", swot),
	report("harvest", "synthesis time, allocations, and the printed ratios that follow from the model", harvest),
	report("spectra", "time of the fast mode; gaps over families, switches and delays", spectraReport),
	report("rounds", "rounds of experts whose matrix changes, by the circuits that their planes begin with", roundsReport),
	report("scale", "All-to-All on 256 to 4096 ranks and 16 to 64 planes: distance to the bound, time, memory",
		scaleReport),
	report("iteration", "exposed communication of whole iterations over the switching time, beside the baselines",
		iterationReport),
	report("cache", "a hit, and how many intervals of sizes cover a call", cacheReport),
	report("weave", "ratio to the best of the others, cyclic recursive doubling",
		weaveGrid{schedule.AllReduce, "recursive-doubling", []int{8, 32, 128, 256}, []int{1, 2, 4, 8}}.run),
	report("weave-rabenseifner", "the same for Rabenseifner's AllReduce",
		weaveGrid{schedule.AllReduce, "rabenseifner", []int{32, 128}, []int{2, 4}}.run),
	report("weave-swing", "the same for Swing's AllReduce",
		weaveGrid{schedule.AllReduce, "swing", []int{32, 128}, []int{2, 4}}.run),
	report("weave-bruck", "the same for Bruck's All-to-All",
		weaveGrid{schedule.AllToAll, "bruck", []int{32, 128}, []int{2, 4}}.run),
	report("weave-pairwise", "the same for pairwise All-to-All",
		weaveGrid{schedule.AllToAll, "pairwise", []int{8, 16, 32}, []int{1, 2}}.run),
}

// report returns the entry of a report, which adds the facts about the measurement.
func report(name, about string, run func(context.Context, figure.Options) (*figure.Figure, error)) figure.Entry {
	return figure.Entry{Paper: Paper, Name: name, About: about,
		Make: func(ctx context.Context, o figure.Options) (*figure.Figure, error) {
			machine, began := thisMachine(), time.Now()
			f, err := run(ctx, o)
			if err != nil {
				return nil, err
			}
			f.Notes = append(f.Notes, machine.String())
			f.Facts = map[string]any{
				"machine": machine, "quick": o.Quick, "began": began.UTC().Format(time.RFC3339),
				"took_s": time.Since(began).Seconds(),
			}
			return f, nil
		}}
}

// thisMachine describes the machine that this process runs on.
func thisMachine() machine {
	m := machine{CPU: "unknown", CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(),
		OS: runtime.GOOS + "/" + runtime.GOARCH}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		in := bufio.NewScanner(bytes.NewReader(text))
		for in.Scan() {
			if key, value, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		// A line without a number leaves the load at 0.
		_, _ = fmt.Sscan(string(text), &m.Load)
	}
	return m
}

func (m machine) String() string {
	return fmt.Sprintf("Measured on %s, %d cores used, %s, %s, load %.2f before.", m.CPU, m.CPUs, m.Go, m.OS, m.Load)
}

// timing is the cost of one call.
type timing struct {
	ns     float64
	allocs float64 // heap objects per call
	bytes  float64
}

// measure times work: the least mean of a few batches, each at least batch long, and the
// allocations of a call. Other goroutines must be idle.
func measure(batch time.Duration, work func()) timing {
	work() // allocations of the first call do not count
	n := 1
	for {
		if d := clock(n, work); d >= batch/4 || n >= 1<<26 {
			n = max(1, int(float64(n)*float64(batch)/math.Max(1, float64(d))))
			break
		}
		n *= 4
	}
	t := timing{ns: math.Inf(1)}
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := clock(n, work)
		runtime.ReadMemStats(&after)
		if ns := float64(d) / float64(n); ns < t.ns {
			t.ns = ns
		}
		t.allocs = float64((after.Mallocs - before.Mallocs) / uint64(n))
		t.bytes = float64((after.TotalAlloc - before.TotalAlloc) / uint64(n))
	}
	return t
}

func clock(n int, work func()) time.Duration {
	began := time.Now()
	for range n {
		work()
	}
	return time.Since(began)
}
