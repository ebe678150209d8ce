package faults

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"lightpath/bench"
	"lightpath/internal/require"
)

// TestCheck changes a good result in every way that must fail the check.
func TestCheck(t *testing.T) {
	good := Result{GoesOn: true, Injected: "seen", Took: time.Millisecond, Bound: time.Second, Operations: 3}
	broken := good
	broken.GoesOn, broken.Lost = false, 7
	for name, c := range map[string]struct {
		base Result
		bend func(r *Result, o *outcome)
		says string
	}{
		"goes on":         {good, func(*Result, *outcome) {}, ""},
		"fails":           {broken, func(_ *Result, o *outcome) { o.failed = true }, ""},
		"no injection":    {good, func(r *Result, _ *outcome) { r.Injected = "" }, "nothing shows"},
		"should go on":    {good, func(_ *Result, o *outcome) { o.failed, o.said = true, "rank 3 is sad" }, "rank 3 is sad"},
		"should fail":     {broken, func(r *Result, _ *outcome) { r.Lost = 0 }, "should have failed"},
		"wrong":           {good, func(r *Result, _ *outcome) { r.Wrong = 4 }, "4 elements"},
		"lost in silence": {good, func(r *Result, _ *outcome) { r.Lost = 5 }, "5 frames were lost"},
		"late":            {good, func(r *Result, _ *outcome) { r.Took = time.Minute }, "took 1m0s"},
		"not measured":    {good, func(r *Result, _ *outcome) { r.Took = 0 }, "took 0s"},
		"no ranks":        {good, func(_ *Result, o *outcome) { o.ended = errors.New("no such file") }, "no such file"},
	} {
		r, o := c.base, outcome{}
		c.bend(&r, &o)
		if err := r.check(o); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if want := r.Lost; !o.failed && r.Silent != want || o.failed && r.Silent != 0 {
			t.Errorf("%s: %d of %d frames lost in silence", name, r.Silent, r.Lost)
		}
	}
}

// TestScenarios checks that names are unique, and that each scenario states its fault and its bound.
func TestScenarios(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scenarios() {
		if names[s.Name] || s.Fault == "" || s.Bound <= 0 || s.play == nil || s.setup.phases == nil ||
			strings.Contains(s.Name, " ") {
			t.Errorf("%+v", s)
		}
		if s.setup.open && !s.GoesOn {
			t.Errorf("%s: nobody waits for the error of a job that is stopped", s.Name)
		}
		names[s.Name] = true
	}
	if _, err := Run(t.Context(), &Options{Only: "no such thing", Progress: t.Logf}); !errors.Is(err, ErrNone) {
		t.Errorf("no such scenario: %v", err)
	}
}

// TestJob checks that an operation completes with its last rank. A fault during the operation counts from that moment.
func TestJob(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	j := &job{ctx: context.Background(), ranks: 2, done: make(chan struct{}), failed: map[int]failure{}}
	j.spans = [][]span{{{at(0), at(10)}, {at(20), at(35)}, {at(50), at(60)}}, {{at(1), at(9)}, {at(21), at(30)}}}
	if n := j.operations(); n != 2 {
		t.Errorf("%d operations", n)
	}
	for after, want := range map[int]span{5: {at(0), at(10)}, 10: {at(20), at(35)}, 34: {at(20), at(35)}} {
		if got, ok := j.completed(at(after)); !ok || got != want {
			t.Errorf("after %d ms: %v, %v", after, got, ok)
		}
	}
	if got, ok := j.completed(at(35)); ok {
		t.Errorf("rank 1 has not done it: %v", got)
	}
	j.told(1, "alone")
	j.told(0, " rank 1 is gone (reported by another rank)")
	if j.text(1) != "rank 1 is gone" || j.text() != "alone" {
		t.Errorf("%q, %q", j.text(1), j.text())
	}
	j.reported(bench.Report{Rank: 1, Wrong: 2})
	if j.operations() != 3 || j.wrongs() != 2 {
		t.Errorf("%d operations, %d wrong", j.operations(), j.wrongs())
	}
	close(j.done)
	if err := j.running(); !errors.Is(err, errEnded) {
		t.Error(err)
	}
}

func TestTables(t *testing.T) {
	results := []Result{
		{Name: "a", Fault: "one | two", Ranks: "rank 1 <dark>", GoesOn: true, Took: 1234567 * time.Nanosecond,
			Bound: time.Second, Lost: 3},
		{Name: "b", Fault: "three", Took: 12345 * time.Millisecond, Bound: time.Minute, Problem: "not so"},
	}
	var text, table strings.Builder
	require.NoError(t, errors.Join(Write(&text, results), WriteMarkdown(&table, results)))
	for _, want := range []string{"a: one | two\n  results again after 1.2ms (at most 1s); 0 operations",
		"ranks: rank 1 <dark>\n", "error on every rank after 12s", "PROBLEM: not so"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	for _, want := range []string{`a: one \| two | rank 1 &lt;dark> | - | results again`, "| **not so** |"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in\n%s", want, table.String())
		}
	}
	if n := strings.Count(table.String(), "\n"); n != 4 {
		t.Errorf("%d lines", n)
	}
}

func TestWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	never := func() (bool, error) { return false, nil }
	if err := wait(ctx, "pigs fly", 5*time.Millisecond, never); err == nil || !strings.Contains(err.Error(), "pigs fly") {
		t.Error(err)
	}
	if err := wait(ctx, "it breaks", time.Hour, func() (bool, error) { return true, errEnded }); !errors.Is(err,
		errEnded) {
		t.Error(err)
	}
	cancel()
	if err := wait(ctx, "pigs fly", time.Hour, never); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestProcess reads the output of a process. If the process ends early, the error contains its last output.
func TestProcess(t *testing.T) {
	p, err := start(t.Context(), "the shell", "/bin/sh", "-c", "echo ready >&2; echo done for >&2; exit 3")
	require.NoError(t, err)
	if text, err := p.await("ready", 0); err != nil || text != "ready" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := p.await("never", 0); !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "done for") {
		t.Error(err)
	}
	p.kill() // it has ended by itself
	if _, err := start(t.Context(), "nothing", "/does/not/exist"); err == nil ||
		!strings.Contains(err.Error(), "nothing") {
		t.Error(err)
	}
}
