package learn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"lightpath/internal/period"
	"lightpath/plans/iteration/trace"
)

// ErrNoPeriod is the error of a list of calls in which nothing repeats.
var ErrNoPeriod = errors.New("no iteration repeats in these calls")

// maxAfter bounds the calls after the last iteration, such as a barrier or the mean of a loss.
const maxAfter = 32

// Record is one call of a run. Of Call only Communicator, Collective, Algorithm, Root, Flows, FlowBytes, Bytes count.
type Record struct {
	trace.Call
	StartUS, EndUS float64   // when the program made the call, and when it ended
	Sizes          []float64 // of flows that vary, in place of those of Call: the trace has their means
	// On has the part of each rank, in the order of ranks. Nil: the times are those of one rank, which is in all calls.
	On []Part
}

// Part is what one rank does of a call.
type Part struct {
	Rank           int // of the job
	StartUS, EndUS float64
	Receives       bool // the rank gets data, so its later calls may depend on this one
}

// on returns the part of a rank, or nil.
func (r *Record) on(rank int) *Part {
	at, ok := slices.BinarySearchFunc(r.On, rank, func(p Part, rank int) int { return p.Rank - rank })
	if !ok {
		return nil
	}
	return &r.On[at]
}

// Found is the trace of an iteration, with what is known about how well it fits.
type Found struct {
	Trace  *trace.Trace
	Rounds [][]Record // the calls of each iteration, at least two iterations
	Left   int        // calls before these
}

// Period returns how many calls an iteration has.
func (f *Found) Period() int { return len(f.Rounds[0]) }

// Repeats returns how many whole iterations there are.
func (f *Found) Repeats() int { return len(f.Rounds) }

// Covers returns how many calls the iterations have; 0 if f is nil.
func (f *Found) Covers() int {
	if f == nil {
		return 0
	}
	return f.Period() * f.Repeats()
}

// Find finds the iteration that repeats at the end of a run, at least twice, and its gaps: medians over the iterations.
// A few calls may come after the last one. If calls overlap, they may come in another order each time: then each rank
// and each communicator is looked at apart.
//
// Records have no causes. On each of its ranks, a call waits for the latest call that brought data there and that has
// always ended by then, and for the call of its communicator before it. The iteration begins after the longest gap
// between calls. Errors wrap [ErrNoPeriod] or [trace.ErrTrace].
func Find(ranks int, communicators []trace.Communicator, run []Record) (*Found, error) {
	run = slices.Clone(run)
	for i := range run {
		if r := &run[i]; r.On == nil {
			r.On = []Part{{StartUS: r.StartUS, EndUS: r.EndUS, Receives: true}}
		}
	}
	slices.SortStableFunc(run, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.StartUS, b.StartUS), a.Communicator-b.Communicator)
	})
	best := whole(run)
	if best.Covers() < len(run)/2 {
		if f := apart(len(communicators), run); f.Covers() > best.Covers() {
			best = f
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: %d calls", ErrNoPeriod, len(run))
	}
	best.Trace = average(ranks, communicators, best.Rounds)
	return best, best.Trace.Validate()
}

// whole finds the iteration in the order of all calls; nil if there is none.
func whole(run []Record) (best *Found) {
	kinds := make([]string, len(run))
	for i := range run {
		kinds[i] = run[i].kind()
	}
	for after := range min(maxAfter, len(run)/3) + 1 {
		n := len(run) - after
		p, covered := periodOf(kinds[:n])
		if p == 0 {
			continue
		}
		rounds, turn := roundsOf(run[n-covered:n], p)
		if p*len(rounds) <= best.Covers() {
			continue
		}
		best = &Found{Rounds: rounds}
		best.Left = n - covered + turn
		if best.Covers() >= n-p {
			break // no other can cover more
		}
	}
	return best
}

// kind is the same for records of calls that do the same.
func (r *Record) kind() string {
	return fmt.Sprint(r.Communicator, r.Root, r.Flows, r.FlowBytes, r.Kind())
}

// periodOf returns the period of the end of a list, and how many elements it covers, at least two periods; 0 if there
// is none. Of the periods that cover nearly the most it is the shortest.
func periodOf(kinds []string) (p, covered int) {
	agrees := make([]int, len(kinds)/2+1)
	period.Agreement(agrees, kinds)
	most := 0
	for p, n := range agrees {
		if n >= p {
			most = max(most, p+n)
		}
	}
	for p, n := range agrees {
		if p > 0 && n >= p && p+n >= most-most/10 {
			return p, p + n
		}
	}
	return 0, 0
}

// roundsOf divides calls that repeat into iterations, at least two. The first begins at call turn of them: after the
// longest gap.
func roundsOf(calls []Record, period int) (rounds [][]Record, turn int) {
	longest := math.Inf(-1)
	for i := range period {
		repeats := (len(calls) - i) / period
		if repeats < 2 {
			break
		}
		gap := median(repeats, func(k int) float64 {
			at := i + k*period
			if at == 0 {
				return math.Inf(-1)
			}
			return calls[at].StartUS - lastEnd(calls[max(0, at-period):at])
		})
		if gap > longest {
			turn, longest = i, gap
		}
	}
	for at := turn; at+period <= len(calls); at += period {
		rounds = append(rounds, calls[at:][:period])
	}
	return rounds, turn
}

// lastEnd returns the latest end of calls.
func lastEnd(calls []Record) float64 {
	end := math.Inf(-1)
	for i := range calls {
		end = math.Max(end, calls[i].EndUS)
	}
	return end
}

// average returns the trace of iterations that make the same calls in the same order: the medians of their gaps.
func average(ranks int, communicators []trace.Communicator, rounds [][]Record) *trace.Trace {
	t := &trace.Trace{Ranks: ranks, Communicators: communicators}
	for i := range rounds[0] {
		c := rounds[0][i].Call
		if rounds[0][i].Sizes != nil {
			c.SetFlows(meanSizes(rounds, i))
		}
		c.After, c.TailUS = waitsOf(rounds, i), 0
		t.Calls = append(t.Calls, c)
	}
	last := lastOf(rounds)
	t.Calls[last].TailUS = math.Max(0, median(len(rounds)-1, func(k int) float64 {
		return rounds[k+1][0].StartUS - rounds[k][last].EndUS
	}))
	return t
}

// meanSizes returns the mean sizes of the flows of call i, in whole bytes.
func meanSizes(rounds [][]Record, i int) map[[2]int]float64 {
	means := map[[2]int]float64{}
	for k, f := range rounds[0][i].Flows {
		for _, r := range rounds {
			means[f] += r[i].Sizes[k]
		}
		means[f] = math.Trunc(means[f] / float64(len(rounds)))
	}
	return means
}

// waitsOf returns the calls for which call i of an iteration waits on its ranks. The gap after a call is that of the
// slowest rank, from the end of the call on all ranks.
func waitsOf(rounds [][]Record, i int) []trace.After {
	gaps := map[int][]float64{} // by call: the gap of each round
	add := func(call int, gap func(k int) float64) {
		if gaps[call] == nil {
			gaps[call] = make([]float64, len(rounds))
		}
		for k := range rounds {
			gaps[call][k] = math.Max(gaps[call][k], gap(k))
		}
	}
	for _, p := range rounds[0][i].On {
		last, queued := causesOf(rounds, i, &p)
		add(last, func(k int) float64 {
			from := rounds[k][0].StartUS
			if last != trace.Begin {
				from = rounds[k][last].EndUS
			}
			return rounds[k][i].on(p.Rank).StartUS - from
		})
		if queued != last {
			add(queued, func(int) float64 { return 0 })
		}
	}
	var after []trace.After
	for call, gap := range gaps {
		after = append(after, trace.After{Call: call, GapUS: median(len(gap), func(k int) float64 { return gap[k] })})
	}
	slices.SortFunc(after, func(a, b trace.After) int { return a.Call - b.Call })
	return after[max(0, len(after)-trace.MaxAfter):]
}

// causesOf returns the latest call that can have delayed part p of call i, and the latest one of the communicator.
// [trace.Begin]: there is none.
func causesOf(rounds [][]Record, i int, p *Part) (last, queued int) {
	last = trace.Begin
	for j := i - 1; j >= 0; j-- {
		same := rounds[0][j].Communicator == rounds[0][i].Communicator
		switch q := rounds[0][j].on(p.Rank); {
		case q == nil || !same && (!q.Receives || last != trace.Begin):
		case !endsBefore(rounds, j, i, p.Rank, same && j == i-1):
		case same:
			return max(last, j), j
		default:
			last = j
		}
	}
	return last, last
}

// endsBefore reports whether call j has always ended on a rank when the rank begins call i; mostly: in most iterations.
func endsBefore(rounds [][]Record, j, i, rank int, mostly bool) bool {
	late := 0
	for _, r := range rounds {
		if before, now := r[j].on(rank), r[i].on(rank); before == nil || now == nil || before.EndUS > now.StartUS {
			late++
		}
	}
	return late == 0 || mostly && late <= len(rounds)/2
}

// lastOf returns the call of an iteration that ends last.
func lastOf(rounds [][]Record) int {
	last, latest := 0, math.Inf(-1)
	for i := range rounds[0] {
		end := median(len(rounds), func(k int) float64 { return rounds[k][i].EndUS - rounds[k][0].StartUS })
		if end >= latest {
			last, latest = i, end
		}
	}
	return last
}

// median returns the lower median of n values; n is at least 1.
func median[N cmp.Ordered](n int, value func(k int) N) N {
	all := make([]N, n)
	for k := range all {
		all[k] = value(k)
	}
	slices.Sort(all)
	return all[(n-1)/2]
}
