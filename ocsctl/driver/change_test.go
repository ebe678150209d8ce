package driver_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
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
	changed := []bool{true, true, false} // the circuit of port 2 is another plane's
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
		"as asked": {f: fake{maps: ok}, want: driver.ReadBack,
			level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"the table follows later": {f: fake{maps: []mapAnswer{{before, nil}, {half, nil}, {after, nil}}},
			want: driver.ReadBack, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"part of it for ever": {f: fake{maps: []mapAnswer{{half, nil}}}, want: driver.ReadBack,
			is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.ReadBack, 0}, bad: [2]bool{false, true}},
		"no states": {f: fake{maps: ok}, want: driver.Status,
			level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"up": {f: fake{maps: ok, states: states(driver.Up, driver.Up)}, want: driver.Light,
			level: [2]driver.Level{driver.Status, driver.Status}},
		"up later": {f: fake{maps: ok, states: func(n int) []driver.State {
			return []driver.State{driver.Up, driver.State(min(n/3, 1))}
		}}, want: driver.Status, level: [2]driver.Level{driver.Status, driver.Status}},
		"never up": {f: fake{maps: ok, states: states(driver.Up, driver.Pending)}, want: driver.Status,
			is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.Status, driver.ReadBack}, bad: [2]bool{false, true}},
		"failed": {f: fake{maps: ok, states: states(driver.Failed, driver.Up)}, want: driver.Light,
			is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.ReadBack, driver.Status}, bad: [2]bool{true, false}},
		"light": {f: fake{maps: ok, states: states(driver.Up, driver.Up),
			light: []float64{-3, math.NaN()}}, want: driver.Light, level: [2]driver.Level{driver.Light, driver.Status}},
		"dark": {f: fake{maps: ok, states: states(driver.Up, driver.Up), light: []float64{-3, -45}},
			want: driver.Light, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.Light, driver.ReadBack},
			bad: [2]bool{false, true}},
		"light unknown": {f: fake{maps: ok, states: states(driver.Up, driver.Up), noLight: errLost},
			want: driver.Light, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.ReadBack, driver.ReadBack},
			bad: [2]bool{true, true}},
		"refused whole": {f: fake{maps: []mapAnswer{{before, nil}}, sendErr: driver.ErrRefused},
			want: driver.Status, is: driver.ErrRefused, bad: [2]bool{true, true}},
		"fenced": {f: fake{maps: []mapAnswer{{before, nil}}, sendErr: driver.ErrFenced},
			want: driver.Status, is: driver.ErrFenced, bad: [2]bool{true, true}},
		"refused in part": {f: fake{maps: []mapAnswer{{half, nil}}, refused: []error{nil, nil, nil, no}},
			want: driver.ReadBack, is: driver.ErrNotAsIntended, level: [2]driver.Level{driver.ReadBack, 0},
			bad: [2]bool{false, true}},
		"lost, done": {f: fake{maps: ok, sendErr: errLost}, want: driver.ReadBack,
			level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"lost, done late": {f: fake{maps: []mapAnswer{{nil, errLost}, {before, nil}, {after, nil}},
			sendErr: errLost}, want: driver.ReadBack, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"lost, not done": {f: fake{maps: []mapAnswer{{before, nil}}, sendErr: errLost}, want: driver.ReadBack,
			is: driver.ErrNotAsIntended, bad: [2]bool{true, true}},
		"lost for good": {f: fake{maps: []mapAnswer{{nil, errLost}}, sendErr: errLost}, want: driver.ReadBack,
			is: driver.ErrUnknownOutcome, none: true},
		"lost, read once, lost again": {f: fake{maps: []mapAnswer{{before, nil}, {nil, errLost}}, sendErr: errLost},
			want: driver.ReadBack, is: driver.ErrUnknownOutcome, bad: [2]bool{true, true}},
		"answered, read once, lost": {f: fake{maps: []mapAnswer{{before, nil}, {nil, errLost}}},
			want: driver.ReadBack, is: driver.ErrUnknownOutcome, bad: [2]bool{true, true}},
		"answered, never read": {f: fake{maps: []mapAnswer{{nil, errLost}}}, want: driver.ReadBack,
			is: driver.ErrUnknownOutcome, none: true},
		"no matching afterwards": {f: fake{maps: []mapAnswer{{after, driver.ErrNotMatching}}}, want: driver.ReadBack,
			is: driver.ErrNotMatching, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
		"another port moved": {f: fake{maps: []mapAnswer{{circuit.Permutation{0, 1, circuit.Dark}, nil}}},
			want: driver.ReadBack, is: driver.ErrDrift, level: [2]driver.Level{driver.ReadBack, driver.ReadBack}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := c.f
				f.before = before
				start := time.Now()
				all, err := driver.Carry(t.Context(), &f, driver.Change{Before: before, After: after, Want: c.want, Check: changed},
					driver.Tolerance{Settle: time.Second, Averaging: time.Second})
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
		"drift": {circuit.Permutation{0, 1}, driver.Change{Before: before, After: circuit.AllDark(2)},
			driver.ErrDrift},
		"other size":   {circuit.Shift(3, 1), driver.Change{Before: before, After: circuit.AllDark(2)}, driver.ErrDrift},
		"no matching":  {before, driver.Change{Before: before, After: circuit.Permutation{0, 0}}, nil},
		"bad before":   {before, driver.Change{Before: circuit.Permutation{1, 1}, After: before}, nil},
		"short":        {before, driver.Change{Before: before, After: circuit.Permutation{0}}, nil},
		"out of range": {before, driver.Change{Before: before, After: circuit.Permutation{0, 2}}, nil},
	} {
		f := fake{before: c.at}
		if _, err := driver.Carry(context.Background(), &f, c.change, driver.Tolerance{}); err == nil || f.sent != 0 ||
			c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, asked %d times", name, err, f.sent)
		}
	}
}

// TestCarryVerifies: a change that makes nothing, or only removes, verifies what it keeps: to the level that
// the switch can give, and not beyond.
func TestCarryVerifies(t *testing.T) {
	before, without := circuit.Permutation{1, 0, 2}, circuit.Permutation{1, circuit.Dark, 2}
	up := states(driver.Up, driver.Up, driver.Up)
	for name, c := range map[string]struct {
		f     fake
		after circuit.Permutation
		check []bool
		is    error
		level []driver.Level // of the verdicts, in order of ports
		says  string         // of a verdict
	}{
		"nothing to do, lit": {f: fake{states: up, light: []float64{-3, -3, -3}}, after: before,
			level: []driver.Level{driver.Light, driver.Light, driver.Light}},
		"nothing to do, one dark": {f: fake{states: up, light: []float64{-3, -60, -3}}, after: before,
			is: driver.ErrNotAsIntended, level: []driver.Level{driver.Light, driver.ReadBack, driver.Light},
			says: "no light: -60.00 dBm"},
		"nothing to do, failed": {f: fake{states: states(driver.Up, driver.Up, driver.Failed)}, after: before,
			is: driver.ErrNotAsIntended, level: []driver.Level{driver.Status, driver.Status, driver.ReadBack},
			says: "failed port"},
		"nothing to do, no meters": {f: fake{states: up}, after: before,
			level: []driver.Level{driver.Status, driver.Status, driver.Status}},
		"nothing to do, table only": {f: fake{}, after: before, level: []driver.Level{driver.ReadBack, driver.ReadBack,
			driver.ReadBack}},
		"nothing to do, meters only": {f: fake{light: []float64{-3, -3, -3}}, after: before,
			level: []driver.Level{driver.Light, driver.Light, driver.Light}},
		"another plane is dark": {f: fake{states: up, light: []float64{-3, -3}}, after: before,
			check: []bool{true, true, false}, level: []driver.Level{driver.Light, driver.Light}},
		"one removed, a kept one dark": {f: fake{states: up, light: []float64{-3, -60}, maps: []mapAnswer{{without, nil}}},
			after: without, is: driver.ErrNotAsIntended, level: []driver.Level{driver.Light, driver.ReadBack, driver.ReadBack},
			says: "no light"},
		"a kept one is taken": {f: fake{states: up, maps: []mapAnswer{{circuit.Permutation{1, circuit.Dark,
			circuit.Dark}, nil}}}, after: without, is: driver.ErrDrift, level: []driver.Level{driver.Status, driver.ReadBack,
			driver.Unverified}, says: "another writer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := c.f
				f.before = before
				start := time.Now()
				all, err := driver.Carry(t.Context(), &f, driver.Change{Before: before, After: c.after, Want: driver.Light,
					Check: c.check}, driver.Tolerance{Settle: time.Second, Averaging: 100 * time.Millisecond})
				if !errors.Is(err, c.is) || (err == nil) != (c.is == nil) || time.Since(start) > time.Second {
					t.Fatalf("%v in %v, want %v; verdicts %+v", err, time.Since(start), c.is, all)
				}
				if asked := !before.Equal(c.after); (f.sent > 0) != asked {
					t.Errorf("asked %d times", f.sent)
				}
				said := ""
				var level []driver.Level
				for _, v := range all {
					level, said = append(level, v.Verified), said+v.Reason
				}
				if !slices.Equal(level, c.level) || !strings.Contains(said, c.says) || (said == "") != (c.says == "") {
					t.Errorf("levels %v, want %v; says %q, want %q", level, c.level, said, c.says)
				}
			})
		})
	}
}

// TestLostAnswerIsTold: a switch does not do what it was asked, and its answer says only that it was busy. The verdict
// has the reason.
func TestLostAnswerIsTold(t *testing.T) {
	before, after := circuit.Permutation{1, 0}, circuit.Permutation{0, 1}
	synctest.Test(t, func(t *testing.T) {
		f := fake{before: before, maps: []mapAnswer{{before, nil}}, sendErr: errors.New("Unavailable: busy")}
		all, err := driver.Carry(t.Context(), &f, driver.Change{Before: before, After: after},
			driver.Tolerance{Settle: time.Second})
		if !errors.Is(err, driver.ErrNotAsIntended) || !strings.Contains(err.Error(), "Unavailable: busy") || len(all) != 2 ||
			!strings.Contains(all[0].Reason, "Unavailable: busy") {
			t.Errorf("%v: %+v", err, all)
		}
	})
}

// TestTimeEndsBeforeLight: the time of a change ends while the meters still average over earlier light. Its circuits
// are not verified.
func TestTimeEndsBeforeLight(t *testing.T) {
	before, after := circuit.Permutation{1, 0}, circuit.Permutation{0, 1}
	synctest.Test(t, func(t *testing.T) {
		f := fake{before: before, maps: []mapAnswer{{after, nil}}, states: states(driver.Up, driver.Up),
			light: []float64{-60, -60}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all, err := driver.Carry(ctx, &f, driver.Change{Before: before, After: after, Want: driver.Light},
			driver.Tolerance{Averaging: 2 * time.Second})
		if !errors.Is(err, driver.ErrUnknownOutcome) || len(all) != 2 || all[0].Reason == "" {
			t.Errorf("%v: %+v", err, all)
		}
	})
}
