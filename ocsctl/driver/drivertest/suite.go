package drivertest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/internal/memnet"
	"lightpath/plans/circuit"
)

// Suite is a driver with a server of its protocol.
type Suite struct {
	// Serve serves d in the protocol on l until the test ends. It returns the target of a driver for the first ports of
	// d, with ports and credentials. The suite sets the endpoint and the waits.
	Serve func(t *testing.T, l net.Listener, d *device.Device, ports int) driver.Target
	Open  driver.Open
}

// ports is the number of ports of a test's switch, and mapped the number of ports that the driver knows.
const (
	ports  = 8
	mapped = 6
)

// rig is one switch and its driver.
type rig struct {
	*testing.T
	d  *device.Device
	sw driver.Switch
}

// delays are short, to save time, but long enough to be visible.
var delays = device.Delays{Min: 2 * time.Millisecond, Max: 4 * time.Millisecond}

// waits are a driver's: for an answer, and for circuits to come up.
type waits struct{ reply, settle time.Duration }

// Tests run on a fake clock, so a slow host delays no answer. hasty is for tests whose driver times out.
var (
	calm  = waits{20 * time.Second, 20 * time.Second}
	hasty = waits{3 * time.Second, 3 * time.Second}
)

func (s Suite) rig(t *testing.T, change func(*device.Config)) *rig {
	t.Helper()
	return s.waiting(t, calm, change)
}

// waiting returns a rig whose driver has the given waits.
func (s Suite) waiting(t *testing.T, w waits, change func(*device.Config)) *rig {
	t.Helper()
	c := device.Config{Ports: ports, Delays: &delays, Seed: 7}
	if change != nil {
		change(&c)
	}
	d, err := device.New(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	d.SetAveraging(20 * time.Millisecond)
	r := &rig{T: t, d: d}
	l := memnet.Listen()
	o := s.Serve(t, l, d, mapped)
	o.Endpoint, o.Dial, o.Timeout = l.Addr().String(), l.Dial, w.reply
	o.Tolerance = driver.Tolerance{Settle: w.settle, Averaging: 40 * time.Millisecond}
	sw, err := s.Open(r.ctx(), o)
	require.NoError(t, err)
	t.Cleanup(func() { sw.Close() }) //nolint:errcheck // the test has checked what matters
	r.sw = sw
	return r
}

// Run runs the suite.
func (s Suite) Run(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(s Suite, t *testing.T)
	}{
		{"Info", Suite.info},
		{"Read", Suite.read},
		{"Delta", Suite.delta},
		{"Levels", Suite.levels},
		{"NothingToDo", Suite.nothing},
		{"LostLight", Suite.lostLight},
		{"LostReply", Suite.lostReply},
		{"LostForGood", Suite.lostForGood},
		{"SlowPair", Suite.slowPair},
		{"StuckMirror", Suite.stuckMirror},
		{"SilentlyStuckMirror", Suite.silentlyStuck},
		{"Ghost", Suite.ghost},
		{"PartialBulk", func(s Suite, t *testing.T) { s.partialBulk(t, false) }},
		{"SilentPartialBulk", func(s Suite, t *testing.T) { s.partialBulk(t, true) }},
		{"ThirdParty", Suite.thirdParty},
		{"RebootMaintain", func(s Suite, t *testing.T) { s.reboot(t, device.Maintain) }},
		{"RebootRestore", func(s Suite, t *testing.T) { s.reboot(t, device.Restore) }},
		{"RebootRemove", func(s Suite, t *testing.T) { s.reboot(t, device.Remove) }},
		{"Cancel", Suite.cancel},
		{"Concurrent", Suite.concurrent},
		{"BadMaps", Suite.badMaps},
		{"Health", Suite.health},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(s, t) })
		})
	}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	r.Cleanup(cancel)
	return ctx
}

// shift returns the map r -> r+by of the mapped ports.
func shift(by int) circuit.Permutation { return circuit.Shift(mapped, by) }

// apply makes a change from the map that the driver reads.
func (r *rig) apply(to circuit.Permutation, want driver.Level) ([]driver.Circuit, error) {
	r.Helper()
	before, err := r.sw.Read(r.ctx())
	if err != nil {
		r.Fatalf("read: %v", err)
	}
	return r.sw.Apply(r.ctx(), driver.Change{Before: before, After: to, Want: want, Token: 1})
}

// must makes a change that has to succeed, and compares the switch's own table with it.
func (r *rig) must(to circuit.Permutation, want driver.Level) []driver.Circuit {
	r.Helper()
	verdicts, err := r.apply(to, want)
	if err != nil {
		r.Fatalf("apply %v: %v; verdicts %+v", to, err, verdicts)
	}
	r.truth(to)
	return verdicts
}

// truth compares the switch's table with a map of the mapped ports.
func (r *rig) truth(want circuit.Permutation) {
	r.Helper()
	if got := r.d.Map()[:mapped]; !got.Equal(want) {
		r.Fatalf("the switch has %v, want %v", got, want)
	}
}

// verdict returns the verdict on a port.
func (r *rig) verdict(all []driver.Circuit, in int) driver.Circuit {
	r.Helper()
	for _, v := range all {
		if v.In == in {
			return v
		}
	}
	r.Fatalf("no verdict on port %d in %+v", in, all)
	return driver.Circuit{}
}

func (r *rig) inject(f device.Fault) {
	r.Helper()
	require.NoError(r, r.d.Inject(f))
}

func (s Suite) info(t *testing.T) {
	r := s.rig(t, nil)
	info, err := r.sw.Info(r.ctx())
	if err != nil || info.Model == "" && info.Dialect == "" {
		t.Fatalf("%+v, %v", info, err)
	}
}

func (s Suite) read(t *testing.T) {
	r := s.rig(t, nil)
	if got, err := r.sw.Read(r.ctx()); err != nil || !got.Equal(circuit.AllDark(mapped)) {
		t.Fatalf("an empty switch reads as %v, %v", got, err)
	}
	pairs := []circuit.Pair{{From: 0, To: 3}, {From: 4, To: 4}, {From: 5, To: 0}, {From: 6, To: 7}, {From: 7, To: 6}}
	require.NoError(t, errors.Join(r.d.Apply(r.ctx(), nil, pairs, device.Bulk)...))
	// The last two are of ports that the driver does not know.
	want := circuit.Permutation{3, circuit.Dark, circuit.Dark, circuit.Dark, 4, 0}
	if got, err := r.sw.Read(r.ctx()); err != nil || !got.Equal(want) {
		t.Fatalf("reads %v, %v; want %v", got, err, want)
	}
}

// delta: circuits of both maps are not touched, deletes come first, other ports stay.
func (s Suite) delta(t *testing.T) {
	r := s.rig(t, nil)
	foreign := circuit.Pair{From: 6, To: 7}
	require.NoError(t, errors.Join(r.d.Apply(r.ctx(), nil, []circuit.Pair{foreign}, device.Bulk)...))
	r.must(shift(1), driver.ReadBack)
	require.NoError(t, r.d.Wait(r.ctx()))
	before := len(r.d.Log())
	to := shift(1).Clone()
	to[1], to[2], to[4] = to[2], to[1], circuit.Dark
	verdicts := r.must(to, driver.Status)
	if len(verdicts) != mapped {
		t.Errorf("%d verdicts, want %d, of circuits that stay too: %+v", len(verdicts), mapped, verdicts)
	}
	touched := map[int]bool{1: true, 2: true, 4: true}
	made := false
	for _, e := range r.d.Log()[before:] {
		switch e.Kind {
		case device.Made, device.Settled:
			made = made || e.Kind == device.Made
		case device.Broken:
			if made {
				t.Errorf("a circuit was broken after others were made: %+v", e)
			}
		case device.Refused:
			t.Errorf("the switch refused something: %+v", e)
			continue
		default:
			continue
		}
		if !touched[e.In] {
			t.Errorf("the circuit of port %d was touched: %+v", e.In, e)
		}
	}
	if got := r.d.Map()[foreign.From]; got != foreign.To {
		t.Errorf("a port that is not the driver's goes to %d now", got)
	}
	// A change of the whole map, for which some protocols have a request, does not change other ports either.
	r.must(shift(3), driver.Status)
	if got := r.d.Map()[foreign.From]; got != foreign.To {
		t.Errorf("after a whole map a port that is not the driver's goes to %d", got)
	}
	r.must(circuit.AllDark(mapped), driver.Status)
}

func (s Suite) levels(t *testing.T) {
	r := s.rig(t, nil)
	info, err := r.sw.Info(r.ctx())
	require.NoError(t, err)
	for i, want := range []driver.Level{driver.ReadBack, driver.Status, driver.Light} {
		for _, v := range r.must(shift(i+1), want) {
			reach := want
			if want == driver.Light && !info.CanLight {
				reach = driver.Status
			}
			if v.Verified < driver.ReadBack || v.Verified > reach || !v.Accepted || v.Observed != v.Intended || v.Reason != "" {
				t.Errorf("wanted %v: %+v", want, v)
			}
			if want == driver.Light && info.CanLight && v.Verified != driver.Light {
				t.Errorf("the switch measures power, yet %+v", v)
			}
		}
		if want >= driver.Status && r.d.Switching() {
			t.Errorf("wanted %v, and the switch is still switching", want)
		}
	}
}

// nothing: an empty change verifies the existing circuits, and touches none.
func (s Suite) nothing(t *testing.T) {
	r := s.rig(t, nil)
	info, err := r.sw.Info(r.ctx())
	require.NoError(t, err)
	r.must(shift(1), driver.Status)
	revision := r.d.Revision()
	for _, v := range r.must(shift(1), driver.Light) {
		if v.Verified != info.Reaches() || v.HasPower != info.CanLight {
			t.Errorf("the switch can verify by %v: %+v", info.Reaches(), v)
		}
	}
	if r.d.Revision() != revision {
		t.Errorf("nothing was to do, and the table has changed")
	}
}

// lostLight: light lost after a circuit was made shows in changes that keep the circuit, and in the health of its port.
func (s Suite) lostLight(t *testing.T) {
	r := s.rig(t, nil)
	if info, err := r.sw.Info(r.ctx()); err != nil || !info.CanLight {
		t.Skipf("the protocol has no power readings (%v)", err)
	}
	r.must(shift(1), driver.Light)
	r.inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3})
	fewer := shift(1).Clone()
	fewer[0] = circuit.Dark
	for name, to := range map[string]circuit.Permutation{"nothing": shift(1), "remove another": fewer} {
		verdicts, err := r.apply(to, driver.Light)
		if !errors.Is(err, driver.ErrNotAsIntended) {
			t.Fatalf("%s: %v; verdicts %+v", name, err, verdicts)
		}
		if v := r.verdict(verdicts, 2); v.Verified >= driver.Light || v.Reason == "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
	all, err := r.sw.Health(r.ctx())
	if err != nil || !all[mapped+3].HasPower || all[mapped+3].PowerDBm > -30 {
		t.Errorf("health: %v: %+v", err, all)
	}
	r.inject(device.Fault{Kind: device.Clear})
	r.must(fewer, driver.Light)
}

func (s Suite) cancel(t *testing.T) {
	r := s.waiting(t, waits{calm.reply, time.Hour}, nil)
	before, err := r.sw.Read(r.ctx())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.sw.Read(ctx); err == nil {
		t.Error("reads without time")
	}
	if _, err := r.sw.Apply(ctx, driver.Change{Before: before, After: shift(1), Token: 1}); err == nil ||
		r.d.Revision() != 0 {
		t.Errorf("%v, table changed %d times", err, r.d.Revision())
	}
	// The call ends long before the circuits come up, and the driver still works afterwards.
	r.inject(device.Fault{Kind: device.SlowPair, In: -1, Out: -1, Delay: time.Hour})
	ctx, cancel = context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	if _, err := r.sw.Apply(ctx, driver.Change{Before: before, After: shift(1), Want: driver.Status,
		Token: 1}); err == nil {
		t.Error("no time, no error")
	}
	r.inject(device.Fault{Kind: device.Clear})
	r.must(shift(2), driver.Status)
}

// concurrent: calls may overlap; of changes from one map exactly one is made.
func (s Suite) concurrent(t *testing.T) {
	r := s.rig(t, nil)
	r.must(shift(1), driver.Status)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var winners []int
	for i := range 4 {
		wg.Add(2)
		go func() {
			defer wg.Done()
			_, err := r.sw.Apply(r.ctx(), driver.Change{Before: shift(1), After: shift(2 + i), Want: driver.Status, Token: 1})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners = append(winners, 2+i)
			} else if err != nil && !errors.Is(err, driver.ErrDrift) {
				t.Errorf("change %d: %v", i, err)
			}
		}()
		go func() {
			defer wg.Done()
			for range 5 {
				if _, err := r.sw.Health(r.ctx()); err != nil {
					t.Errorf("health: %v", err)
				}
				if _, err := r.sw.Read(r.ctx()); err != nil {
					t.Errorf("read: %v", err)
				}
			}
		}()
	}
	wg.Wait()
	if len(winners) != 1 {
		t.Fatalf("of the changes from one map, those to shifts %v were made", winners)
	}
}

// badMaps: an invalid map of these ports never reaches the switch.
func (s Suite) badMaps(t *testing.T) {
	r := s.rig(t, nil)
	dark := circuit.AllDark(mapped)
	for name, after := range map[string]circuit.Permutation{
		"out of range":       {0, 1, 2, 3, 4, mapped},
		"below dark":         {0, 1, 2, 3, 4, -2},
		"duplicate egress":   {0, 1, 2, 3, 4, 4},
		"too short":          circuit.Shift(mapped-1, 1),
		"more than the map":  circuit.Shift(ports, 1),
		"none":               nil,
		"far out of range":   {0, 1, 2, 3, 4, 1 << 40},
		"all of one receive": {1, 1, 1, 1, 1, 1},
	} {
		if _, err := r.sw.Apply(r.ctx(), driver.Change{Before: dark, After: after, Token: 1}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if r.d.Revision() != 0 {
		t.Errorf("the table changed %d times", r.d.Revision())
	}
}

func (s Suite) health(t *testing.T) {
	r := s.rig(t, nil)
	r.inject(device.Fault{Kind: device.StuckMirror, In: 2, Out: -1})
	if _, err := r.apply(shift(1), driver.Status); err == nil {
		t.Fatal("a mirror is stuck, and all is well")
	}
	all, err := r.sw.Health(r.ctx())
	if err != nil || len(all) != 2*mapped {
		t.Fatalf("%d ports, %v; want %d", len(all), err, 2*mapped)
	}
	failed := 0
	for _, h := range all {
		if h.Port == "" || h.State == "" {
			t.Errorf("%+v", h)
		}
		if h.Failed {
			failed++
		}
		if h.HasPower && (h.PowerDBm < device.DarkDBm || h.PowerDBm > 30) {
			t.Errorf("%+v", h)
		}
	}
	if failed == 0 {
		t.Error("no port has failed, though a mirror is stuck")
	}
}
