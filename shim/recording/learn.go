package recording

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"lightpath/plans/iteration/trace"
)

// maxAfter bounds the calls after the last iteration, such as a barrier or the mean of a loss.
const maxAfter = 32

// learned is an iteration, and the iterations of which it is the average.
type learned struct {
	*trace.Learned
	rounds [][]trace.Record
	after  int // calls after the last one
}

func (l *learned) covers() int {
	if l == nil {
		return 0
	}
	return l.Period * l.Repeats
}

// learn finds the iteration in a run. Calls at its end that are none of it are left out, if there are few. If
// communicators overlap, their calls may come in another order each time: then each is looked at apart.
func learn(ranks int, comms []trace.Communicator, run []trace.Record) (*learned, error) {
	best, err := learnWhole(ranks, comms, run)
	if best.covers() < len(run)/2 {
		if l := learnApart(ranks, comms, run); l.covers() > best.covers() {
			best = l
		}
	}
	if best == nil {
		return nil, err
	}
	return best, best.Trace.Validate()
}

// learnWhole finds the iteration in the order of all calls.
func learnWhole(ranks int, comms []trace.Communicator, run []trace.Record) (best *learned, err error) {
	for after := range min(maxAfter, len(run)/3) + 1 {
		l, failed := trace.Learn(ranks, comms, run[:len(run)-after])
		if failed != nil {
			if err == nil || !errors.Is(failed, trace.ErrNoPeriod) {
				err = failed
			}
			continue
		}
		if l.Period*l.Repeats <= best.covers() {
			continue
		}
		best = &learned{Learned: l, after: after}
		for k := range l.Repeats {
			best.rounds = append(best.rounds, run[l.Left+k*l.Period:][:l.Period])
		}
		if best.covers() >= len(run)-after-l.Period {
			break // no other can cover more
		}
	}
	if best == nil && err == nil {
		err = fmt.Errorf("%w: %d calls", trace.ErrNoPeriod, len(run))
	}
	return best, err
}

// learnApart finds the iteration of the communicator whose own calls repeat after the longest time. Each other
// communicator makes the same number of calls in each of these iterations. nil if that is not so.
func learnApart(ranks int, comms []trace.Communicator, run []trace.Record) *learned {
	lists := make([][]trace.Record, len(comms))
	for _, r := range run {
		lists[r.Communicator] = append(lists[r.Communicator], r)
	}
	var lead *learned
	longest, leader := 0.0, 0
	for i, list := range lists {
		l, err := learnWhole(ranks, comms, list)
		if err != nil || l == nil {
			continue
		}
		if t := l.rounds[1][0].StartUS - l.rounds[0][0].StartUS; lead == nil || t > longest {
			lead, longest, leader = l, t, i
		}
	}
	if lead == nil {
		return nil
	}
	parts := [][][]trace.Record{lead.rounds}
	for i, list := range lists {
		if i == leader {
			continue
		}
		if part := split(list, lead.rounds); part != nil {
			parts = append(parts, part)
		}
	}
	rounds := lead.rounds
	for _, p := range parts {
		rounds = rounds[:min(len(rounds), len(p))]
	}
	if len(rounds) < 2 {
		return nil
	}
	rounds = turn(interleave(parts, len(rounds)))
	l := &learned{rounds: rounds}
	l.Learned = &trace.Learned{Trace: trace.Average(ranks, comms, rounds), Period: len(rounds[0]), Repeats: len(rounds),
		Left: len(run) - len(rounds)*len(rounds[0])}
	return l
}

// split divides the calls of a communicator among the iterations of another. nil if they are not the same in each.
func split(list []trace.Record, rounds [][]trace.Record) [][]trace.Record {
	first := func(k int) int { // the first call in iteration k, or later
		return sort.Search(len(list), func(i int) bool { return list[i].StartUS >= rounds[k][0].StartUS })
	}
	counts := make([]int, len(rounds)-1)
	for k := range counts {
		counts[k] = first(k+1) - first(k)
	}
	slices.Sort(counts)
	n := counts[len(counts)/2]
	if n == 0 {
		return nil
	}
	begins := make([]int, len(rounds))
	for k := range begins {
		begins[k] = first(k) - k*n
	}
	slices.Sort(begins)
	begin := max(0, begins[len(begins)/2])
	var parts [][]trace.Record
	for k := 0; k < len(rounds) && begin+(k+1)*n <= len(list); k++ {
		part := list[begin+k*n:][:n]
		if !slices.EqualFunc(part, list[begin:][:n], func(a, b trace.Record) bool {
			return a.Kind() == b.Kind() && a.Root == b.Root && slices.Equal(a.Flows, b.Flows)
		}) {
			break
		}
		parts = append(parts, part)
	}
	return parts
}

// interleave puts the parts of each iteration together, in the order of their median times since its begin.
func interleave(parts [][][]trace.Record, n int) [][]trace.Record {
	type place struct {
		part, at int
		since    float64
	}
	var order []place
	for p := range parts {
		for at := range parts[p][0] {
			since := make([]float64, n)
			for k := range since {
				since[k] = parts[p][k][at].StartUS - parts[0][k][0].StartUS
			}
			slices.Sort(since)
			order = append(order, place{p, at, since[n/2]})
		}
	}
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(a.since, b.since) })
	rounds := make([][]trace.Record, n)
	for k := range rounds {
		for _, o := range order {
			rounds[k] = append(rounds[k], parts[o.part][k][o.at])
		}
	}
	return rounds
}

// turn lets iterations begin after the longest gap between their calls, where there are enough of them.
func turn(rounds [][]trace.Record) [][]trace.Record {
	period := len(rounds[0])
	if len(rounds) < 3 {
		return rounds
	}
	run := slices.Concat(rounds...)
	from, longest := 0, 0.0
	for i := period; i < 2*period; i++ {
		var gaps []float64
		for at := i; at < len(run); at += period {
			end := 0.0
			for _, r := range run[at-period : at] {
				end = max(end, r.EndUS)
			}
			gaps = append(gaps, run[at].StartUS-end)
		}
		slices.Sort(gaps)
		if gap := gaps[len(gaps)/2]; gap > longest {
			from, longest = i-period, gap
		}
	}
	return slices.Collect(slices.Chunk(run[from:], period))[:len(run[from:])/period]
}
