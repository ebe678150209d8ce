package device_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
)

// timing makes every circuit take 15 ms: 1 to the first motion, 10 of motion, 4 to settle.
var timing = device.Delays{Program: time.Millisecond, Min: 10 * time.Millisecond, Max: 10 * time.Millisecond,
	Settle: 4 * time.Millisecond, Conflict: 100 * time.Millisecond}

const circuitTime = 15 * time.Millisecond

// model runs a test of a switch on a clock of its own.
func model(t *testing.T, c device.Config, run func(t *testing.T, d *device.Device)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if c.Ports == 0 {
			c.Ports = 4
		}
		if c.Delays == nil && c.Preset == "" {
			c.Delays = &timing
		}
		d, err := device.New(c)
		require.NoError(t, err)
		run(t, d)
		d.Close()
	})
}

func pair(from, to int) circuit.Pair { return circuit.Pair{From: from, To: to} }

func apply(t *testing.T, d *device.Device, remove, add []circuit.Pair, mode device.Mode) {
	t.Helper()
	require.NoError(t, errors.Join(d.Apply(t.Context(), remove, add, mode)...))
}

func inject(t *testing.T, d *device.Device, f device.Fault) {
	t.Helper()
	require.NoError(t, d.Inject(f))
}

func wantState(t *testing.T, d *device.Device, port int, side device.Side, want device.PortState) {
	t.Helper()
	if got := d.Status(port, side); got != want {
		t.Errorf("port %d of side %d is %v, want %v", port, side, got, want)
	}
}

func TestPortStates(t *testing.T) {
	model(t, device.Config{}, func(t *testing.T, d *device.Device) {
		wantState(t, d, 0, device.Ingress, device.Blocked)
		apply(t, d, nil, []circuit.Pair{pair(0, 2)}, device.Bulk)
		wantState(t, d, 0, device.Ingress, device.Tuning)
		wantState(t, d, 2, device.Egress, device.Tuning)
		wantState(t, d, 0, device.Egress, device.Blocked)
		time.Sleep(circuitTime - time.Nanosecond)
		wantState(t, d, 0, device.Ingress, device.Tuning)
		time.Sleep(time.Nanosecond)
		wantState(t, d, 0, device.Ingress, device.Tuned)
		wantState(t, d, 2, device.Egress, device.Tuned)
		apply(t, d, []circuit.Pair{pair(0, 2)}, nil, device.Bulk)
		wantState(t, d, 0, device.Ingress, device.Blocked)
		if d.Revision() != 2 {
			t.Errorf("revision %d, want 2", d.Revision())
		}
	})
}

// TestModes: in bulk all circuits move at once, serially one after the other.
func TestModes(t *testing.T) {
	three := []circuit.Pair{pair(0, 1), pair(1, 2), pair(2, 0)}
	for mode, want := range map[device.Mode]time.Duration{
		device.Bulk:   circuitTime,
		device.Serial: time.Millisecond + 3*14*time.Millisecond,
	} {
		model(t, device.Config{}, func(t *testing.T, d *device.Device) {
			start := time.Now()
			apply(t, d, nil, three, mode)
			require.NoError(t, d.Wait(t.Context()))
			if took := time.Since(start); took != want {
				t.Errorf("mode %d took %v, want %v", mode, took, want)
			}
			if got := d.Map(); !got.Equal(circuit.Permutation{1, 2, 0, circuit.Dark}) {
				t.Errorf("map %v", got)
			}
		})
	}
}

// TestRefusals: what Apply refuses, Check foretells, and a conflict is broken only where the switch
// does so.
func TestRefusals(t *testing.T) {
	requests := []struct {
		remove, add []circuit.Pair
		want        []error
	}{
		{nil, []circuit.Pair{pair(0, 1)}, []error{nil}},
		{nil, []circuit.Pair{pair(0, 1)}, []error{nil}}, // there already
		{nil, []circuit.Pair{pair(0, 2)}, []error{device.ErrBusy}},
		{nil, []circuit.Pair{pair(3, 1), pair(3, 2)}, []error{device.ErrBusy, nil}},
		{nil, []circuit.Pair{pair(-1, 1), pair(1, 4)}, []error{device.ErrPort, device.ErrPort}},
		{[]circuit.Pair{pair(0, 2), pair(2, 2), pair(9, 9)}, nil,
			[]error{device.ErrNoCircuit, device.ErrNoCircuit, device.ErrPort}},
		{[]circuit.Pair{pair(0, 1), pair(0, 1)}, []circuit.Pair{pair(0, 3), pair(2, 3)},
			[]error{nil, device.ErrNoCircuit, nil, device.ErrBusy}},
	}
	model(t, device.Config{}, func(t *testing.T, d *device.Device) {
		for i, r := range requests {
			foretold := d.Check(r.remove, r.add)
			got := d.Apply(t.Context(), r.remove, r.add, device.Bulk)
			for k, want := range r.want {
				if !errors.Is(got[k], want) || !errors.Is(foretold[k], want) {
					t.Errorf("request %d[%d]: %v, foretold %v; want %v", i, k, got[k], foretold[k], want)
				}
			}
		}
	})
	model(t, device.Config{BreakConflicts: true}, func(t *testing.T, d *device.Device) {
		apply(t, d, nil, []circuit.Pair{pair(0, 1), pair(1, 2)}, device.Bulk)
		start := time.Now()
		apply(t, d, nil, []circuit.Pair{pair(0, 2)}, device.Bulk) // breaks two
		if err := d.Wait(t.Context()); err != nil || time.Since(start) != circuitTime+200*time.Millisecond {
			t.Errorf("took %v, %v", time.Since(start), err)
		}
		if got := d.Map(); !got.Equal(circuit.Permutation{2, circuit.Dark, circuit.Dark, circuit.Dark}) {
			t.Errorf("map %v", got)
		}
	})
}

func TestReplaceLeavesWhatStays(t *testing.T) {
	model(t, device.Config{}, func(t *testing.T, d *device.Device) {
		require.NoError(t, d.Replace(t.Context(), circuit.Shift(4, 1), device.Bulk))
		time.Sleep(circuitTime)
		to := circuit.Permutation{1, 3, 2, circuit.Dark}
		if err := d.Replace(t.Context(), to, device.Bulk); err != nil || !d.Map().Equal(to) {
			t.Fatalf("%v, map %v", err, d.Map())
		}
		wantState(t, d, 0, device.Ingress, device.Tuned)
		wantState(t, d, 1, device.Ingress, device.Tuning)
		if err := d.Replace(t.Context(), circuit.Permutation{0, 0, 1, 2}, device.Bulk); !errors.Is(err, device.ErrPort) ||
			!d.Map().Equal(to) {
			t.Fatalf("two circuits into one port: %v, map %v", err, d.Map())
		}
	})
}

// TestPower: the detectors show the average of their window, with loss, so light comes and goes
// slowly.
func TestPower(t *testing.T) {
	model(t, device.Config{LaunchDBm: 3}, func(t *testing.T, d *device.Device) {
		d.SetAveraging(80 * time.Millisecond)
		read := func(want float64) {
			t.Helper()
			if got, ok := d.PowerDBm(2, device.Egress); !ok || math.Abs(got-want) > 0.01 {
				t.Errorf("%v: %.3f dBm, %v; want %.3f", time.Now(), got, ok, want)
			}
		}
		full := 3 - d.LossDB(1, 2)
		read(device.DarkDBm)
		apply(t, d, nil, []circuit.Pair{pair(1, 2)}, device.Bulk)
		time.Sleep(circuitTime)
		read(device.DarkDBm)
		time.Sleep(40 * time.Millisecond)
		read(full - 10*math.Log10(2)) // half of the window
		time.Sleep(40 * time.Millisecond)
		read(full)
		apply(t, d, []circuit.Pair{pair(1, 2)}, nil, device.Bulk)
		time.Sleep(60 * time.Millisecond)
		read(full - 10*math.Log10(4))
		time.Sleep(20 * time.Millisecond)
		read(device.DarkDBm)
		if _, ok := d.PowerDBm(1, device.Ingress); ok {
			t.Error("an ingress port without a detector measures")
		}
	})
}

func TestStuckMirrors(t *testing.T) {
	for _, silent := range []bool{false, true} {
		model(t, device.Config{}, func(t *testing.T, d *device.Device) {
			inject(t, d, device.Fault{Kind: device.StuckMirror, In: -1, Out: 2, Silent: silent})
			apply(t, d, nil, []circuit.Pair{pair(0, 2), pair(1, 3)}, device.Bulk)
			time.Sleep(2 * time.Second)
			want := device.Failed
			if silent {
				want = device.Tuned
			}
			wantState(t, d, 2, device.Egress, want)
			wantState(t, d, 3, device.Egress, device.Tuned)
			dark, _ := d.PowerDBm(2, device.Egress)
			lit, _ := d.PowerDBm(3, device.Egress)
			if dark != device.DarkDBm || lit < -5 {
				t.Errorf("powers %.1f and %.1f dBm", dark, lit)
			}
		})
	}
}

// TestLostLight: a fibre that is pulled shows in the power of its port and in nothing else, and comes back.
func TestLostLight(t *testing.T) {
	for _, f := range []device.Fault{{Kind: device.LostLight, In: -1, Out: 2}, {Kind: device.LostLight, In: 0, Out: -1}} {
		model(t, device.Config{}, func(t *testing.T, d *device.Device) {
			apply(t, d, nil, []circuit.Pair{pair(0, 2), pair(1, 3)}, device.Bulk)
			time.Sleep(2 * time.Second)
			inject(t, d, f)
			time.Sleep(2 * time.Second)
			wantState(t, d, 2, device.Egress, device.Tuned)
			dark, _ := d.PowerDBm(2, device.Egress)
			lit, _ := d.PowerDBm(3, device.Egress)
			if dark != device.DarkDBm || lit < -5 || d.Lit()[0] != circuit.Dark || d.Map()[0] != 2 {
				t.Errorf("powers %.1f and %.1f dBm, light %v, map %v", dark, lit, d.Lit(), d.Map())
			}
			inject(t, d, device.Fault{Kind: device.Clear})
			time.Sleep(2 * time.Second)
			if dbm, _ := d.PowerDBm(2, device.Egress); dbm < -5 || d.Lit()[0] != 2 {
				t.Errorf("afterwards %.1f dBm, light %v", dbm, d.Lit())
			}
		})
	}
}

// TestGhost: a circuit that is only reported is removed by making it first, where its ports are free.
func TestGhost(t *testing.T) {
	model(t, device.Config{}, func(t *testing.T, d *device.Device) {
		inject(t, d, device.Fault{Kind: device.GhostConnect, In: 1, Out: 3})
		ghost := []circuit.Pair{pair(1, 3)}
		want := []device.Connection{{In: 1, Out: 3, State: device.Tuned, Ghost: true}}
		if got := d.Table(); !reflect.DeepEqual(got, want) || d.Map()[1] != circuit.Dark {
			t.Errorf("table %+v, map %v", got, d.Map())
		}
		if err := d.Apply(t.Context(), ghost, nil, device.Bulk)[0]; !errors.Is(err, device.ErrGhost) {
			t.Errorf("removing it: %v", err)
		}
		apply(t, d, nil, ghost, device.Bulk)
		apply(t, d, ghost, nil, device.Bulk)
		if got := d.Table(); len(got) != 0 {
			t.Errorf("afterwards %+v", got)
		}
	})
}

func TestLostReplies(t *testing.T) {
	model(t, device.Config{}, func(t *testing.T, d *device.Device) {
		inject(t, d, device.Fault{Kind: device.LostReply, Count: 2})
		if d.DropReply() {
			t.Error("lost before any change")
		}
		apply(t, d, nil, []circuit.Pair{pair(0, 0)}, device.Bulk)
		if got := []bool{d.DropReply(), d.DropReply(), d.DropReply()}; !reflect.DeepEqual(got, []bool{true, true, false}) {
			t.Errorf("lost %v", got)
		}
	})
}

func TestPartialBulk(t *testing.T) {
	model(t, device.Config{}, func(t *testing.T, d *device.Device) {
		two := []circuit.Pair{pair(0, 0), pair(1, 1)}
		inject(t, d, device.Fault{Kind: device.PartialBulk, Count: 1})
		if got := d.Apply(t.Context(), nil, two, device.Bulk); got[0] != nil || !errors.Is(got[1], device.ErrPartial) {
			t.Errorf("%v", got)
		}
		inject(t, d, device.Fault{Kind: device.PartialBulk, Silent: true})
		apply(t, d, nil, []circuit.Pair{pair(2, 2)}, device.Bulk)
		if got := d.Map(); !got.Equal(circuit.Permutation{0, -1, -1, -1}) {
			t.Errorf("map %v", got)
		}
		apply(t, d, nil, two, device.Bulk) // it was once
	})
}

func TestReboot(t *testing.T) {
	for mode, want := range map[device.ColdBoot]struct{ during, after circuit.Permutation }{
		device.Maintain: {circuit.Shift(4, 1), circuit.Shift(4, 1)},
		device.Restore:  {circuit.AllDark(4), circuit.Shift(4, 1)},
		device.Remove:   {circuit.AllDark(4), circuit.AllDark(4)},
	} {
		model(t, device.Config{ColdBoot: mode}, func(t *testing.T, d *device.Device) {
			require.NoError(t, d.Replace(t.Context(), circuit.Shift(4, 1), device.Bulk))
			time.Sleep(circuitTime)
			inject(t, d, device.Fault{Kind: device.Reboot, Delay: time.Second})
			if err := d.Apply(t.Context(), nil, []circuit.Pair{pair(0, 0)}, device.Bulk)[0]; !errors.Is(err,
				device.ErrDown) || d.Up() {
				t.Errorf("mode %d: down, yet %v, up %v", mode, err, d.Up())
			}
			if got := d.Map(); !got.Equal(want.during) {
				t.Errorf("mode %d: %v while it starts, want %v", mode, got, want.during)
			}
			time.Sleep(time.Second)
			if got := d.Map(); !d.Up() || !got.Equal(want.after) {
				t.Errorf("mode %d: up %v with %v, want %v", mode, d.Up(), got, want.after)
			}
			wantSwitching := mode == device.Restore
			if d.Switching() != wantSwitching {
				t.Errorf("mode %d: switching %v", mode, d.Switching())
			}
		})
	}
}

// TestDeterministic: a seed decides all that is drawn.
func TestDeterministic(t *testing.T) {
	logOf := func(seed uint64) (log []device.Event) {
		model(t, device.Config{Ports: 16, Seed: seed, Preset: "polatis-25ms"}, func(t *testing.T, d *device.Device) {
			for shift := range 4 {
				require.NoError(t, d.Replace(t.Context(), circuit.Shift(16, shift), device.Bulk))
				time.Sleep(25 * time.Millisecond)
				if d.Switching() {
					t.Error("a circuit takes more than 25 ms")
				}
			}
			log = d.Log()
		})
		return log
	}
	if !reflect.DeepEqual(logOf(5), logOf(5)) {
		t.Error("the same seed, another log")
	}
	if reflect.DeepEqual(logOf(5), logOf(6)) {
		t.Error("another seed, the same log")
	}
}

// TestWaitForWatchers: a caller that waits for the switch also waits for its watchers.
func TestWaitForWatchers(t *testing.T) {
	model(t, device.Config{Ports: 2}, func(t *testing.T, d *device.Device) {
		held, waited := make(chan struct{}), make(chan error, 1)
		defer d.Watch(func(e device.Event) {
			if e.Kind == device.Settled {
				<-held
			}
		})()
		apply(t, d, nil, []circuit.Pair{pair(0, 1)}, device.Bulk)
		go func() { waited <- d.Wait(t.Context()) }()
		time.Sleep(2 * circuitTime)
		synctest.Wait()
		select {
		case err := <-waited:
			t.Errorf("%v, and the watcher has not been told", err)
		default:
		}
		close(held)
		assert.NoError(t, <-waited)
	})
}

// TestWatch: a watcher sees the log, in order, and may call the switch.
func TestWatch(t *testing.T) {
	model(t, device.Config{}, func(t *testing.T, d *device.Device) {
		var seen []device.Event
		cancel := d.Watch(func(e device.Event) {
			seen = append(seen, e)
			if e.Kind == device.Settled && e.In == 0 {
				d.Apply(context.Background(), nil, []circuit.Pair{pair(1, 1)}, device.Bulk)
			}
		})
		changed := d.Changed()
		apply(t, d, nil, []circuit.Pair{pair(0, 0)}, device.Bulk)
		<-changed
		time.Sleep(time.Second)
		synctest.Wait()
		if !reflect.DeepEqual(seen, d.Log()) || len(seen) != 4 {
			t.Errorf("saw %+v of %+v", seen, d.Log())
		}
		cancel()
		apply(t, d, nil, []circuit.Pair{pair(2, 2)}, device.Bulk)
		if len(seen) != 4 {
			t.Error("sees more after cancel")
		}
	})
}

func TestBadConfigs(t *testing.T) {
	for _, c := range []device.Config{{}, {Ports: -1}, {Ports: device.MaxPorts + 1}, {Ports: 4, Preset: "magic"},
		{Ports: 4, Delays: &device.Delays{Min: 2, Max: 1}}, {Ports: 4, Delays: &device.Delays{Settle: -1}}} {
		if _, err := device.New(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	for name := range device.Presets {
		if _, err := device.New(device.Config{Ports: 4, Preset: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Light is the truth of a table with a ghost, a mirror that is stuck in silence, one that is known
// to be, and a circuit on its way; Due says when that arrives.
func TestLitAndDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := device.New(device.Config{Ports: 8, Delays: &device.Delays{Min: time.Millisecond, Max: time.Millisecond,
			PerCircuit: 100 * time.Microsecond}})
		require.NoError(t, err)
		defer d.Close()
		if !d.Due().IsZero() {
			t.Error("a switch at rest changes")
		}
		for _, f := range []device.Fault{
			{Kind: device.StuckMirror, In: 0, Out: -1, Silent: true}, {Kind: device.StuckMirror, In: 1, Out: -1},
			{Kind: device.GhostConnect, In: 5, Out: 5},
		} {
			require.NoError(t, d.Inject(f))
		}
		start := time.Now()
		require.NoError(t, errors.Join(d.Apply(t.Context(), nil, []circuit.Pair{{From: 0, To: 1}, {From: 1, To: 2},
			{From: 2, To: 3}}, device.Bulk)...))
		due := start.Add(time.Millisecond + 3*100*time.Microsecond)
		if got := d.Due(); !got.Equal(due) {
			t.Errorf("due after %v, want %v", got.Sub(start), due.Sub(start))
		}
		if got := d.Lit(); !got.Equal(circuit.AllDark(8)) {
			t.Errorf("on their way: lit %v", got)
		}
		time.Sleep(time.Until(due))
		want := circuit.AllDark(8)
		want[2] = 3
		if got := d.Lit(); !got.Equal(want) {
			t.Errorf("lit %v, want %v", got, want)
		}
		if !d.Due().IsZero() {
			t.Error("settled, and still due")
		}
	})
}

// A switch may have circuits from the beginning; they are lit and can be broken like others.
func TestInitial(t *testing.T) {
	initial := circuit.Permutation{2, circuit.Dark, 0}
	d, err := device.New(device.Config{Ports: 3, Initial: initial})
	require.NoError(t, err)
	defer d.Close()
	if !d.Lit().Equal(initial) || !d.Map().Equal(initial) || d.Status(2, device.Egress) != device.Tuned {
		t.Errorf("lit %v, map %v, port 2 %v", d.Lit(), d.Map(), d.Status(2, device.Egress))
	}
	assert.NoError(t, errors.Join(d.Apply(t.Context(), []circuit.Pair{{From: 0, To: 2}}, nil, device.Bulk)...))
	for _, bad := range []circuit.Permutation{{0, 1}, {1, 1, 0}, {3, 0, 1}} {
		if _, err := device.New(device.Config{Ports: 3, Initial: bad}); err == nil {
			t.Errorf("%v taken", bad)
		}
	}
}
