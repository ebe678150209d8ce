package recording

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/iteration/learn"
	"lightpath/plans/iteration/trace"
	"lightpath/shim/calls"
)

// process is a rank of a job for tests.
type process struct {
	File
	at     int64 // now, ns
	number map[[3]int]uint64
}

// processes makes n of them, on two hosts whose clocks differ, in a communicator of all.
func processes(n int) []*process {
	list := make([]*process, n)
	for r := range list {
		p := &process{File: File{Host: []string{"a", "b"}[r*2/n], PID: 100 + r, Launcher: -1}, number: map[[3]int]uint64{}}
		if p.Host == "b" {
			p.Offset = 1e12
		}
		list[r] = p
	}
	join(1, list...)
	return list
}

// join makes a communicator of processes, which are its ranks in that order.
func join(id uint64, list ...*process) {
	for r, p := range list {
		p.Comms = append(p.Comms, Comm{ID: id, Ranks: len(list), Rank: r, Parent: -1})
	}
}

func files(list []*process) []*File {
	all := make([]*File, len(list))
	for i, p := range list {
		all[i] = &p.File
	}
	return all
}

// meet lets all wait for the last, whatever their clocks show, and then compute.
func meet(list []*process, us float64) {
	var latest int64
	for _, p := range list {
		latest = max(latest, p.at+p.Offset)
	}
	for _, p := range list {
		p.at = latest - p.Offset + int64(us*1e3)
	}
}

func (p *process) call(kind calls.Kind, comm int, count uint64, peer int, group uint64) {
	key := [3]int{comm, -1, 0}
	if kind.P2P() {
		key = [3]int{comm, int(kind), peer}
	}
	c := Call{Kind: kind, Comm: comm, Count: count, TypeBytes: 4, Peer: peer, Group: group, Number: p.number[key]}
	p.number[key]++
	if group == 0 {
		c.Begin, c.End = p.at, p.at+10_000
		p.at = c.End
	}
	p.Calls = append(p.Calls, c)
}

func (p *process) endGroup(group uint64) {
	p.Calls = append(p.Calls, Call{Kind: groupEnd, GroupEnd: true, Group: group, Begin: p.at, End: p.at + 10_000})
	p.at += 10_000
}

// TestMerge: two pipelines of two stages on four ranks, pairs of replicas, and a communicator of all. A rank is late.
func TestMerge(t *testing.T) {
	list := processes(4)
	join(2, list[0], list[2]) // replicas
	join(3, list[1], list[3])
	group := uint64(0)
	for range 6 {
		meet(list, 500)
		for _, p := range list {
			p.call(calls.AllReduce, 1, 1000, 0, 0)
		}
		meet(list, 200)
		list[3].at += 50_000 // the others wait for it
		for r, p := range list {
			p.call(calls.Broadcast, 0, 10, 2, 0)
			if r != 3 {
				p.Calls[len(p.Calls)-1].End += 50_000
				p.at += 50_000
			}
		}
		meet(list, 300)
		group++
		for r, p := range list { // 0 <-> 1, 2 <-> 3
			p.call(calls.Send, 0, uint64(50+r), r^1, group)
			p.call(calls.Recv, 0, uint64(50+r^1), r^1, group)
			p.endGroup(group)
		}
	}
	for _, p := range list {
		p.call(calls.AllReduce, 0, 1, 0, 0) // the last, of no iteration
	}
	rand.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	m, err := Merge(files(list))
	require.NoError(t, err)
	if m.Repeats() != 6 || m.Period() != 4 || m.Left != 0 || m.Calls != 25 || m.Partial != 0 || m.Streams != 0 {
		t.Errorf("%+v: %s", m, m.Trace.Encode())
	}
	want := []struct {
		kind   string
		groups int
		gap    float64
	}{{"allreduce rabenseifner, 4000 bytes", 2, 0}, {"broadcast binomial, 40 bytes", 1, 250},
		{"2 sends, up to 204 bytes each", 1, 300}, {"2 sends, up to 212 bytes each", 1, 300}}
	for i, w := range want {
		c := m.Trace.Calls[i]
		if c.Kind() != w.kind || len(m.Trace.Communicators[c.Communicator].Groups) != w.groups {
			t.Errorf("call %d: %s of %d groups, want %+v", i, c.Kind(), len(m.Trace.Communicators[c.Communicator].Groups), w)
		}
		if i > 0 && i < 3 && (len(c.After) != 1 || math.Abs(c.After[0].GapUS-w.gap) > 1) {
			t.Errorf("call %d comes after %+v, want %v us", i, c.After, w.gap)
		}
	}
	if got := m.Trace.Communicators[0].Groups; len(got) != 2 || !slices.Equal(got[1], []int{1, 3}) {
		t.Errorf("%v", got)
	}
	if root := m.Trace.Calls[1].Root; root != 2 {
		t.Errorf("root %d", root)
	}
	// 500 + 10, 200 + 50 + 10, 300 + 10
	if math.Abs(m.IterationUS-1080) > 1 || math.Abs(m.InCallsUS-30) > 1 {
		t.Errorf("iteration %v us, %v in calls", m.IterationUS, m.InCallsUS)
	}
}

// TestLength: gaps that vary, whose medians add up to less than an iteration.
func TestLength(t *testing.T) {
	list := processes(2)
	for i := range 9 {
		for k := range 3 {
			us := 100.0
			if i%3 == k {
				us = 400 // one of three is long, another each time
			}
			meet(list, us)
			for _, p := range list {
				p.call(calls.AllReduce, 0, uint64(10+k), 0, 0)
			}
		}
	}
	m, err := Merge(files(list))
	require.NoError(t, err)
	if got := m.Trace.Longest([]float64{10, 10, 10}); math.Abs(got-m.IterationUS) > 1 || m.IterationUS < 600 {
		t.Errorf("%v us of %v: %s", got, m.IterationUS, m.Trace.Encode())
	}
}

// TestSideBySide: pairs of ranks that exchange the same sizes are one call, a pair with another size is not.
func TestSideBySide(t *testing.T) {
	list := processes(6)
	for i := range 5 {
		meet(list, 100)
		for r, p := range list {
			p.call(calls.Send, 0, uint64(10+r/4), r^1, uint64(i+1))
			p.call(calls.Recv, 0, uint64(10+r/4), r^1, uint64(i+1))
			p.endGroup(uint64(i + 1))
		}
	}
	m, err := Merge(files(list))
	require.NoError(t, err)
	if c := m.Trace.Calls; len(c) != 2 || c[0].Bytes != 40 || c[1].Bytes != 44 ||
		!slices.Equal(c[0].Flows, [][2]int{{0, 1}, {1, 0}, {2, 3}, {3, 2}}) ||
		!slices.Equal(c[1].Flows, [][2]int{{4, 5}, {5, 4}}) {
		t.Errorf("%s", m.Trace.Encode())
	}
}

// TestCauses: a call waits for calls on its own ranks. A send does not delay the later calls of the rank that sends it.
func TestCauses(t *testing.T) {
	list := processes(4)
	join(2, list[0], list[1])
	join(3, list[1], list[2])
	join(4, list[3], list[1])
	for range 5 {
		meet(list, 1000)
		for _, m := range []struct {
			src, dst, sender, receiver int // processes, and their numbers of the communicator
			us                         int64
		}{{0, 1, 1, 1, 10}, {1, 2, 2, 1, 20}, {3, 1, 1, 3, 400}} {
			for _, p := range []*process{list[m.src], list[m.dst]} {
				p.at += m.us * 1000
			}
			list[m.src].call(calls.Send, m.sender, 10*uint64(m.sender+m.receiver), 1, 0)
			list[m.dst].call(calls.Recv, m.receiver, 10*uint64(m.sender+m.receiver), 0, 0)
		}
	}
	m, err := Merge(files(list))
	require.NoError(t, err)
	if len(m.Trace.Calls) != 3 {
		t.Fatalf("%s", m.Trace.Encode())
	}
	for i, want := range [][]trace.After{{{Call: trace.Begin}}, {{Call: trace.Begin, GapUS: 10}, {Call: 0, GapUS: 20}},
		{{Call: trace.Begin, GapUS: 390}, {Call: 0, GapUS: 430}}} {
		if got := m.Trace.Calls[i].After; !slices.Equal(got, want) {
			t.Errorf("call %d waits for %v, want %v", i, got, want)
		}
	}
}

// TestVaried: messages whose sizes change, on streams. That the last two are equal is no iteration.
func TestVaried(t *testing.T) {
	list := processes(2)
	for i := range 7 {
		meet(list, 100)
		for r, p := range list {
			p.call(calls.Send, 0, uint64(10+min(i, 5)), 1-r, uint64(i+1))
			p.call(calls.Recv, 0, uint64(10+min(i, 5)), 1-r, uint64(i+1))
			p.Calls[len(p.Calls)-1].Stream = true
			p.endGroup(uint64(i + 1))
		}
	}
	m, err := Merge(files(list))
	require.NoError(t, err)
	if !m.Varied || m.Streams != 7 || m.Repeats() != 7 || m.Trace.Calls[0].Bytes != 51 || len(m.Trace.Calls[0].Flows) != 2 {
		t.Errorf("%+v %s", m, m.Trace.Encode())
	}
}

// TestOverlap: two communicators of the same ranks whose calls come in another order each time: 3 of one, 2 of the
// other.
func TestOverlap(t *testing.T) {
	list := processes(2)
	join(2, list...)
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		meet(list, 5000)
		begin := [2]int64{list[0].at, list[1].at}
		for _, call := range []struct {
			comm  int
			count uint64
			after int64 // us
		}{{0, 10, 100}, {0, 20, 300}, {0, 30, 600}, {1, 7, 200}, {1, 8, 400}} {
			jitter := r.Int64N(250)
			for i, p := range list {
				p.at = begin[i] + (call.after+jitter)*1000
				p.call(calls.AllReduce, call.comm, call.count, 0, 0)
			}
		}
		for i, p := range list {
			p.at = begin[i] + 1_000_000
		}
	}
	m, err := Merge(files(list))
	require.NoError(t, err)
	if m.Period() != 5 || m.Repeats() < 18 || len(m.Trace.Communicators) != 2 || math.Abs(m.IterationUS-6000) > 250 {
		t.Errorf("%+v: %s", m, m.Trace.Encode())
	}
	var seen []float64
	for i := range m.Trace.Calls {
		seen = append(seen, m.Trace.Calls[i].Bytes)
	}
	if want := []float64{40, 28, 80, 32, 120}; !slices.Equal(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
}

// repeated makes a job of two ranks that calls the same 4 times.
func repeated() []*process {
	list := processes(2)
	for range 4 {
		meet(list, 100)
		for _, p := range list {
			p.call(calls.AllReduce, 0, 10, 0, 0)
		}
	}
	return list
}

func TestRanks(t *testing.T) {
	// Without a communicator of all, the launcher's ranks count.
	list := processes(4)
	for i, p := range list {
		p.Comms, p.Launcher = nil, 3-i
	}
	join(2, list[0], list[1])
	join(3, list[2], list[3])
	for range 4 {
		meet(list, 100)
		for _, p := range list {
			p.call(calls.AllGather, 0, 10, 0, 0)
		}
	}
	m, err := Merge(files(list))
	require.NoError(t, err)
	if g := m.Trace.Communicators[0].Groups; len(g) != 2 || !slices.Equal(g[0], []int{1, 0}) ||
		m.Trace.Calls[0].Bytes != 80 {
		t.Errorf("%v, %s", g, m.Trace.Encode())
	}
	// Two ranks of one process: those of a split communicator are known by their parents.
	one := &process{number: map[[3]int]uint64{}}
	one.Comms = []Comm{{ID: 1, Ranks: 2, Rank: 0, Parent: -1}, {ID: 1, Ranks: 2, Rank: 1, Parent: -1},
		{ID: 2, Ranks: 2, Rank: 1, Parent: 0}, {ID: 2, Ranks: 2, Rank: 0, Parent: 1}}
	for range 4 {
		one.at += 100_000
		one.call(calls.AllReduce, 2, 10, 0, 0)
		one.call(calls.AllReduce, 3, 10, 0, 0)
	}
	m, err = Merge(files([]*process{one}))
	require.NoError(t, err)
	if g := m.Trace.Communicators[0].Groups; len(g) != 1 || !slices.Equal(g[0], []int{1, 0}) || m.Trace.Ranks != 2 {
		t.Errorf("%v", g)
	}
	one.Comms[2].Parent = -1
	if _, err = Merge(files([]*process{one})); !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), "several ranks") {
		t.Error(err)
	}
}

func TestMergeRefused(t *testing.T) {
	for _, c := range []struct {
		change func(list []*process) []*process
		says   string
	}{
		{func([]*process) []*process { return nil }, "there are none"},
		{func(l []*process) []*process { return l[:1] },
			"communicator 0000000000000001 (2 ranks): the file of rank 1 is missing"},
		{func(l []*process) []*process { return append(l, l[0]) }, "both are rank 0: files of two runs?"},
		{func(l []*process) []*process { l[1].Comms[0].Ranks = 3; return l }, "has 2 ranks, and 3 in process 101 on b"},
		{func(l []*process) []*process { l[1].Calls[2].Count = 11; return l },
			"collective 2: rank 0 called AllReduce of 40 bytes, root 0, and rank 1 AllReduce of 44 bytes"},
		{func(l []*process) []*process { l[0].Calls, l[1].Calls = nil, nil; return l }, "no call of two or more ranks"},
	} {
		_, err := Merge(files(c.change(repeated())))
		if !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	list := repeated()
	for _, p := range list {
		for i := range p.Calls {
			p.Calls[i].Count = uint64(i + 1)
		}
	}
	if _, err := Merge(files(list)); !errors.Is(err, learn.ErrNoPeriod) {
		t.Error(err)
	}
}

// TestPartial: calls that a rank has lost or not made are left out, and a group that was not run.
func TestPartial(t *testing.T) {
	list := repeated()
	list[0].Calls = list[0].Calls[1:]
	list[1].Calls = append(list[1].Calls, Call{Kind: calls.Send, Count: 1, TypeBytes: 4, Group: 5})
	list[0].call(calls.Recv, 0, 1, 1, 0)
	list[1].Unknown = 3
	m, err := Merge(files(list))
	require.NoError(t, err)
	if m.Calls != 3 || m.Partial != 3 || m.Unknown != 3 {
		t.Errorf("%+v", m)
	}
}
