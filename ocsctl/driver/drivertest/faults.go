package drivertest

import (
	"errors"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// lostReply: the switch executes a request, and the answer is lost. The driver reads back, and does not repeat the
// request.
func (s Suite) lostReply(t *testing.T) {
	r := s.waiting(t, waits{hasty.reply, calm.settle}, nil)
	r.must(shift(1), driver.Status)
	r.inject(device.Fault{Kind: device.LostReply, Count: 1})
	revision := r.d.Revision()
	for _, v := range r.must(shift(2), driver.Status) {
		if v.Observed != v.Intended || !v.Accepted {
			t.Errorf("%+v", v)
		}
	}
	if n := r.d.Revision() - revision; n != 2*mapped {
		t.Errorf("the table changed %d times, want %d", n, 2*mapped)
	}
	r.must(shift(3), driver.Status)
}

// lostForGood: the switch answers nothing after a change, so the driver reports an unknown outcome.
func (s Suite) lostForGood(t *testing.T) {
	r := s.waiting(t, hasty, nil)
	r.inject(device.Fault{Kind: device.LostReply, Count: 1 << 30})
	if _, err := r.apply(shift(1), driver.Status); !errors.Is(err, driver.ErrUnknownOutcome) {
		t.Fatalf("error %v, want %v", err, driver.ErrUnknownOutcome)
	}
	r.inject(device.Fault{Kind: device.Clear})
	r.must(shift(2), driver.Status)
}

func (s Suite) slowPair(t *testing.T) {
	r := s.rig(t, nil)
	r.inject(device.Fault{Kind: device.SlowPair, In: 2, Out: -1, Delay: 120 * time.Millisecond})
	r.must(shift(1), driver.Status)
	if r.d.Switching() {
		t.Error("the driver did not wait for the slow circuit")
	}
	r = s.waiting(t, waits{calm.reply, time.Second}, nil)
	r.inject(device.Fault{Kind: device.SlowPair, In: 2, Out: -1, Delay: time.Minute})
	verdicts, err := r.apply(shift(1), driver.Status)
	if !errors.Is(err, driver.ErrNotAsIntended) && !errors.Is(err, driver.ErrUnknownOutcome) {
		t.Fatalf("a circuit that does not come up: %v", err)
	}
	if v := r.verdict(verdicts, 2); v.Verified >= driver.Status || v.Reason == "" {
		t.Errorf("%+v", v)
	}
	// Later looks do not find good what is still not up.
	session := driver.NewSession(r.sw, mapped, driver.Rule{})
	for range 2 {
		_, err := session.Look(r.ctx())
		require.NoError(t, err)
	}
	if session.Good(2) || !session.Good(3) {
		t.Errorf("%+v, %+v", session.Circuit(2), session.Circuit(3))
	}
}

func (s Suite) stuckMirror(t *testing.T) {
	r := s.rig(t, nil)
	r.inject(device.Fault{Kind: device.StuckMirror, In: 3, Out: -1})
	verdicts, err := r.apply(shift(1), driver.Status)
	if !errors.Is(err, driver.ErrNotAsIntended) {
		t.Fatalf("a mirror is stuck: %v", err)
	}
	for _, v := range verdicts {
		if bad := v.Verified < driver.Status || v.Reason != ""; bad != (v.In == 3) {
			t.Errorf("%+v", v)
		}
	}
}

// silentlyStuck: the switch reports success, and only missing light shows the fault.
func (s Suite) silentlyStuck(t *testing.T) {
	r := s.rig(t, nil)
	if info, err := r.sw.Info(r.ctx()); err != nil || !info.CanLight {
		t.Skipf("the protocol has no power readings (%v)", err)
	}
	// Earlier light must not count as light of the new circuit.
	r.must(shift(2), driver.Light)
	r.inject(device.Fault{Kind: device.StuckMirror, In: 3, Out: -1, Silent: true})
	verdicts, err := r.apply(shift(1), driver.Light)
	if !errors.Is(err, driver.ErrNotAsIntended) {
		t.Fatalf("a mirror is stuck: %v", err)
	}
	for _, v := range verdicts {
		if bad := v.Verified < driver.Light || v.Reason != ""; bad != (v.In == 3) {
			t.Errorf("%+v", v)
		}
	}
}

// ghost: the switch reports a second circuit of a port. Such a table is no map.
func (s Suite) ghost(t *testing.T) {
	r := s.rig(t, nil)
	r.must(shift(1), driver.Status)
	r.inject(device.Fault{Kind: device.GhostConnect, In: 0, Out: 5})
	if got, err := r.sw.Read(r.ctx()); !errors.Is(err, driver.ErrNotMatching) {
		t.Fatalf("read %v, %v; want %v", got, err, driver.ErrNotMatching)
	}
	revision := r.d.Revision()
	_, err := r.sw.Apply(r.ctx(), driver.Change{Before: shift(1), After: shift(2), Want: driver.ReadBack, Token: 1})
	if !errors.Is(err, driver.ErrNotMatching) || r.d.Revision() != revision {
		t.Fatalf("apply: %v, table changed %d times", err, r.d.Revision()-revision)
	}
}

// partialBulk: the switch executes part of a request, with and without reporting that.
func (s Suite) partialBulk(t *testing.T, silent bool) {
	r := s.waiting(t, waits{calm.reply, hasty.settle}, nil)
	r.inject(device.Fault{Kind: device.PartialBulk, Count: 2, Silent: silent})
	verdicts, err := r.apply(shift(1), driver.ReadBack)
	if err == nil {
		t.Fatal("part of the circuits are missing, and all is well")
	}
	made := r.d.Map()
	for _, v := range verdicts {
		if v.Observed != made[v.In] {
			t.Errorf("the switch has %d for port %d: %+v", made[v.In], v.In, v)
		}
		if good := v.Reason == "" && v.Verified >= driver.ReadBack; good != (v.Observed == v.Intended) {
			t.Errorf("%+v", v)
		}
	}
	r.must(shift(1), driver.Status) // a second request makes the missing circuits
}

// thirdParty: another client writes between the read and the write of the driver.
func (s Suite) thirdParty(t *testing.T) {
	r := s.rig(t, nil)
	r.must(shift(1), driver.Status)
	r.inject(device.Fault{Kind: device.ThirdParty, In: 0, Out: 4})
	revision := r.d.Revision()
	verdicts, err := r.sw.Apply(r.ctx(), driver.Change{Before: shift(1), After: shift(2), Want: driver.ReadBack, Token: 1})
	if !errors.Is(err, driver.ErrDrift) || r.d.Revision() != revision {
		t.Fatalf("%v, table changed %d times, verdicts %+v", err, r.d.Revision()-revision, verdicts)
	}
	r.must(shift(2), driver.Status) // from what is really there
}

func (s Suite) reboot(t *testing.T, mode device.ColdBoot) {
	r := s.rig(t, func(c *device.Config) { c.ColdBoot = mode })
	r.must(shift(1), driver.Status)
	want := shift(1)
	if mode == device.Remove {
		want = circuit.AllDark(mapped)
	}
	const down = 100 * time.Millisecond
	began := time.Now()
	r.inject(device.Fault{Kind: device.Reboot, Delay: down})
	if _, err := r.sw.Apply(r.ctx(), driver.Change{Before: shift(1), After: shift(2), Token: 1}); err == nil {
		if want = shift(2); time.Since(began) < down { // else it may have been up again
			t.Error("a switch that is down made a change")
		}
	}
	var got circuit.Permutation
	await.Success(t, "read the map", func() (err error) {
		got, err = r.sw.Read(r.ctx())
		return err
	})
	if !got.Equal(want) {
		t.Fatalf("afterwards %v; want %v", got, want)
	}
	r.must(shift(3), driver.Status)
}
