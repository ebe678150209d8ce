package learn

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/iteration/trace"
)

// record makes a run of a trace whose calls take us[i], with noise.
func record(t *trace.Trace, us []float64, iterations int, noise func() float64) []Record {
	var run []Record
	begin := 0.0
	for range iterations {
		end := make([]float64, len(t.Calls))
		for i := range t.Calls {
			start := t.Ready(i, end)
			end[i] = start + us[i]
			run = append(run, Record{t.Calls[i], begin + start + noise(), begin + end[i], nil, nil})
		}
		begin += t.End(end)
	}
	return run
}

// TestFind: the iteration that repeats at the end of a run is found, with its gaps, after calls that do not repeat.
func TestFind(t *testing.T) {
	one, err := trace.Decode([]byte(`{"version":1, "ranks":2, "communicators":[{"groups":[[0,1]]}], "calls":[
		{"collective":"allgather", "algorithm":"ring", "bytes":8, "gap_us":100},
		{"collective":"allgather", "algorithm":"ring", "bytes":8, "gap_us":20},
		{"collective":"allreduce", "algorithm":"ring", "bytes":8, "gap_us":30, "tail_us":500}]}`))
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	run := record(one, []float64{10, 12, 14}, 5, r.Float64)
	start := []Record{{trace.Call{Collective: "broadcast", Algorithm: "ring", Bytes: 1}, -100, -90, nil, nil}}
	l, err := Find(2, one.Communicators, append(start, run...))
	require.NoError(t, err)
	if l.Period() != 3 || l.Repeats() < 4 || l.Trace.Calls[0].Collective != "allgather" {
		t.Fatalf("%+v", l)
	}
	// The gap before the first call is part of the tail now.
	us := []float64{10, 12, 14}
	if got, want := l.Trace.Longest(us), one.Longest(us); math.Abs(got-want) > 3 {
		t.Errorf("iteration of %v us, want about %v: %s", got, want, l.Trace.Encode())
	}
	for i, gap := range []float64{0, 20, 30} {
		if a := l.Trace.Calls[i].After; len(a) != 1 || math.Abs(a[0].GapUS-gap) > 1.5 || a[0].Call != i-1 {
			t.Errorf("call %d waits for %+v", i, a)
		}
	}
}

// TestFindOverlap: calls that come while others run wait for what has ended by then.
func TestFindOverlap(t *testing.T) {
	one, err := trace.Decode([]byte(`{"version":1, "ranks":2, "communicators":[{"groups":[[0,1]]}], "calls":[
		{"collective":"allreduce", "algorithm":"ring", "bytes":1, "gap_us":100},
		{"collective":"allreduce", "algorithm":"ring", "bytes":2, "after":[[-1,130]]},
		{"collective":"allreduce", "algorithm":"ring", "bytes":3, "after":[[-1,160]], "tail_us":500}]}`))
	require.NoError(t, err)
	us := []float64{50, 50, 50}
	l, err := Find(2, one.Communicators, record(one, us, 4, func() float64 { return 0 }))
	require.NoError(t, err)
	want := []trace.After{{Call: trace.Begin}, {Call: trace.Begin, GapUS: 30}, {GapUS: 10}}
	for i, w := range want {
		if got := l.Trace.Calls[i].After; len(got) != 1 || got[0] != w {
			t.Errorf("call %d waits for %+v, want %+v", i, got, w)
		}
	}
	if got, want := l.Trace.Longest(us), one.Longest(us); got != want {
		t.Errorf("iteration of %v us, want %v", got, want)
	}
}

func TestFindNothing(t *testing.T) {
	var run []Record
	for i := range 9 {
		at := float64(i)
		run = append(run, Record{trace.Call{Collective: "allreduce", Algorithm: "ring", Bytes: at}, at, at, nil, nil})
	}
	if _, err := Find(2, make([]trace.Communicator, 1), run); !errors.Is(err, ErrNoPeriod) {
		t.Error(err)
	}
	if _, err := Find(2, nil, nil); !errors.Is(err, ErrNoPeriod) {
		t.Error(err)
	}
}

// TestPeriod: short repetitions at the end are not taken for the iteration.
func TestPeriod(t *testing.T) {
	for _, c := range []struct {
		list            string
		period, covered int
	}{
		{"xabbabbabb", 3, 9}, {"abcabcabc", 3, 9}, {"aaaa", 1, 4}, {"abcd", 0, 0}, {"abab", 2, 4},
		{"qwabccccabccccabcccc", 6, 18},
	} {
		var kinds []string
		for _, r := range c.list {
			kinds = append(kinds, string(r))
		}
		if p, n := periodOf(kinds); p != c.period || n != c.covered {
			t.Errorf("%s: period %d of %d, want %d of %d", c.list, p, n, c.period, c.covered)
		}
	}
}

// TestSizesVary: flows whose sizes change have the mean sizes of their place in the iteration.
func TestSizesVary(t *testing.T) {
	var run []Record
	for i := range 4 {
		for place, sizes := range [][]float64{{float64(10 + i), 4}, {100, 100}, nil} { // the mean of the first is 11.5
			c := trace.Call{Flows: [][2]int{{0, 1}, {1, 0}}}
			if sizes == nil {
				c = trace.Call{Collective: "allreduce", Algorithm: "ring", Bytes: 8}
			}
			at := float64(1000*i + 100*place)
			run = append(run, Record{c, at, at + 10, sizes, nil})
		}
	}
	f, err := Find(2, []trace.Communicator{{Groups: [][]int{{0, 1}}}}, run)
	require.NoError(t, err)
	if f.Period() != 3 {
		t.Fatalf("%s", f.Trace.Encode())
	}
	for i, want := range [][2]float64{{11, 4}, {100, 100}} {
		if c := &f.Trace.Calls[i]; c.BytesOf(0) != want[0] || c.BytesOf(1) != want[1] || c.Bytes != want[0] {
			t.Errorf("call %d: %+v", i, c)
		}
	}
}
