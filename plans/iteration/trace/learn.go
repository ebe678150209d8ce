package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// ErrNoPeriod is the error of a list of calls in which nothing repeats.
var ErrNoPeriod = errors.New("no iteration repeats in these calls")

// Record is one call of a run. Only Communicator, Collective, Algorithm, Root, Flows and Bytes of Call count.
type Record struct {
	Call
	StartUS, EndUS float64 // when the program made the call, and when it ended
}

// Learned is a trace with what is known about how well it fits.
type Learned struct {
	Trace   *Trace
	Period  int // calls of an iteration
	Repeats int // whole iterations at the end of the run
	Left    int // calls before these
}

// Learn finds the iteration that repeats at the end of a run, at least twice, and its gaps: medians over the iterations.
//
// Records have no causes. A call that comes when the call before it has ended waits for that call. One that comes earlier
// waits for the latest call that has always ended by then. The iteration begins after the longest gap between calls.
// Errors wrap [ErrNoPeriod] or [ErrTrace].
func Learn(ranks int, communicators []Communicator, run []Record) (*Learned, error) {
	run = slices.Clone(run)
	slices.SortStableFunc(run, func(a, b Record) int {
		switch {
		case a.StartUS < b.StartUS:
			return -1
		case a.StartUS > b.StartUS:
			return 1
		}
		return a.Communicator - b.Communicator
	})
	kinds := make([]int, len(run))
	known := map[string]int{}
	for i := range run {
		key := fmt.Sprint(run[i].Communicator, run[i].Root, run[i].Flows, run[i].Kind())
		if _, ok := known[key]; !ok {
			known[key] = len(known)
		}
		kinds[i] = known[key]
	}
	period, covered := periodOf(kinds)
	if period == 0 {
		return nil, fmt.Errorf("%w: %d calls of %d kinds", ErrNoPeriod, len(run), len(known))
	}
	tail := run[len(run)-covered:]
	turn := turnOf(tail, period)
	repeats := (covered - turn) / period
	rounds := make([][]Record, repeats)
	for k := range rounds {
		rounds[k] = tail[turn+k*period:][:period]
	}
	t := &Trace{Ranks: ranks, Communicators: communicators}
	for i := range period {
		c := rounds[0][i].Call
		c.After, c.TailUS = []After{waitOf(rounds, i)}, 0
		t.Calls = append(t.Calls, c)
	}
	last := lastOf(rounds)
	t.Calls[last].TailUS = math.Max(0, median(len(rounds)-1, func(k int) float64 {
		return rounds[k+1][0].StartUS - rounds[k][last].EndUS
	}))
	return &Learned{Trace: t, Period: period, Repeats: repeats, Left: len(run) - covered + turn}, t.Validate()
}

// periodOf returns the period of the end of a list, and how many elements it covers, at least two periods; 0 if there is
// none. Of the periods that cover nearly the most it is the shortest.
func periodOf(kinds []int) (period, covered int) {
	n := len(kinds)
	back := slices.Clone(kinds)
	slices.Reverse(back)
	match := zOf(back)
	most := 0
	for p := 1; p <= n/2; p++ {
		if match[p] >= p {
			most = max(most, p+match[p])
		}
	}
	for p := 1; p <= n/2; p++ {
		if match[p] >= p && p+match[p] >= most-most/10 {
			return p, p + match[p]
		}
	}
	return 0, 0
}

// zOf returns, for each shift, how far the list agrees with itself shifted (the Z-algorithm).
func zOf(list []int) []int {
	n := len(list)
	z := make([]int, n+1)
	for i, l, r := 1, 0, 0; i < n; i++ {
		if i < r {
			z[i] = min(r-i, z[i-l])
		}
		for i+z[i] < n && list[z[i]] == list[i+z[i]] {
			z[i]++
		}
		if i+z[i] > r {
			l, r = i, i+z[i]
		}
	}
	return z
}

// turnOf returns at which call of the first period an iteration begins: after the longest gap, if at least two iterations
// are left.
func turnOf(tail []Record, period int) int {
	turn, longest := 0, math.Inf(-1)
	for i := range period {
		if (len(tail)-i)/period < 2 {
			break
		}
		gap := median((len(tail)-i)/period, func(k int) float64 {
			at := i + k*period
			if at == 0 {
				return math.Inf(-1)
			}
			return tail[at].StartUS - endBefore(tail, at, period)
		})
		if gap > longest {
			turn, longest = i, gap
		}
	}
	return turn
}

// endBefore returns the latest end of the calls of a period before a call.
func endBefore(tail []Record, at, period int) float64 {
	end := math.Inf(-1)
	for i := max(0, at-period); i < at; i++ {
		end = math.Max(end, tail[i].EndUS)
	}
	return end
}

// waitOf returns what call i of an iteration waits for.
func waitOf(rounds [][]Record, i int) After {
	if i == 0 {
		return After{Begin, 0}
	}
	for j := i - 1; j >= 0; j-- {
		ended := true
		if j < i-1 { // the call before may end late now and then, others may not
			for _, r := range rounds {
				ended = ended && r[j].EndUS <= r[i].StartUS
			}
		}
		gap := median(len(rounds), func(k int) float64 { return rounds[k][i].StartUS - rounds[k][j].EndUS })
		if ended && gap >= 0 {
			return After{j, gap}
		}
	}
	return After{Begin, math.Max(0, median(len(rounds), func(k int) float64 {
		return rounds[k][i].StartUS - rounds[k][0].StartUS
	}))}
}

// lastOf returns the call of an iteration that ends last.
func lastOf(rounds [][]Record) int {
	last, latest := 0, math.Inf(-1)
	for i := range rounds[0] {
		if end := median(len(rounds), func(k int) float64 { return rounds[k][i].EndUS - rounds[k][0].StartUS }); end >= latest {
			last, latest = i, end
		}
	}
	return last
}

// median returns the lower median of n values; n is at least 1.
func median(n int, value func(k int) float64) float64 {
	all := make([]float64, n)
	for k := range all {
		all[k] = value(k)
	}
	sort.Float64s(all)
	return all[(n-1)/2]
}
