package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// A controller that has lost its rule moves nothing any more and sends everybody away.
func TestNotLeader(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 2, 2, func(r *testRig, c *Config) {
		j = &testJournal{now: &r.now, planes: make([]Recovered, 2)}
		c.Journal = j
	})
	j.answer(r)
	r.hold(1)
	r.postAll(0, 0, circuit.Shift(2, 0))
	j.err = fmt.Errorf("lease ran out: %w", ErrNotLeader)
	j.step()
	for p, s := range r.s {
		want(t, fmt.Sprint("port ", p), s.closed, ErrNotLeader)
		if err := s.Post(1, 0, testHolder, circuit.Shift(2, 0)); err != nil {
			t.Error(err)
		}
	}
	j.step()
	r.pass(time.Minute)
	if len(r.dev.moves) != 0 {
		t.Error(r.dev.moves)
	}
	_, err := r.core.Attach(newTestSink(), AttachOptions{Port: 0})
	want(t, "attach", err, ErrNotLeader)
	want(t, "enable", r.core.Enable(0, "ann"), ErrNotLeader)
	if s, err := r.core.Snapshot(); err != nil || s.Leader {
		t.Error(s.Leader, err)
	}
}

// TestFencedWhileDown: the device of a plane that is out of service begins to obey another controller. No order could
// bring the plane back, so the rule ends.
func TestFencedWhileDown(t *testing.T) {
	r := newTestRig(t, 2, 2, withTimed)
	for _, unwell := range []error{errors.New("it does not answer"), fmt.Errorf("fenced: %w", ErrNotLeader)} {
		r.timed.unwell[0] = unwell
		r.timed.news(0)
		r.pass(time.Second)
	}
	for _, s := range r.s {
		want(t, "rule", s.closed, ErrNotLeader)
	}
}

func TestTakeover(t *testing.T) {
	was, to := circuit.Shift(4, 1), circuit.Shift(4, 2)
	half := circuit.Permutation{circuit.Dark, 3, circuit.Dark, 0} // port 1 is there, 3 is not yet
	half[3] = was[3]
	intent := &Intent{Epoch: 7, To: to}
	for _, tc := range []struct {
		name   string
		have   circuit.Permutation
		r      Recovered
		epoch  uint32
		says   string // of the fault; "": in service
		intent bool   // may be posted again
	}{
		{"as desired", was, Recovered{Epoch: 7, Map: was}, 7, "", false},
		{"the switch has happened", to, Recovered{Epoch: 7, Map: was, Intent: intent}, 8, "", false},
		{"it has not", was, Recovered{Epoch: 7, Map: was, Intent: intent}, 7, "", true},
		{"in between", half, Recovered{Epoch: 7, Map: was, Intent: intent}, 7, "", true},
		{"drift", to, Recovered{Epoch: 7, Map: was}, 7, "drift of 4 circuits", false},
		{"neither from nor to", circuit.Shift(4, 3), Recovered{Epoch: 7, Map: was, Intent: intent}, 7, "drift",
			false},
		{"in between after a failure", half, Recovered{Epoch: 7, Map: was, Intent: intent, Failed: true}, 7,
			"drift", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
				r.dev.maps[0] = tc.have
				c.Recovered, c.Token = []Recovered{tc.r}, 99
			})
			err := r.page.faults[0]
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatal(err)
			}
			if r.page.epochs[0] != tc.epoch || !r.page.maps[0].Equal(tc.have) {
				t.Fatal(r.page.epochs, r.page.maps)
			}
			if len(r.dev.moves) != 0 {
				t.Fatal("moved before anybody asked")
			}
			if tc.intent {
				for p := range 4 { // ranks that come back, with what they have posted and hold
					r.s[p].Detach(true)
					var held []ocsctl.Lease
					if p == 0 {
						held = append(held, ocsctl.Lease{Holder: testHolder, Mask: 1})
					}
					r.attach(p, held...)
					r.post(p, 0, 7, to)
				}
				r.pass(time.Second)
				if m := r.dev.moves; r.page.epochs[0] != 8 || len(m) != 1 || !m[0].From.Equal(tc.have) || m[0].Token != 99 {
					t.Error(r.page.epochs, m)
				}
			}
		})
	}
}

// After a takeover ranks that have not come back are waited for, for the grace time, and uses that
// ranks claim come before everybody else's.
func TestGrace(t *testing.T) {
	r := newTestRig(t, 3, 2, func(r *testRig, c *Config) {
		c.Recovered = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}, {Epoch: 5, Map: r.dev.maps[1]}}
		c.Grace = time.Second
		r.absent = 1 + 2
	})
	for p := range 2 {
		r.s[p].Detach(true)
	}
	r.attach(1)
	require.NoError(t, r.s[1].Acquire(1, ocsctl.Lease{Mask: 3, Holder: 20}))
	r.attach(0, ocsctl.Lease{Holder: 10, Mask: 1})
	for p := range 2 {
		require.NoError(t, r.s[p].Post(0, 3, 10, circuit.Shift(3, 2)))
	}
	r.pass(500 * time.Millisecond)
	if r.page.epochs[0] != 3 || len(r.s[1].answers) != 0 {
		t.Fatal("the grace time has not passed")
	}
	_, err := r.core.Attach(newTestSink(), AttachOptions{Port: 2, Held: []ocsctl.Lease{{Holder: 30, Mask: 1}}})
	want(t, "claimed twice", err, ErrHeld, "plane p0")
	r.pass(time.Second)
	for _, s := range r.s[:2] {
		s.isRefused(t, ocsctl.ErrPortLost, "plane p0: epoch 3", "rank of port 2")
	}
	if err := r.s[0].Release(1, 10); err != nil {
		t.Errorf("what was claimed: %v", err)
	}
	if a := r.s[1].answers; len(a) != 1 || a[0].mask != 3 {
		t.Errorf("%v", a)
	}
}

// Once every port has its rank back, no other rank can claim a plane. The grace time then ends early.
func TestGraceEndsWhenAllAreBack(t *testing.T) {
	r := newTestRig(t, 3, 1, func(r *testRig, c *Config) {
		c.Recovered = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}}
		c.Grace = time.Hour
		r.absent = 1 + 2
	})
	require.NoError(t, r.s[1].Acquire(1, ocsctl.Lease{Mask: 1, Holder: 20}))
	r.pass(time.Second)
	if len(r.s[1].answers) != 0 {
		t.Fatal("granted before port 2 could claim it")
	}
	r.attach(2)
	r.pass(time.Millisecond)
	if a := r.s[1].answers; len(a) != 1 || a[0].mask != 1 {
		t.Errorf("all ranks are back, and the answer is %v", a)
	}
}

// Ports that had no rank before are not waited for; without others there is no grace time.
func TestGraceIsForPortsThatHadRanks(t *testing.T) {
	for _, last := range []RankBefore{RankLeft, RankUnknown} {
		r := newTestRig(t, 3, 1, func(r *testRig, c *Config) {
			c.Recovered = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}}
			c.Grace, c.Before = time.Hour, []RankBefore{RankLeft, RankLeft, last}
			r.absent = 1 + 2
		})
		require.NoError(t, r.s[1].Acquire(1, ocsctl.Lease{Mask: 1, Holder: 20}))
		r.pass(time.Millisecond)
		if granted := len(r.s[1].answers) == 1; granted != (last == RankLeft) {
			t.Errorf("%v: granted %v", last, granted)
		}
		if last == RankLeft {
			continue
		}
		r.attach(2)
		r.pass(time.Millisecond)
		if len(r.s[1].answers) != 1 {
			t.Error("all ranks that were there are back, and nothing is granted")
		}
	}
}

func TestDeviceThatIsReadLater(t *testing.T) {
	for _, have := range []circuit.Permutation{circuit.Shift(2, 1), circuit.Shift(2, 0)} {
		r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
			withTimed(r, c)
			r.dev.next[0], r.dev.due[0] = have, r.now+1e9
			c.Recovered = []Recovered{{Epoch: 4, Map: circuit.Shift(2, 1)}}
		})
		want(t, "before", r.page.faults[0], ocsctl.ErrPlaneDown, "has not reported its map")
		r.pass(2 * time.Second)
		r.timed.news(0)
		if err := r.page.faults[0]; (err == nil) != have.Equal(circuit.Shift(2, 1)) || r.page.epochs[0] != 4 {
			t.Error(err, r.page.epochs)
		}
	}
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		r.dev.next[0], r.dev.due[0] = circuit.Shift(2, 1), r.now+1e9
		c.Recovered = []Recovered{{Epoch: 4, Map: circuit.Shift(2, 1)}}
	})
	r.pass(2 * time.Second)
	r.timed.unwell[0] = errors.New("no light")
	r.page.changed = func(int) {
		if r.page.faults[0] == nil {
			t.Error("in service without light")
		}
	}
	r.timed.news(0)
	want(t, "without light", r.page.faults[0], r.timed.unwell[0])
}

// TestLeadingBeforeEachMove: the device moves nothing when the controller's rule has ended, for ranks or an operator.
func TestLeadingBeforeEachMove(t *testing.T) {
	for name, ask := range map[string]func(r *testRig){
		"ranks":    func(r *testRig) { r.hold(1); r.postAll(0, 0, circuit.Shift(2, 0)) },
		"operator": func(r *testRig) { r.set(0, circuit.Shift(2, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRig(t, 2, 1, func(_ *testRig, c *Config) {
				c.Leading = func() error { return fmt.Errorf("the lease has expired: %w", ErrNotLeader) }
			})
			ask(r)
			r.pass(time.Second)
			if len(r.dev.moves) > 0 {
				t.Errorf("moves %v", r.dev.moves)
			}
			want(t, "rule", r.s[0].closed, ErrNotLeader, "expired")
		})
	}
}

// TestSecondTakeoverOfAFailedPlane: a failed plane returns with new epochs at one takeover. At the next one its
// operations continue.
func TestSecondTakeoverOfAFailedPlane(t *testing.T) {
	at := circuit.Shift(2, 1)
	j := &testJournal{}
	newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		j.now, j.planes = &r.now, []Recovered{{Epoch: 1024, Map: at, Failed: true}}
		c.Journal, c.Recovered = j, slices.Clone(j.planes)
	})
	if p := j.planes[0]; p.Failed || p.Epoch != 1024 || !p.Map.Equal(at) {
		t.Errorf("the journal has %+v", p)
	}
}

// TestTakeoverDuringAMove: a plane between two maps continues its move. A circuit that the move keeps must be there.
func TestTakeoverDuringAMove(t *testing.T) {
	dark := circuit.Dark
	for name, c := range map[string]struct {
		has circuit.Permutation
		why error
	}{
		"before":         {circuit.Permutation{1, 0, 3, 2}, nil},
		"after":          {circuit.Permutation{1, 0, dark, dark}, nil},
		"between":        {circuit.Permutation{1, 0, dark, 2}, nil},
		"lost a circuit": {circuit.Permutation{dark, 0, dark, 2}, errDrift},
		"lost all":       {circuit.AllDark(4), errDrift},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRig(t, 4, 1, func(r *testRig, c0 *Config) {
				r.dev.maps[0] = c.has
				c0.Recovered = []Recovered{{Epoch: 8, Map: circuit.Permutation{1, 0, 3, 2},
					Intent: &Intent{Epoch: 7, To: circuit.Permutation{1, 0, dark, dark}}}}
			})
			if got := r.page.faults[0]; (got == nil) != (c.why == nil) || c.why != nil && !errors.Is(got, c.why) {
				t.Errorf("fault %v, want %v", got, c.why)
			}
		})
	}
}

// TestUnreadIntent: a device cannot be read at a takeover, after a move whose end the journal lacks. An operator's
// enable accepts the target of the move, and not the map before it: the device may have lost the circuits since. So
// does the next controller.
func TestUnreadIntent(t *testing.T) {
	before, after := circuit.AllDark(3), circuit.Shift(3, 1)
	for name, k := range map[string]struct {
		shows   circuit.Permutation
		enables bool
	}{"target": {after, true}, "before": {before, false}} {
		var j *testJournal
		r := newTestRig(t, 3, 1, func(r *testRig, c *Config) {
			j = &testJournal{now: &r.now, planes: make([]Recovered, 1)}
			c.Journal = j
			withTimed(r, c)
			r.dev.maps[0], r.timed.unwell[0] = k.shows, errors.New("it does not answer")
			c.Recovered = []Recovered{{Epoch: 3, Map: before, Intent: &Intent{Plane: 0, Epoch: 3, To: after}}}
			c.Grace = time.Millisecond
		})
		r.pass(time.Second)
		j.answer(r)
		r.timed.unwell[0] = nil
		enabled := r.enable(0)
		j.answer(r)
		r.pass(time.Second)
		if (*enabled == nil) != k.enables {
			t.Errorf("%s: %v", name, *enabled)
		}
		if p := &j.planes[0]; !p.Map.Equal(after) {
			t.Errorf("%s: the next controller begins with map %v", name, p.Map)
		}
	}
}
