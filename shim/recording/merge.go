package recording

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lightpath/plans/iteration/learn"
	"lightpath/plans/iteration/trace"
)

// Merged is the trace of a job, with what is known of it.
type Merged struct {
	*learn.Found
	Calls   int    // of all ranks together, collectives and joined messages
	Streams int    // of these on streams, whose times are those of issuing them
	Partial int    // calls that not all of their ranks have: they are not in the trace
	Unknown uint64 // calls of communicators for which there was no room
	Varied  bool   // sizes of messages changed between iterations: the trace has their means
	// Medians over the iterations, us: how long one took, and for how long of it a call was under way.
	IterationUS, InCallsUS float64
}

// Merge makes the trace of the files of all processes of a job. A call is ready when its last rank has made it. The
// largest communicator numbers the ranks of the job, if all processes are in it, else their launcher does.
// Communicators of different ranks that make the same calls become one with several groups.
func Merge(files []*File) (*Merged, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrJob)
	}
	j, err := gather(files)
	if err != nil {
		return nil, err
	}
	m := &Merged{}
	if m.Partial, err = j.events(); err != nil {
		return nil, err
	}
	for _, f := range files {
		m.Unknown += f.Unknown
	}
	comms, run := j.records(m)
	if len(run) == 0 {
		return nil, fmt.Errorf("%w: they have no call of two or more ranks", ErrJob)
	}
	if err := m.find(j.ranks, comms, run); err != nil {
		return nil, err
	}
	m.Trace.Communicators = used(m.Trace)
	m.times()
	return m, nil
}

// find finds the iteration. If it explains less than half of the calls, it is found again with messages of mean sizes:
// a few that are equal by chance are no iteration.
func (m *Merged) find(ranks int, comms []trace.Communicator, run []learn.Record) error {
	found, err := learn.Find(ranks, comms, run)
	if err != nil && !errors.Is(err, learn.ErrNoPeriod) {
		return err
	}
	m.Found = found
	if m.Covers() >= len(run)/2 || !vary(run) {
		return err
	}
	if f, again := learn.Find(ranks, comms, run); again == nil && f.Covers() > m.Covers() {
		m.Found, m.Varied, err = f, true, nil
	}
	return err
}

// records returns the calls of the job. Communicators that make the same calls are one.
func (j *job) records(m *Merged) (comms []trace.Communicator, run []learn.Record) {
	var base int64
	var leads [][]*communicator
	for _, c := range j.comms {
		if len(c.events) == 0 {
			continue
		}
		if first := c.events[0].start; base == 0 || first < base {
			base = first
		}
		at := slices.IndexFunc(leads, func(group []*communicator) bool { return alike(group, c) })
		if at < 0 {
			leads = append(leads, []*communicator{c})
		} else {
			leads[at] = append(leads[at], c)
		}
	}
	for i, group := range leads {
		t := trace.Communicator{Name: group[0].name()}
		for _, c := range group {
			t.Groups = append(t.Groups, c.job)
		}
		slices.SortFunc(t.Groups, slices.Compare[[]int])
		comms = append(comms, t)
		events := align(group)
		m.Calls += len(events)
		for _, e := range events {
			if e.stream {
				m.Streams++
			}
			e.call.Communicator = i
			run = append(run, learn.Record{Call: e.call, StartUS: micros(e.start - base), EndUS: micros(e.end - base),
				On: e.on(base)})
		}
	}
	slices.SortStableFunc(run, func(a, b learn.Record) int { return cmp.Compare(a.StartUS, b.StartUS) })
	return comms, run
}

// alike reports whether c is a communicator of other ranks that makes the calls of group.
func alike(group []*communicator, c *communicator) bool {
	if len(group[0].members) != len(c.members) {
		return false
	}
	for _, g := range group {
		if slices.ContainsFunc(c.job, func(r int) bool { return slices.Contains(g.job, r) }) {
			return false
		}
	}
	a, b := common(group[0].events, c.events)
	most := max(len(group[0].events), len(c.events))
	return len(a) >= most-most/10 && slices.EqualFunc(a, b, func(x, y event) bool { return key(&x) == key(&y) })
}

func key(e *event) string {
	return fmt.Sprint(e.call.Kind(), e.call.Root, e.call.Flows, e.call.FlowBytes)
}

// common returns the events of both lists: those of the same numbers or, with messages, as many from the end.
func common(a, b []event) ([]event, []event) {
	numbered := func(e event) bool { return e.number >= 0 }
	if len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(e event) bool { return !numbered(e) }) &&
		!slices.ContainsFunc(b, func(e event) bool { return !numbered(e) }) {
		low, high := max(a[0].number, b[0].number), min(a[len(a)-1].number, b[len(b)-1].number)
		outside := func(e event) bool { return e.number < low || e.number > high }
		return slices.DeleteFunc(slices.Clone(a), outside), slices.DeleteFunc(slices.Clone(b), outside)
	}
	n := min(len(a), len(b))
	return a[len(a)-n:], b[len(b)-n:]
}

// align returns the events of a group of communicators, each as late as in the last of them.
func align(group []*communicator) []event {
	events := group[0].events
	for _, c := range group[1:] {
		a, b := common(events, c.events)
		if len(a) != len(b) {
			continue // a rank has lost calls in between
		}
		events = slices.Clone(a)
		for i := range events {
			events[i].join(&b[i])
		}
	}
	return events
}

// times measures iterations.
func (m *Merged) times() {
	var whole, inside []float64
	for k, round := range m.Rounds {
		sum, end := 0.0, round[0].StartUS
		for i := range round {
			sum += max(0, round[i].EndUS-max(end, round[i].StartUS))
			end = max(end, round[i].EndUS)
		}
		inside = append(inside, sum)
		if k > 0 {
			whole = append(whole, round[0].StartUS-m.Rounds[k-1][0].StartUS)
		}
	}
	slices.Sort(whole)
	slices.Sort(inside)
	m.IterationUS, m.InCallsUS = whole[len(whole)/2], inside[len(inside)/2]
	m.complete()
}

// complete makes the trace as long as the median iteration. Medians of gaps that vary add up to less; the rest is
// computation after the last call.
func (m *Merged) complete() {
	took := make([]float64, m.Period())
	last, latest := 0, 0.0
	for i := range took {
		all := make([]float64, len(m.Rounds))
		for k, r := range m.Rounds {
			all[k] = r[i].EndUS - r[i].StartUS
		}
		slices.Sort(all)
		took[i] = all[len(all)/2]
		if tail := m.Trace.Calls[i].TailUS; tail >= latest {
			last, latest = i, tail
		}
	}
	m.Trace.Calls[last].TailUS += max(0, m.IterationUS-m.Trace.Longest(took))
}

// vary says of all messages that their sizes vary. It reports whether there are messages.
func vary(run []learn.Record) (any bool) {
	for i := range run {
		r := &run[i]
		if r.Flows == nil {
			continue
		}
		any = true
		for k := range r.Flows {
			r.Sizes = append(r.Sizes, r.BytesOf(k))
		}
		r.Bytes, r.FlowBytes = 0, nil
	}
	return any
}

// used drops the communicators without calls from a trace, and names the others by their groups.
func used(t *trace.Trace) []trace.Communicator {
	var kept []trace.Communicator
	index := map[int]int{}
	for i := range t.Calls {
		c := &t.Calls[i]
		at, ok := index[c.Communicator]
		if !ok {
			at = len(kept)
			index[c.Communicator] = at
			kept = append(kept, t.Communicators[c.Communicator])
			kept[at].Name = groupName(kept[at].Groups)
		}
		c.Communicator = at
	}
	return kept
}

// groupName is such as "ranks 0,4 (4 groups)".
func groupName(groups [][]int) string {
	first := groups[0]
	var b strings.Builder
	b.WriteString("ranks ")
	switch n := len(first); {
	case slices.Equal(first, ascending(first[0], n)):
		fmt.Fprintf(&b, "%d-%d", first[0], first[n-1])
	case n > 4:
		fmt.Fprintf(&b, "%d,%d,...,%d", first[0], first[1], first[n-1])
	default:
		for i, r := range first {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprint(&b, r)
		}
	}
	if len(groups) > 1 {
		fmt.Fprintf(&b, " (%d groups)", len(groups))
	}
	return b.String()
}

func ascending(from, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = from + i
	}
	return list
}
