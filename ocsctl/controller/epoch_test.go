package controller

import (
	"errors"
	"math"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// forgiving is a rig with a journal, whose plane 0 has failed for a while. It returns when its ranks have left.
func forgiving(t *testing.T) (*testRig, *testJournal) {
	var j *testJournal
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		journaled(&j)(r, c)
		withTimed(r, c)
		c.Forgive = true
	})
	j.answer(r)
	r.timed.unwell[0] = errors.New("no light")
	r.timed.news(0)
	r.timed.unwell[0] = nil
	want(t, "no light", r.page.faults[0], ocsctl.ErrPlaneDown)
	return r, j
}

// TestRestoreWaitsForTheJournal: after a takeover, the epoch of a plane that has failed and returned is not below the
// published one.
func TestRestoreWaitsForTheJournal(t *testing.T) {
	r, j := forgiving(t)
	for _, s := range r.s {
		s.Detach(true)
	}
	if r.page.epochs[0] != 0 || r.page.faults[0] == nil {
		t.Fatal("returned at a new epoch, and the journal does not have the fault")
	}
	j.answer(r)
	if r.page.epochs[0] != 1 || r.page.faults[0] != nil {
		t.Error(r.page.epochs[0], r.page.faults[0])
	}
}

// TestFailureThatIsNotWritten is written again when an operator enables the plane.
func TestFailureThatIsNotWritten(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		journaled(&j)(r, c)
		withTimed(r, c)
	})
	j.answer(r)
	r.timed.unwell[0] = errors.New("no light")
	r.timed.news(0)
	j.err = errors.New("disk full")
	j.answer(r)
	r.timed.unwell[0] = nil
	want(t, "enable", *r.enable(0), ErrJournal, "plane p0", "not in the journal yet")
	j.answer(r)
	on := r.enable(0)
	j.answer(r)
	if *on != nil || r.page.epochs[0] != 1 {
		t.Error(*on, r.page.epochs[0])
	}
}

// TestSetOfADriftedPlane: ranks are not told two maps of one epoch.
func TestSetOfADriftedPlane(t *testing.T) {
	r := newTestRig(t, 2, 1, nil)
	r.page.changed = func(plane int) {
		if r.page.epochs[plane] == 0 && r.page.faults[plane] == nil {
			t.Error("epoch 0 is published with the map", r.page.maps[plane])
		}
	}
	r.dev.maps[0] = circuit.AllDark(2)
	moved := r.set(0, circuit.Shift(2, 0))
	r.pass(time.Second)
	if *moved != nil || r.page.epochs[0] != 1 || r.page.faults[0] != nil {
		t.Error(*moved, r.page.epochs[0], r.page.faults[0])
	}
}

// TestKnownEpoch: ranks know an epoch that the journal does not have. Its planes go out of service.
func TestKnownEpoch(t *testing.T) {
	was, to := circuit.Shift(2, 1), circuit.Shift(2, 0)
	intent := &Intent{Epoch: 7, To: to}
	for _, tc := range []struct {
		name  string
		r     Recovered
		late  bool   // the device reports its map after the rank has attached
		known uint32 // by a rank
		epoch uint32 // afterwards
		lost  bool
	}{
		{"the same", Recovered{Epoch: 7, Map: was}, false, 7, 7, false},
		{"an older one", Recovered{Epoch: 7, Map: was}, false, 3, 7, false},
		{"a newer one", Recovered{Epoch: 7, Map: was}, false, 9, 9, true},
		{"the end of a move, whose circuits went back", Recovered{Epoch: 8, Map: was, Intent: intent}, false, 8, 8,
			true},
		{"the same, late", Recovered{Epoch: 8, Map: was, Intent: intent}, true, 7, 7, false},
		{"a newer one, late", Recovered{Epoch: 8, Map: was, Intent: intent}, true, 9, 9, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
				withTimed(r, c)
				if tc.late {
					r.dev.next[0], r.dev.due[0] = was, r.now+1e9
				}
				c.Recovered = []Recovered{tc.r}
				r.absent = 1 + 1
			})
			s := newTestSink()
			_, err := r.core.Attach(s, AttachOptions{Port: 1, Known: []uint32{tc.known}})
			if err != nil {
				t.Fatal(err)
			}
			r.pass(2 * time.Second)
			r.timed.news(0)
			if s.epochs[0] != tc.epoch || errors.Is(s.faults[0], errLost) != tc.lost || !tc.lost && s.faults[0] != nil {
				t.Fatal(s.epochs[0], s.faults[0])
			}
			if !tc.lost {
				return
			}
			moved := r.set(0, to)
			r.timed.news(0)
			if *moved != nil || s.epochs[0] != tc.epoch+1 || s.faults[0] != nil {
				t.Error(*moved, s.epochs[0], s.faults[0])
			}
		})
	}
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		c.Recovered = []Recovered{{Map: r.dev.maps[0]}}
		r.absent = 1 + 1
	})
	_, err := r.core.Attach(newTestSink(), AttachOptions{Port: 1, Known: []uint32{1 << 31}})
	if err == nil || r.page.faults[0] != nil {
		t.Error("a rank used up the epochs", err)
	}
	for range 4 { // nor does it in several steps
		known := uint32(min(uint64(r.page.epochs[0])+maxLost, math.MaxUint32))
		a, err := r.core.Attach(newTestSink(), AttachOptions{Port: 1, Known: []uint32{known}})
		if err != nil {
			break
		}
		a.Detach(true)
	}
	if left := math.MaxUint32 - r.page.epochs[0]; left < maxLost-1 {
		t.Error("a rank left epochs:", left)
	}
}

// TestForgiveOfAnUnreadPlane: a plane whose device has not reported its map since a takeover returns when its ranks
// leave, with an epoch above all that they know.
func TestForgiveOfAnUnreadPlane(t *testing.T) {
	was := circuit.Shift(2, 1)
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		r.dev.next[0], r.dev.due[0] = was, r.now+1e9
		c.Recovered, c.Forgive = []Recovered{{Epoch: 7, Map: was}}, true
		r.absent = 1 + 1
	})
	s := newTestSink()
	a, err := r.core.Attach(s, AttachOptions{Port: 1, Known: []uint32{9}})
	if err != nil {
		t.Fatal(err)
	}
	r.pass(2 * time.Second) // the device has settled, and its report is lost
	for _, leaves := range []Attachment{r.s[0], a} {
		leaves.Detach(true)
	}
	if r.page.epochs[0] != 10 || r.page.faults[0] != nil {
		t.Error("returned at epoch", r.page.epochs[0], r.page.faults[0])
	}
}

// TestForgiveOfAnUnwellPlane: a plane whose device cannot be used stays out of service when its ranks have left.
func TestForgiveOfAnUnwellPlane(t *testing.T) {
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		c.Forgive = true
	})
	r.timed.unwell[0] = driver.ErrUnwell
	r.timed.news(0)
	for _, unwell := range []error{driver.ErrUnwell, nil} {
		r.timed.unwell[0] = unwell
		for _, s := range r.s {
			s.Detach(true)
		}
		if fault := r.page.faults[0]; !errors.Is(fault, unwell) {
			t.Errorf("the device reports %v, the plane has %v", unwell, fault)
		}
		for p := range r.s {
			r.attach(p)
		}
	}
}

// TestForgiveAfterTheGraceTime: a plane does not return before ranks that know newer epochs could come back.
func TestForgiveAfterTheGraceTime(t *testing.T) {
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		c.Recovered, c.Forgive, c.Grace = []Recovered{{Epoch: 7, Map: circuit.Shift(2, 0)}}, true, time.Second
		r.dev.maps[0] = circuit.Shift(2, 1)
		r.absent = 1 + 2
	})
	for range 2 {
		r.s[0].Detach(true)
		want(t, "during the grace time", r.page.faults[0], errDrift)
		r.attach(0)
	}
	r.s[0].Detach(true)
	r.pass(2 * time.Second)
	if r.page.epochs[0] != 8 || r.page.faults[0] != nil {
		t.Error("after the grace time: epoch", r.page.epochs[0], r.page.faults[0])
	}
}

// TestForgiveDuringSet: a plane whose ranks leave does not return while an operator's move of it waits for the journal.
// Its epoch would then not be the one of the intent.
func TestForgiveDuringSet(t *testing.T) {
	r, j := forgiving(t)
	j.answer(r)
	moved := r.set(0, circuit.AllDark(2))
	for _, s := range r.s {
		s.Detach(true)
	}
	if r.page.epochs[0] != 0 || r.page.faults[0] == nil {
		t.Error("returned during a set", r.page.epochs[0])
	}
	j.answer(r)
	r.pass(time.Second)
	r.timed.news(0)
	j.answer(r)
	if m := r.dev.moves; *moved != nil || len(m) != 1 || m[0].Epoch != 0 || r.page.epochs[0] != 1 ||
		r.page.faults[0] != nil {
		t.Error(*moved, m, r.page.epochs[0], r.page.faults[0])
	}
}
