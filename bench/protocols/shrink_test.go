package protocols

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// toy is a world in which each operation makes two choices. It violates "three" when the third operation of one job
// has a first choice of at least 5, and "early" when the first operation has a choice of 9.
func toy(cfg Config, c Chooser) *Result {
	r := &Result{Coverage: Coverage{}}
	large := 0
	for r.Operations < cfg.Operations {
		r.Operations++
		first := c.Choose(10)
		c.Choose(100 * cfg.Jobs)
		if first >= 5 {
			r.Coverage[Cell{"crash", "any"}]++
			large++
		}
		switch {
		case r.Operations == 1 && first == 9:
			r.Violation = errors.New("early: the first choice is 9")
			return r
		case large == 3:
			r.Violation = fmt.Errorf("three: operation %d", r.Operations)
			return r
		}
	}
	return r
}

// TestShrink checks that a run of many choices becomes the simplest one that violates the same invariant.
func TestShrink(t *testing.T) {
	s := &Simulation{Config: Config{Operations: 1000, Jobs: 3, Planes: 4, Faults: []string{"crash", "delay"}}, Seed: 4,
		Violation: "three"}
	got := Shrink(t.Context(), toy, s, 5000, nil)
	want := &Simulation{Choices: []int{5, 0, 5, 0, 5}, Violation: "three", Config: Config{Controllers: 1,
		Members: 1, Planes: 1, Ports: 2, Jobs: 1, Repeats: 1, Operations: 3, Faults: []string{"crash"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if again := Shrink(t.Context(), toy, s, 5000, nil); !reflect.DeepEqual(again, got) {
		t.Errorf("%+v at first, then %+v", got, again)
	}
}

// TestShrinkIsBounded checks that the number of runs and the context end the search, with a run that still violates.
func TestShrinkIsBounded(t *testing.T) {
	s := &Simulation{Config: Config{Operations: 1000}, Seed: 4, Violation: "three"}
	made := 0
	got := Shrink(t.Context(), toy, s, 7, func(n, _ int) { made = n })
	if r := toy(got.Config, got.Chooser()); made != 7 || InvariantOf(r.Violation) != "three" {
		t.Errorf("%d runs; %v", made, r.Violation)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got = Shrink(ctx, toy, s, 5000, func(n, _ int) {
		if made = n; n == 9 {
			cancel()
		}
	})
	if r := toy(got.Config, got.Chooser()); made != 9 || InvariantOf(r.Violation) != "three" {
		t.Errorf("%d runs; %v", made, r.Violation)
	}
}

// TestShrinkOfNoViolation checks that a run without the violation stays as it is.
func TestShrinkOfNoViolation(t *testing.T) {
	s := &Simulation{Config: Config{Operations: 2}, Seed: 4, Violation: "three"}
	if got := Shrink(t.Context(), toy, s, 100, nil); got != s {
		t.Errorf("%+v", got)
	}
}

// TestSearch checks that a search ends at the first seed that violates an invariant, whatever the number of workers.
func TestSearch(t *testing.T) {
	var first *Summary
	for _, workers := range []int{1, 2, 5} {
		sum, s := Search(t.Context(), toy, Config{Operations: 1, Jobs: 1}, 20, 1000, workers, nil)
		if s == nil || s.Violation != "early" {
			t.Fatalf("%+v, %+v", sum, s)
		}
		if r := toy(s.Config, s.Chooser()); InvariantOf(r.Violation) != "early" || int(s.Seed) != 20+sum.Runs-1 {
			t.Errorf("seed %d after %d runs: %v", s.Seed, sum.Runs, r.Violation)
		}
		if first == nil {
			first = sum
		}
		if !reflect.DeepEqual(sum, first) {
			t.Errorf("%d workers: %+v, want %+v", workers, sum, first)
		}
	}
	held := func(Config, Chooser) *Result { return &Result{Operations: 2} }
	if sum, s := Search(t.Context(), held, Config{}, 3, 5, 2, nil); s != nil || sum.Runs != 5 || sum.Operations != 10 {
		t.Errorf("%+v, %+v", sum, s)
	}
}

// TestShrinkToNothing checks that a violation without any choice keeps an empty list, which is no seed.
func TestShrinkToNothing(t *testing.T) {
	always := func(_ Config, c Chooser) *Result {
		c.Choose(5)
		return &Result{Violation: errors.New("always: holds never")}
	}
	if got := Shrink(t.Context(), always, &Simulation{Seed: 2}, 100, nil); got.Choices == nil || len(got.Choices) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestPanic checks that code that panics is a violation with a seed, and that the run can be shortened.
func TestPanic(t *testing.T) {
	panics := func(_ Config, c Chooser) *Result {
		for range 10 {
			if c.Choose(20) == 13 {
				panic("thirteen")
			}
		}
		return &Result{}
	}
	sum, s := Search(t.Context(), panics, Config{}, 1, 100, 2, nil)
	if s == nil || s.Violation != "panic" || sum.Runs == 100 {
		t.Fatalf("%+v, %+v", sum, s)
	}
	if got := Shrink(t.Context(), panics, s, 1000, nil); !slices.Equal(got.Choices, []int{13}) {
		t.Errorf("%+v", got)
	}
}
