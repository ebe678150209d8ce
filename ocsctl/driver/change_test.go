package driver_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

var errLost = errors.New("no answer")

// fake is a switch that answers as its fields say.
type fake struct {
	maps    []mapAnswer // of the reads after the change, the last one for ever
	refused []error
	sendErr error
	states  func(read int) []driver.State
	light   []float64
	noLight error

	before circuit.Permutation
	sent   int
	reads  int
}

type mapAnswer struct {
	p   circuit.Permutation
	err error
}

func (f *fake) Map(ctx context.Context) (circuit.Permutation, error) {
	if f.sent == 0 {
		return f.before, nil
	}
	a := f.maps[min(f.reads, len(f.maps)-1)]
	f.reads++
	return a.p, errors.Join(a.err, ctx.Err())
}

func (f *fake) Send(context.Context, uint64, []circuit.Pair, []circuit.Pair) ([]error, error) {
	f.sent++
	return f.refused, f.sendErr
}

func (f *fake) States(_ context.Context, circuits []circuit.Pair) ([]driver.State, error) {
	if f.states == nil {
		return nil, nil
	}
	return f.states(f.reads)[:len(circuits)], nil
}

func (f *fake) Light(context.Context, []circuit.Pair) ([]float64, error) { return f.light, f.noLight }

func states(s ...driver.State) func(int) []driver.State {
	return func(int) []driver.State { return s }
}

// TestCarry: every way in which a switch may behave has its verdict, and no change is asked for
// twice.
func TestCarry(t *testing.T) {
	before := circuit.Permutation{1, 0, 2}
	after := circuit.Permutation{0, 1, 2}
	half := circuit.Permutation{0, circuit.Dark, 2}
	ok := []mapAnswer{{after, nil}}
	no := errors.New("port is locked")
	for name, c := range map[string]struct {
		f     fake
		want  driver.Level
		is    error           // nil: no error
		level [2]driver.Level // of the ports 0 and 1
		bad   [2]bool         // whether the verdict has a reason
		none  bool            // there are no verdicts
	}{
		"as asked":                    {f: fake{maps: ok}, want: driver.ReadBack, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"the table follows later":     {f: fake{maps: []mapAnswer{{before, nil}, {half, nil}, {after, nil}}}, want: driver.ReadBack, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"part of it for ever":         {f: fake{maps: []mapAnswer{{half, nil}}}, want: driver.ReadBack, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.ReadBack, 0}, bad: [2]bool{false, true}},
		"no states":                   {f: fake{maps: ok}, want: driver.Status, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"up":                          {f: fake{maps: ok, states: states(driver.Up, driver.Up)}, want: driver.Light, level: [2]driver.Level{driver.Status, driver.Status}},
		"up later":                    {f: fake{maps: ok, states: func(n int) []driver.State { return []driver.State{driver.Up, driver.State(min(n/3, 1))} }}, want: driver.Status, level: [2]driver.Level{driver.Status, driver.Status}},
		"never up":                    {f: fake{maps: ok, states: states(driver.Up, driver.Pending)}, want: driver.Status, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.Status, driver.ReadBack}, bad: [2]bool{false, true}},
		"failed":                      {f: fake{maps: ok, states: states(driver.Failed, driver.Up)}, want: driver.Light, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.ReadBack, driver.Status}, bad: [2]bool{true, false}},
		"light":                       {f: fake{maps: ok, states: states(driver.Up, driver.Up), light: []float64{-3, math.NaN()}}, want: driver.Light, level: [2]driver.Level{driver.Light, driver.Status}},
		"dark":                        {f: fake{maps: ok, states: states(driver.Up, driver.Up), light: []float64{-3, -45}}, want: driver.Light, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.Light, driver.ReadBack}, bad: [2]bool{false, true}},
		"light unknown":               {f: fake{maps: ok, states: states(driver.Up, driver.Up), noLight: errLost}, want: driver.Light, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}, bad: [2]bool{true, true}},
		"refused whole":               {f: fake{maps: []mapAnswer{{before, nil}}, sendErr: driver.ErrRefused}, want: driver.Status, is: driver.ErrRefused, bad: [2]bool{true, true}},
		"fenced":                      {f: fake{maps: []mapAnswer{{before, nil}}, sendErr: driver.ErrFenced}, want: driver.Status, is: driver.ErrFenced, bad: [2]bool{true, true}},
		"refused in part":             {f: fake{maps: []mapAnswer{{half, nil}}, refused: []error{nil, nil, nil, no}}, want: driver.ReadBack, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.ReadBack, 0}, bad: [2]bool{false, true}},
		"lost, done":                  {f: fake{maps: ok, sendErr: errLost}, want: driver.ReadBack, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"lost, done late":             {f: fake{maps: []mapAnswer{{nil, errLost}, {before, nil}, {after, nil}}, sendErr: errLost}, want: driver.ReadBack, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"lost, not done":              {f: fake{maps: []mapAnswer{{before, nil}}, sendErr: errLost}, want: driver.ReadBack, is: driver.ErrNotAsIntended, bad: [2]bool{true, true}},
		"lost for good":               {f: fake{maps: []mapAnswer{{nil, errLost}}, sendErr: errLost}, want: driver.ReadBack, is: driver.ErrUnknownOutcome, none: true},
		"lost, read once, lost again": {f: fake{maps: []mapAnswer{{before, nil}, {nil, errLost}}, sendErr: errLost}, want: driver.ReadBack, is: driver.ErrUnknownOutcome, bad: [2]bool{true, true}},
		"answered, never read":        {f: fake{maps: []mapAnswer{{nil, errLost}}}, want: driver.ReadBack, is: driver.ErrUnknownOutcome, none: true},
		"no matching afterwards":      {f: fake{maps: []mapAnswer{{after, driver.ErrNotMatching}}}, want: driver.ReadBack, is: driver.ErrNotMatching, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"another port moved":          {f: fake{maps: []mapAnswer{{circuit.Permutation{0, 1, circuit.Dark}, nil}}}, want: driver.ReadBack, is: driver.ErrDrift, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := c.f
				f.before = before
				start := time.Now()
				all, err := driver.Carry(t.Context(), &f, driver.Change{Before: before, After: after, Want: c.want}, driver.Tolerance{Settle: time.Second, Averaging: time.Second})
				if !errors.Is(err, c.is) || (err == nil) != (c.is == nil) {
					t.Fatalf("%v, want %v; verdicts %+v", err, c.is, all)
				}
				if f.sent != 1 || time.Since(start) > 3*time.Second {
					t.Errorf("asked %d times, in %v", f.sent, time.Since(start))
				}
				if c.none != (all == nil) {
					t.Fatalf("verdicts %+v", all)
				}
				for i, v := range all {
					if v.In != i || v.Verified != c.level[i] || (v.Reason != "") != c.bad[i] || v.Intended != after[i] {
						t.Errorf("%+v, want %v, bad %v", v, c.level[i], c.bad[i])
					}
				}
			})
		})
	}
}

// TestCarryRefuses: what must not be asked is not asked.
func TestCarryRefuses(t *testing.T) {
	before := circuit.Permutation{1, 0}
	for name, c := range map[string]struct {
		at     circuit.Permutation
		change driver.Change
		is     error
	}{
		"drift":        {circuit.Permutation{0, 1}, driver.Change{Before: before, After: circuit.AllDark(2)}, driver.ErrDrift},
		"other size":   {circuit.Shift(3, 1), driver.Change{Before: before, After: circuit.AllDark(2)}, driver.ErrDrift},
		"no matching":  {before, driver.Change{Before: before, After: circuit.Permutation{0, 0}}, nil},
		"bad before":   {before, driver.Change{Before: circuit.Permutation{1, 1}, After: before}, nil},
		"short":        {before, driver.Change{Before: before, After: circuit.Permutation{0}}, nil},
		"out of range": {before, driver.Change{Before: before, After: circuit.Permutation{0, 2}}, nil},
	} {
		f := fake{before: c.at}
		if _, err := driver.Carry(context.Background(), &f, c.change, driver.Tolerance{}); err == nil || f.sent != 0 || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, asked %d times", name, err, f.sent)
		}
	}
	f := fake{before: before}
	if all, err := driver.Carry(context.Background(), &f, driver.Change{Before: before, After: before}, driver.Tolerance{}); all != nil || err != nil || f.sent != 0 {
		t.Errorf("nothing to do: %+v, %v, asked %d times", all, err, f.sent)
	}
}
