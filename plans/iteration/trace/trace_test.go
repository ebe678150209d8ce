package trace

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"lightpath/internal/require"
)

const example = `{"version":1, "name":"two", "ranks":4, "compute_us":50,
 "communicators":[{"name":"all", "groups":[[0,1,2,3]]}, {"name":"pairs", "groups":[[0,2],[1,3]]}],
 "calls":[
  {"name":"a", "communicator":1, "collective":"allreduce", "algorithm":"ring", "bytes":1000, "gap_us":5},
  {"communicator":0, "flows":[[0,1],[2,3]], "bytes":100, "after":[[-1,10]]},
  {"communicator":0, "collective":"broadcast", "algorithm":"ring", "root":3, "bytes":7, "after":[[0,3],[1,2.5]],
   "tail_us":20}]}`

func TestCodec(t *testing.T) {
	one, err := Decode([]byte(example))
	require.NoError(t, err)
	again, err := Decode(one.Encode())
	require.NoError(t, err)
	if !reflect.DeepEqual(one, again) {
		t.Errorf("%+v\n%+v", one, again)
	}
	if one.Digest() != again.Digest() || len(one.Digest()) != 64 {
		t.Error(one.Digest())
	}
	// 5, 10, max(5+3, 10+2.5) = 12.5, then 20; at least 50.
	if got := one.Longest(nil); got != 50 {
		t.Errorf("computation %v", got)
	}
	if got := one.Longest([]float64{100, 1, 2}); got != 5+100+3+2+20 {
		t.Errorf("longest %v", got)
	}
	if one.Label(0) != "a" || one.Label(1) != "sends" || one.Label(2) != "broadcast" {
		t.Error(one.Label(0), one.Label(1), one.Label(2))
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ old, with, says string }{
		{`"version":1`, `"version":2`, "version"},
		{`"version":1, `, ``, "version: missing"},
		{`"ranks":4`, `"ranks":0`, "ranks"},
		{`"ranks":4`, `"rank":4`, "rank: unknown field"},
		{`"compute_us":50`, `"compute_us":-1`, "compute_us: -1 is negative"},
		{`[[0,2],[1,3]]`, `[[0,2],[1]]`, "communicators[1].groups[1]: has 1 ranks"},
		{`[[0,2],[1,3]]`, `[[0,2],[1,2]]`, "communicators[1].groups[1][1]: rank 2 is listed twice"},
		{`[[0,2],[1,3]]`, `[[0,2],[1,4]]`, "communicators[1].groups[1][1]: 4 is outside 0..3"},
		{`[[0,2],[1,3]]`, `[]`, "communicators[1].groups: has no group"},
		{`"communicator":1`, `"communicator":2`, "calls[0].communicator: 2 is outside 0..1"},
		{`"bytes":1000`, `"bytes":-1`, "calls[0].bytes: -1 is negative"},
		{`"bytes":1000, `, ``, "calls[0]: bytes: missing"},
		{`"bytes":1000`, `"bytes":"1000"`, "calls[0].bytes: want a number"},
		{`"algorithm":"ring", "bytes":1000`, `"bytes":1000`, "calls[0].algorithm: missing"},
		{`"collective":"allreduce", "algorithm":"ring", "bytes":1000`, `"bytes":1000`, "calls[0].collective: missing"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[2,2]]`, "calls[1].flows[1]: 2 -> 2 is no transfer"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[0,1]]`, "calls[1].flows[1]: 0 -> 1 is listed twice"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[2,4]]`, "calls[1].flows[1]: 2 -> 4 is outside 0..3"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[], "collective":"x", "algorithm":"y"`, "calls[1].flows: a call has"},
		{`"root":3`, `"root":4`, "calls[2].root: 4 is outside 0..3"},
		{`[[0,3],[1,2.5]]`, `[[0,3],[2,2.5]]`, "calls[2].after[1]: call 2 does not come before call 2"},
		{`[[0,3],[1,2.5]]`, `[[0,3],[0,2.5]]`, "calls[2].after[1]: call 0 is listed twice"},
		{`[[0,3],[1,2.5]]`, `[[0,-3]]`, "calls[2].after[0]: -3 is negative"},
		{`[[0,3],[1,2.5]]`, `[[0]]`, "calls[2].after[0]: has 1 elements"},
		{`[[0,3],[1,2.5]]`, `[]`, "calls[2].after: is empty"},
		{`"after":[[-1,10]]`, `"after":[[-1,10]], "gap_us":4`, "calls[1]: gap_us: a call has gap_us or after"},
		{`"tail_us":20`, `"tail_us":1e999`, "tail_us"},
	} {
		if !strings.Contains(example, c.old) {
			t.Fatalf("%q is not in the example", c.old)
		}
		_, err := Decode([]byte(strings.Replace(example, c.old, c.with, 1)))
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.with, err, c.says)
		}
	}
}

// FuzzDecode: a trace that Decode accepts is valid, and the same when it is written and read again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(example))
	f.Fuzz(func(t *testing.T, data []byte) {
		one, err := Decode(data)
		if err != nil {
			if one != nil || !errors.Is(err, ErrTrace) {
				t.Fatalf("%v with %v", one, err)
			}
			return
		}
		again, err := Decode(one.Encode())
		require.NoError(t, err)
		if string(again.Encode()) != string(one.Encode()) {
			t.Fatal("not the same when read again")
		}
	})
}

// record makes a run of a trace whose calls take us[i], with noise.
func record(t *Trace, us []float64, iterations int, noise func() float64) []Record {
	var run []Record
	begin := 0.0
	for range iterations {
		end := make([]float64, len(t.Calls))
		for i := range t.Calls {
			start := t.Ready(i, end)
			end[i] = start + us[i]
			run = append(run, Record{t.Calls[i], begin + start + noise(), begin + end[i]})
		}
		begin += t.End(end)
	}
	return run
}

// TestLearn: the iteration that repeats at the end of a run is found, with its gaps, after calls that do not repeat.
func TestLearn(t *testing.T) {
	one, err := Decode([]byte(`{"version":1, "ranks":2, "communicators":[{"groups":[[0,1]]}], "calls":[
		{"collective":"allgather", "algorithm":"ring", "bytes":8, "gap_us":100},
		{"collective":"allgather", "algorithm":"ring", "bytes":8, "gap_us":20},
		{"collective":"allreduce", "algorithm":"ring", "bytes":8, "gap_us":30, "tail_us":500}]}`))
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	run := record(one, []float64{10, 12, 14}, 5, r.Float64)
	start := []Record{{Call{Collective: "broadcast", Algorithm: "ring", Bytes: 1}, -100, -90}}
	l, err := Learn(2, one.Communicators, append(start, run...))
	require.NoError(t, err)
	if l.Period != 3 || l.Repeats < 4 || l.Trace.Calls[0].Collective != "allgather" {
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

// TestLearnOverlap: calls that come while others run wait for what has ended by then.
func TestLearnOverlap(t *testing.T) {
	one, err := Decode([]byte(`{"version":1, "ranks":2, "communicators":[{"groups":[[0,1]]}], "calls":[
		{"collective":"allreduce", "algorithm":"ring", "bytes":1, "gap_us":100},
		{"collective":"allreduce", "algorithm":"ring", "bytes":2, "after":[[-1,130]]},
		{"collective":"allreduce", "algorithm":"ring", "bytes":3, "after":[[-1,160]], "tail_us":500}]}`))
	require.NoError(t, err)
	us := []float64{50, 50, 50}
	l, err := Learn(2, one.Communicators, record(one, us, 4, func() float64 { return 0 }))
	require.NoError(t, err)
	want := []After{{Begin, 0}, {Begin, 30}, {0, 10}}
	for i, w := range want {
		if got := l.Trace.Calls[i].After; len(got) != 1 || got[0] != w {
			t.Errorf("call %d waits for %+v, want %+v", i, got, w)
		}
	}
	if got, want := l.Trace.Longest(us), one.Longest(us); got != want {
		t.Errorf("iteration of %v us, want %v", got, want)
	}
}

func TestLearnNothing(t *testing.T) {
	var run []Record
	for i := range 9 {
		run = append(run, Record{Call{Collective: "allreduce", Algorithm: "ring", Bytes: float64(i)}, float64(i), float64(i)})
	}
	if _, err := Learn(2, nil, run); !errors.Is(err, ErrNoPeriod) {
		t.Error(err)
	}
	if _, err := Learn(2, nil, nil); !errors.Is(err, ErrNoPeriod) {
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
		var kinds []int
		for _, r := range c.list {
			kinds = append(kinds, int(r))
		}
		if p, n := periodOf(kinds); p != c.period || n != c.covered {
			t.Errorf("%s: period %d of %d, want %d of %d", c.list, p, n, c.period, c.covered)
		}
	}
}
