package switches

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

func shift(by int) circuit.Permutation { return circuit.Shift(ranks, by) }

// each runs a test over all protocols.
func each(t *testing.T, planes int, change func(*Config), run func(r *rig)) {
	eachWaiting(t, calm, planes, change, run)
}

func eachWaiting(t *testing.T, w waits, planes int, change func(*Config), run func(r *rig)) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { run(newRigWaiting(t, w, protocol, planes, change)) })
		})
	}
}

func TestMoves(t *testing.T) {
	each(t, 1, nil, func(r *rig) {
		r.has(0, circuit.AllDark(ranks))
		for _, to := range []circuit.Permutation{
			shift(1), {1, 0, circuit.Dark, 3}, {1, 0, 2, 3}, circuit.AllDark(ranks), shift(3),
		} {
			r.must(0, to)
		}
		if verified, err := r.dev.Report(0); verified != "light" || err != nil {
			r.Errorf("verified by %s, %v", verified, err)
		}
		n := r.spy.applied.Load()
		r.must(0, shift(3)) // it is there already
		if r.model.Switching() || r.spy.applied.Load() > n+1 {
			r.Error("nothing was to do, and something was done")
		}
	})
}

// TestTwoPlanesOneSwitch: moves of two planes on a switch come out both, and neither touches the other.
func TestTwoPlanesOneSwitch(t *testing.T) {
	each(t, 2, nil, func(r *rig) {
		r.must(0, shift(1))
		r.must(1, shift(2))
		r.has(0, shift(1))
		for k := range 3 {
			to := []circuit.Permutation{shift(k), shift(k + 1)}
			for j := range to {
				require.NoError(r, r.dev.Switch(j, controller.Move{Epoch: uint32(k), To: to[j], Token: 3}))
			}
			if err := r.dev.Switch(1, controller.Move{To: shift(0)}); err != nil && !errors.Is(err, controller.ErrMoving) {
				r.Fatal(err)
			} else if err == nil {
				to[1] = shift(0) // the first had settled already
			}
			for j := range to {
				r.settled(j)
				r.has(j, to[j])
			}
		}
		// One plane's fault is not the other's.
		r.inject(device.Fault{Kind: device.StuckMirror, In: ranks + 1, Out: -1})
		if err := r.move(1, shift(1)); !errors.Is(err, driver.ErrNotAsIntended) || !strings.Contains(err.Error(),
			"rank 1, port ") || !strings.Contains(err.Error(), "plane b") {
			r.Errorf("a mirror is stuck: %v", err)
		}
		if _, err := r.dev.Report(0); err != nil {
			r.Errorf("plane a is unwell because of plane b: %v", err)
		}
		r.must(0, shift(3))
	})
}

// TestMovesTogether: moves that wait while the switch is busy are executed in one change.
func TestMovesTogether(t *testing.T) {
	r := newRig(t, "polatis-scpi", 3, nil)
	before := r.spy.applied.Load()
	entered, leave := make(chan struct{}), make(chan struct{})
	first := true
	r.spy.set(func(driver.Change) error {
		if first {
			first = false
			close(entered)
			<-leave
		}
		return nil
	})
	for j := range 3 {
		require.NoError(t, r.dev.Switch(j, controller.Move{To: shift(1)}))
		if j == 0 {
			<-entered
		}
	}
	close(leave)
	for j := range 3 {
		r.settled(j)
		r.has(j, shift(1))
	}
	if n := r.spy.applied.Load() - before; n != 2 {
		t.Errorf("%d changes, want 2: one plane, then two", n)
	}
}

// TestDrift: the device finds and reports a change by another writer, and refuses a move that does not know of it.
func TestDrift(t *testing.T) {
	each(t, 2, nil, func(r *rig) {
		r.must(0, shift(1))
		r.must(1, shift(1))
		r.inject(device.Fault{Kind: device.ThirdParty, In: 0, Out: -1})
		r.drifts(0, shift(1))
		if m, err := r.dev.Map(0); err != nil || m[0] != circuit.Dark {
			r.Errorf("map %v, %v", m, err)
		}
		if _, err := r.dev.Report(1); err != nil {
			r.Errorf("plane b: %v", err)
		}
		revision := r.model.Revision()
		err := r.moveFrom(0, shift(1), shift(2))
		if !errors.Is(err, driver.ErrDrift) || r.model.Revision() != revision || !strings.Contains(err.Error(),
			"rank 0 goes to nowhere, want rank 1") {
			r.Errorf("a move from a map that is not there: %v, table changed %d times", err, r.model.Revision()-revision)
		}
		r.must(0, shift(2)) // from the map that is there
		if _, err := r.dev.Report(0); err != nil {
			r.Error(err)
		}
	})
}

// TestNews: a switch that tells of changes is looked at when it does, not only now and then.
func TestNews(t *testing.T) {
	r := newRig(t, "gnmi", 1, func(c *Config) { c.DriftInterval = time.Hour })
	r.must(0, shift(1))
	r.inject(device.Fault{Kind: device.ThirdParty, In: 2, Out: -1})
	r.drifts(0, shift(1))
}

// TestThirdPartyDuringMove: another controller writes right before our change. Ours is not made, or, where it
// concerns another plane only, made all the same.
func TestThirdPartyDuringMove(t *testing.T) {
	each(t, 2, func(c *Config) { c.DriftInterval = time.Hour }, func(r *rig) {
		r.must(0, shift(1))
		r.must(1, shift(1))
		write := func(in int) func(driver.Change) error {
			once := false
			return func(driver.Change) error {
				if !once {
					once = true
					return r.model.Inject(device.Fault{Kind: device.ThirdParty, In: in, Out: -1})
				}
				return nil
			}
		}
		r.spy.set(write(ranks)) // in plane b
		if err := r.moveFrom(0, shift(1), shift(2)); err != nil {
			r.Errorf("plane a: %v", err)
		}
		r.has(0, shift(2))
		r.drifts(1, shift(1))
		r.spy.set(write(1)) // in plane a
		if err := r.moveFrom(0, shift(2), shift(3)); !errors.Is(err, driver.ErrDrift) {
			r.Errorf("plane a: %v", err)
		}
		r.spy.set(nil)
		r.has(0, circuit.Permutation{2, circuit.Dark, 0, 1})
	})
}

// TestStuckMirror: a circuit without light, which the switch may deny, is made anew once the operator
// asks for the same map again.
func TestStuckMirror(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) {
			each(t, 1, nil, func(r *rig) {
				r.must(0, shift(1))
				r.inject(device.Fault{Kind: device.StuckMirror, In: 2, Out: -1, Silent: silent})
				err := r.move(0, shift(2))
				if !errors.Is(err, driver.ErrNotAsIntended) || !strings.Contains(err.Error(), "plane a: circuits are not") ||
					!strings.Contains(err.Error(), "rank 2, port ") {
					r.Fatalf("a mirror is stuck: %v", err)
				}
				if !silent {
					r.has(0, shift(2)) // the table is as asked, and that is not enough
				}
				r.idle = true // an operator sets the map
				if err := r.move(0, shift(2)); err == nil {
					r.Fatal("still stuck, and all is well")
				}
				for looks := 0; looks < 5; looks++ { // no number of looks makes it good
					time.Sleep(r.dev.cfg.Averaging / 2)
					if _, err := r.dev.Report(0); err == nil {
						r.Fatal("a circuit without light is well")
					}
				}
				r.inject(device.Fault{Kind: device.Clear})
				r.must(0, shift(2))
			})
		})
	}
}

// TestGhost: a table that is no matching is no map.
func TestGhost(t *testing.T) {
	each(t, 1, nil, func(r *rig) {
		r.must(0, shift(1))
		r.inject(device.Fault{Kind: device.GhostConnect, In: 0, Out: 3})
		r.unwell(0, driver.ErrNotMatching)
		if m, err := r.dev.Map(0); !errors.Is(err, ocsctl.ErrUnknownMap) {
			r.Errorf("map %v, %v", m, err)
		}
		revision := r.model.Revision()
		if err := r.moveFrom(0, shift(1), shift(2)); !errors.Is(err, driver.ErrNotMatching) ||
			r.model.Revision() != revision {
			r.Errorf("a move on a ghost: %v", err)
		}
		r.inject(device.Fault{Kind: device.Clear})
		r.must(0, shift(2))
	})
}

func TestPartialBulk(t *testing.T) {
	eachWaiting(t, hasty, 1, nil, func(r *rig) {
		r.must(0, shift(1))
		r.inject(device.Fault{Kind: device.PartialBulk, Count: 1, Silent: true})
		if err := r.move(0, shift(2)); err == nil {
			r.Fatal("part of the circuits is missing, and all is well")
		}
		if m, err := r.dev.Map(0); err != nil || !m.Equal(r.model.Map()) || m.Equal(shift(2)) {
			r.Errorf("map %v, %v; the switch has %v", m, err, r.model.Map())
		}
		r.must(0, shift(2))
	})
}

// TestLostReply: one lost answer is found out; when none comes any more the map is unknown until one
// does, and what is not known to be good is made anew.
func TestLostReply(t *testing.T) {
	eachWaiting(t, hasty, 1, func(c *Config) { c.LookTimeout = 3 * time.Second }, func(r *rig) {
		r.must(0, shift(1))
		r.inject(device.Fault{Kind: device.LostReply, Count: 1})
		r.must(0, shift(2))
		r.inject(device.Fault{Kind: device.LostReply, Count: 1 << 30})
		if err := r.move(0, shift(3)); !errors.Is(err, driver.ErrUnknownOutcome) {
			r.Errorf("no answers: %v", err)
		}
		if m, err := r.dev.Map(0); !errors.Is(err, ocsctl.ErrUnknownMap) {
			r.Errorf("map %v, %v", m, err)
		}
		r.inject(device.Fault{Kind: device.Clear})
		r.unwell(0, nil) // it did what it was asked
		r.has(0, shift(3))
		r.must(0, shift(3))
	})
}

// TestReboot: a switch that is gone is unwell, and found again.
func TestReboot(t *testing.T) {
	each(t, 1, func(c *Config) { c.Misses, c.LookTimeout = 2, 500*time.Millisecond }, func(r *rig) {
		r.must(0, shift(1))
		r.inject(device.Fault{Kind: device.Reboot, Delay: 700 * time.Millisecond})
		r.drifts(0, shift(1)) // it comes back without circuits
		r.has(0, circuit.AllDark(ranks))
		r.unwell(0, nil)
		r.must(0, shift(1))
	})
}

// TestAway: a switch that is not there at the start, or goes away for long.
func TestAway(t *testing.T) {
	there := make(chan struct{})
	errAway := errors.New("nobody there")
	r := newRig(t, "polatis-scpi", 1, func(c *Config) {
		open := c.Open
		c.Open = func(ctx context.Context, name string, ports driver.Ports) (driver.Switch, error) {
			select {
			case <-there:
				return open(ctx, name, ports)
			default:
				return nil, errAway
			}
		}
	})
	if _, err := r.dev.Map(0); !errors.Is(err, ocsctl.ErrUnknownMap) || !errors.Is(err, errAway) {
		t.Errorf("map: %v", err)
	}
	if err := r.moveFrom(0, nil, shift(1)); !errors.Is(err, errAway) || !strings.Contains(err.Error(),
		"switch sw does not answer") {
		t.Errorf("move: %v", err)
	}
	close(there)
	r.until(func() bool { _, err := r.dev.Map(0); return err == nil })
	r.must(0, shift(1))
	// Down for longer than three looks take.
	r.inject(device.Fault{Kind: device.Reboot, Delay: time.Hour})
	r.until(func() bool { _, err := r.dev.Map(0); return errors.Is(err, ocsctl.ErrUnknownMap) })
	if _, err := r.dev.Report(0); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("unwell: %v", err)
	}
}

// TestNothingVerified: if the driver does not verify mirrors, a move lasts as long as
// they may take.
func TestNothingVerified(t *testing.T) {
	rest := 20 * quick.Max
	each(t, 1, func(c *Config) {
		c.Verify, c.Planes[0].Reconfig = driver.ReadBack, rest
	}, func(r *rig) {
		start := time.Now()
		r.must(0, shift(1))
		if took := time.Since(start); took < rest || r.model.Switching() {
			r.Errorf("over after %v; mirrors move: %v", took, r.model.Switching())
		}
	})
}

// TestSlowPair: a move that takes longer than its time fails, and Close does not wait for one.
func TestSlowPair(t *testing.T) {
	each(t, 1, func(c *Config) { c.MoveTimeout = 300 * time.Millisecond }, func(r *rig) {
		start := time.Now()
		r.inject(device.Fault{Kind: device.SlowPair, In: 1, Out: -1, Delay: time.Hour})
		if err := r.move(0, shift(1)); err == nil {
			r.Fatal("a circuit does not come up, and all is well")
		}
		r.inject(device.Fault{Kind: device.Clear})
		r.idle = true
		for r.move(0, shift(1)) != nil { // as long as this machine has no 300 ms for it
			if time.Since(start) > patience {
				r.Fatal("it never moves again")
			}
		}
		r.has(0, shift(1))
	})
}

func TestCloseWhileMoving(t *testing.T) {
	each(t, 2, nil, func(r *rig) {
		r.inject(device.Fault{Kind: device.SlowPair, In: -1, Out: -1, Delay: time.Hour})
		for j := range 2 {
			require.NoError(r, r.dev.Switch(j, controller.Move{To: shift(1)}))
		}
		require.NoError(r, r.dev.Close())
		for j := range 2 {
			if m, err := r.dev.Map(j); errors.Is(err, controller.ErrMoving) {
				r.Errorf("plane %d moves after Close: %v", j, m)
			}
			if _, err := r.dev.Report(j); err == nil {
				r.Errorf("plane %d is well", j)
			}
		}
		if err := r.dev.Switch(0, controller.Move{To: shift(1)}); !errors.Is(err, ErrClosed) {
			r.Errorf("switch after Close: %v", err)
		}
	})
}

// TestFenced checks that a switch that obeys a controller with a higher token ends this controller's rule.
func TestFenced(t *testing.T) {
	r := newRig(t, "gnmi", 1, nil)
	r.must(0, shift(1))
	require.NoError(t, r.dev.Switch(0, controller.Move{Epoch: 9, From: shift(1), To: shift(2), Token: 2}))
	r.settled(0)
	_, err := r.dev.Report(0)
	if !errors.Is(err, driver.ErrFenced) || !errors.Is(err, controller.ErrNotLeader) {
		t.Errorf("a stale token: %v", err)
	}
	r.has(0, shift(1))
}

// TestFencedAfterFailure: a switch that obeys another controller ends the rule, also after a failed move.
func TestFencedAfterFailure(t *testing.T) {
	p := &plane{failure: driver.ErrNoAnswer, watch: driver.ErrFenced}
	if err := p.unwell(); !errors.Is(err, controller.ErrNotLeader) {
		t.Error(err)
	}
}

// TestFailedPort: a port that fails while nothing moves.
func TestFailedPort(t *testing.T) { synctest.Test(t, testFailedPort) }

func testFailedPort(t *testing.T) {
	f := newFake(2 * ranks)
	r := &rig{T: t, spy: &spy{}, news: make(chan int, 64)}
	r.start(Config{
		Planes: fakePlanes(2), DriftInterval: 5 * time.Millisecond, Verify: driver.Light,
		Open: func(context.Context, string, driver.Ports) (driver.Switch, error) { return r.spy.on(f), nil },
	})
	for j := range 2 {
		require.NoError(t, r.moveFrom(j, circuit.AllDark(ranks), shift(1)))
	}
	say := func(change func(h *driver.Health), port int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.health[port] = driver.Health{Port: fmt.Sprint("p", port), State: "TUNED"}
		change(&f.health[port])
	}
	failed := func(h *driver.Health) { h.Failed, h.State = true, "FAILED" }
	well := func(*driver.Health) {}
	said := func(plane int, words string) {
		t.Helper()
		r.until(func() bool {
			_, err := r.dev.Report(plane)
			return err == nil && words == "" || words != "" && err != nil && strings.Contains(err.Error(), words)
		})
	}
	say(failed, ranks+2)
	said(1, "port p6 of rank 2 is FAILED")
	said(0, "")
	say(well, ranks+2)
	said(1, "")
	say(func(h *driver.Health) { h.HasPower, h.PowerDBm = true, -55 }, 2*ranks+3)
	said(0, "light is lost: port p11 of rank 3 receives -55.00 dBm from rank 2")
	say(well, 2*ranks+3)
	said(0, "")
	// Text that the driver must not report.
	f.mu.Lock()
	f.health = f.health[1:]
	f.mu.Unlock()
	said(0, "health of 15 ports")
}

// TestForeignCircuits: a circuit between two planes is neither's, and a move takes it away.
func TestForeignCircuits(t *testing.T) {
	each(t, 2, nil, func(r *rig) {
		r.inject(device.Fault{Kind: device.ThirdParty, In: 1, Out: ranks + 2})
		r.until(func() bool { _, a := r.dev.Report(0); _, b := r.dev.Report(1); return a != nil && b != nil })
		if _, err := r.dev.Map(0); !errors.Is(err, ocsctl.ErrUnknownMap) || !strings.Contains(err.Error(), "another plane") {
			r.Errorf("map: %v", err)
		}
		if err := r.moveFrom(0, nil, shift(1)); err != nil {
			r.Errorf("plane a: %v", err)
		}
		r.unwell(1, nil)
		r.has(0, shift(1))
		r.must(1, shift(1))
	})
}

func TestBadConfig(t *testing.T) {
	open := func(context.Context, string, driver.Ports) (driver.Switch, error) { return newFake(ranks), nil }
	ports := driver.Ports{In: []string{"1", "2"}}
	for name, c := range map[string]Config{
		"planes":          {Open: open},
		"open":            {Planes: []Plane{{Name: "p0", Switch: "sw", Ports: ports}}},
		"names no switch": {Open: open, Planes: []Plane{{Name: "p0", Ports: ports}}},
		"0 ingress":       {Open: open, Planes: []Plane{{Name: "p0", Switch: "sw"}}},
		"1 egress": {Open: open, Planes: []Plane{{Name: "p0", Switch: "sw",
			Ports: driver.Ports{In: ports.In, Out: []string{"3"}}}}},
		"in/out": {Open: open, Planes: []Plane{{Name: "p0", Switch: "sw", Ports: ports},
			{Name: "p1", Switch: "sw", Ports: driver.Ports{In: []string{"3"}, Out: []string{"4"}}}}},
	} {
		if d, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
	r := newRig(t, "polatis-scpi", 1, nil)
	for name, m := range map[string]controller.Move{
		"target: has 3": {To: circuit.Shift(3, 1)},
		"target: [1]":   {To: circuit.Permutation{0, 0, 1, 2}},
		"outside":       {To: circuit.Permutation{0, 1, 2, 9}},
		"from":          {From: circuit.Shift(2, 1), To: shift(1)},
	} {
		if err := r.dev.Switch(0, m); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, plane := range []int{-1, 1} {
		if err := r.dev.Switch(plane, controller.Move{To: shift(1)}); err == nil {
			t.Errorf("plane %d: no error", plane)
		}
		if _, err := r.dev.Map(plane); err == nil {
			t.Errorf("plane %d: no error", plane)
		}
	}
	if r.model.Revision() != 0 {
		t.Error("bad input reached the switch")
	}
}
