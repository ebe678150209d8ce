package controller

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// journaled gives a rig a journal, and records where its planes are.
func journaled(j **testJournal) func(*testRig, *Config) {
	return func(r *testRig, c *Config) {
		*j = &testJournal{now: &r.now, delay: time.Second, planes: make([]Recovered, len(c.Planes))}
		for p := range c.Planes {
			(*j).planes[p].Map = r.dev.maps[p]
		}
		c.Journal = *j
	}
}

// TestOperatorsWaitForTheJournal: what an operator orders is answered when a crash cannot lose it, and not
// before. A disabled plane is out of service at once all the same.
func TestOperatorsWaitForTheJournal(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 2, 1, journaled(&j))
	for _, step := range []struct {
		name  string
		order func() *error
		state PlaneState // at once
		after string     // the journal's record afterwards
	}{
		{"disable", func() *error { return r.disable(0) }, Down, "disabled by ann: fibre work"},
		{"set", func() *error { return r.set(0, circuit.Shift(2, 0)) }, Moving, "disabled by ann: fibre work"},
		{"enable", func() *error { return r.enable(0) }, Resident, ""},
	} {
		answer := step.order()
		if got := r.plane(0).State; got != step.state && step.name != "set" {
			t.Errorf("%s: %v at once, want %v", step.name, got, step.state)
		}
		for range 3 { // intent, move and order, each some time later
			r.pass(500 * time.Millisecond)
			if !errors.Is(*answer, errNoAnswer) {
				t.Fatalf("%s: answered %v before the journal", step.name, *answer)
			}
			j.step()
			r.pass(500 * time.Millisecond)
			j.step()
			if *answer == nil {
				break
			}
		}
		if *answer != nil || j.planes[0].Disabled != step.after {
			t.Fatalf("%s: %v, the journal has %+v", step.name, *answer, j.planes[0])
		}
	}
}

// TestJournalThatDoesNotAnswer: operators hear so after a bounded time, and what state the plane is in.
func TestJournalThatDoesNotAnswer(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 2, 2, func(r *testRig, c *Config) {
		journaled(&j)(r, c)
		c.JournalTimeout = 3 * time.Second
	})
	off, moved := r.disable(0), r.set(1, circuit.Shift(2, 0))
	r.pass(2900 * time.Millisecond)
	if !errors.Is(*off, errNoAnswer) || !errors.Is(*moved, errNoAnswer) {
		t.Fatal(*off, *moved)
	}
	r.pass(200 * time.Millisecond)
	want(t, "disable", *off, ErrJournal, "in force", "a restart may lose it", "3s")
	want(t, "set", *moved, ErrJournal, "plane p1", "3s")
	if len(r.dev.moves) != 0 || r.plane(0).State != Down || r.plane(1).State != Down {
		t.Errorf("%v, %+v", r.dev.moves, r.plane(1))
	}
	j.step() // late answers change nothing
	r.pass(time.Second)
	if len(r.dev.moves) != 0 {
		t.Error("moved after the operator was told that it does not")
	}
	// Ranks do not wait for ever either.
	want(t, "enable", *r.enable(1), ErrJournal, "plane p1", "its failure is not in the journal yet")
	j.step()
	r.pass(0)
	on := r.enable(1)
	r.pass(time.Second)
	j.step()
	if *on != nil {
		t.Fatal(*on)
	}
	r.hold(2)
	r.postAll(1, r.page.epochs[1], circuit.Shift(2, 0))
	r.pass(4 * time.Second)
	want(t, "a move of ranks", r.page.faults[1], ErrJournal, "the journal did not take the intent")
}

// TestOrdersOfAControllerThatIsReplaced are answered with the reason.
func TestOrdersOfAControllerThatIsReplaced(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 2, 1, journaled(&j))
	off := r.disable(0)
	j.err = ErrNotLeader
	r.pass(time.Second)
	j.step()
	want(t, "disable", *off, ErrNotLeader)
	want(t, "enable", *r.enable(0), ErrNotLeader)
}

// TestSetKeepsADisabledPlaneOut: a fibre may be in a hand.
func TestSetKeepsADisabledPlaneOut(t *testing.T) {
	r := newTestRig(t, 2, 1, nil)
	require.NoError(t, *r.disable(0))
	moved := r.set(0, circuit.Shift(2, 0))
	r.pass(time.Second)
	if p := r.plane(0); *moved != nil || p.State != Down || !strings.Contains(p.Reason, "fibre work") ||
		!p.Map.Equal(circuit.Shift(2, 0)) {
		t.Errorf("%v, %+v", *moved, p)
	}
	if err := *r.enable(0); err != nil || r.plane(0).State != Resident {
		t.Error(err, r.plane(0))
	}
}

// TestFailedPlaneIsLookedAt: an operator sees what the switch of a failed plane has now, and why the last order failed.
func TestFailedPlaneIsLookedAt(t *testing.T) {
	r := newTestRig(t, 3, 1, withTimed)
	var failures atomic.Int32
	t.Cleanup(r.core.watchKinds(func(Event) { failures.Add(1) }, Failed))
	r.timed.unwell[0] = driver.ErrNoAnswer
	r.timed.news(0)
	require.NoError(t, *r.disable(0))
	r.timed.unwell[0], r.dev.maps[0] = nil, circuit.AllDark(3)
	r.timed.news(0)
	p := r.plane(0)
	if !p.Map.Equal(circuit.AllDark(3)) || !p.Desired.Equal(circuit.Shift(3, 1)) || p.Cause != CauseUnresponsive {
		t.Errorf("%+v", p)
	}
	for _, part := range []string{"does not answer", "also disabled by ann: fibre work", "it answers again"} {
		if !strings.Contains(p.Reason, part) {
			t.Errorf("%q lacks %q", p.Reason, part)
		}
	}
	r.dev.wrong[0] = circuit.Shift(3, 0)
	answer := r.set(0, circuit.Shift(3, 2))
	r.timed.news(0)
	r.pass(2 * time.Second)
	r.timed.news(0)
	want(t, "set", *answer, ocsctl.ErrReconfFailed)
	if p = r.plane(0); !strings.Contains(p.Reason, "3 circuits are wrong, port 0 leads to 0, want 2") {
		t.Errorf("%+v", p)
	}
	await.Until(t, "both failures are in the history", func() bool { return failures.Load() == 2 })
}

// TestEnable has the device verify the circuits before the plane is in service.
func TestEnable(t *testing.T) {
	var dev *verifyingDevice
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		dev = &verifyingDevice{timedDevice: r.timed}
		c.Device, c.Token = dev, 7
	})
	verify := func(unwell error) *error {
		answer := r.enable(0)
		if p := r.plane(0); !errors.Is(*answer, errNoAnswer) || p.State != Moving || p.Verified != "" {
			t.Fatalf("%v before the device has verified: %+v", *answer, p)
		}
		r.timed.unwell[0] = unwell
		r.now += int64(time.Millisecond)
		dev.news(0)
		return answer
	}
	require.NoError(t, *r.disable(0))
	dark := errors.New("no light at port 1")
	want(t, "enable in the dark", *verify(dark), dark, "plane p0")
	if p := r.plane(0); p.State != Down || !strings.Contains(p.Reason, "no light") || p.Verified != "" {
		t.Errorf("%+v", p)
	}
	require.NoError(t, *verify(nil)) // whatever the last look has found
	if p := r.plane(0); p.State != Resident || p.Verified != "light" || dev.token != 7 {
		t.Errorf("%+v, token %d", p, dev.token)
	}
	// An operator who disables the plane meanwhile has the last word.
	answer := r.enable(0)
	require.NoError(t, *r.disable(0))
	r.now += int64(time.Millisecond)
	dev.news(0)
	want(t, "enable, and disable meanwhile", *answer, ocsctl.ErrPlaneDown, "meanwhile disabled by ann")
	if p := r.plane(0); p.State != Down {
		t.Errorf("%+v", p)
	}
	dev.takes = time.Hour
	answer = r.enable(0)
	r.pass(2 * time.Second)
	want(t, "a device that does not settle", *answer, ocsctl.ErrReconfFailed, "not settled")
}

// verifyingDevice takes a millisecond to verify, and as much longer as it is told.
type verifyingDevice struct {
	*timedDevice
	token uint64
	takes time.Duration
}

func (d *verifyingDevice) Verify(plane int, token uint64) error {
	d.token, d.next[plane], d.due[plane] = token, d.maps[plane], *d.now+int64(time.Millisecond+d.takes)
	return nil
}

// TestDisabledWithoutARecord: a plane that was disabled before its device had said where it is stays so.
func TestDisabledWithoutARecord(t *testing.T) {
	r := newTestRig(t, 2, 1, func(_ *testRig, c *Config) {
		c.Recovered = []Recovered{{Disabled: "disabled by ann: fibre work"}}
	})
	if p := r.plane(0); p.State != Down || !strings.Contains(p.Reason, "fibre work") {
		t.Errorf("%+v", p)
	}
}

// TestNoGrantBeforeTheRecord: a rank that the journal does not know is granted nothing, or a controller that takes
// over would not wait for it. A journal that says no does not keep the planes from the rank.
func TestNoGrantBeforeTheRecord(t *testing.T) {
	for _, fails := range []error{nil, errors.New("the history is full")} {
		var j *testJournal
		r := newTestRig(t, 2, 1, journaled(&j))
		require.NoError(t, r.s[0].Acquire(1, ocsctl.Lease{Mask: 1, Holder: testHolder}))
		r.pass(0)
		if got := r.s[0].answers; len(got) != 0 {
			t.Fatalf("granted before the journal has the rank: %v", got)
		}
		j.err = fails
		j.answer(r)
		if got := r.s[0].answers; len(got) != 1 || got[0].mask != 1 || got[0].err != nil {
			t.Errorf("the journal says %v: %v", fails, got)
		}
	}
}

// TestSetAfterLostIntent: a set that the journal refuses fails at once, and the next one is written anew.
func TestSetAfterLostIntent(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 2, 1, journaled(&j))
	j.answer(r)
	full := errors.New("disk is full")
	j.err = full
	refused := r.set(0, circuit.Shift(2, 0))
	r.pass(time.Second)
	j.step()
	want(t, "set", *refused, full, "plane p0")
	again := r.set(0, circuit.Shift(2, 0))
	for range 3 {
		r.pass(time.Second)
		j.step()
	}
	if *again != nil || len(r.dev.moves) != 1 || r.plane(0).State != Resident {
		t.Errorf("set again: %v, moves %v", *again, r.dev.moves)
	}
}

// TestWaitingNamesTheOrder: a plane that waits for the journal, because an operator sets it, does not wait for ports.
func TestWaitingNamesTheOrder(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 3, 1, journaled(&j))
	r.set(0, circuit.Shift(3, 2))
	if got := r.core.Waiting(0); got != "plane p0 epoch 0: being set by ann" {
		t.Error(got)
	}
}
