package controller

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// want checks an error's sentinel and what it says.
func want(t testing.TB, what string, err, sentinel error, says ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("%s: %v, want %v", what, err, sentinel)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}

func TestLeases(t *testing.T) {
	r := newTestRig(t, 3, 3, nil)
	wantIDs := func(step string, p int, ids ...uint64) {
		t.Helper()
		var got []uint64
		for _, a := range r.s[p].answers {
			got = append(got, a.id)
		}
		if r.s[p].answers = nil; !slices.Equal(got, ids) {
			t.Errorf("%s: port %d was granted %v, want %v", step, p, got, ids)
		}
	}
	acquire := func(p int, id, mask, holder uint64) {
		t.Helper()
		require.NoError(t, r.s[p].Acquire(id, ocsctl.Lease{Mask: mask, Holder: holder}))
	}
	acquire(0, 1, 0b011, 10)
	wantIDs("free planes", 0, 1)
	acquire(1, 2, 0b110, 20)
	wantIDs("one plane is taken", 1)
	acquire(2, 3, 0b100, 30)
	wantIDs("free, but an earlier request wants it", 2)
	if err := r.s[1].Release(0b001, 20); err == nil {
		t.Error("a plane was released by who does not hold it")
	}
	assert.NoError(t, r.s[0].Release(0b011, 10))
	wantIDs("released", 1, 2)
	wantIDs("still taken", 2)
	r.s[1].Detach(false)
	wantIDs("holder gone", 2, 3)
	for _, mask := range []uint64{0, 8} {
		if err := r.s[0].Acquire(9, ocsctl.Lease{Mask: mask, Holder: 1}); err == nil {
			t.Errorf("mask %#x was accepted", mask)
		}
	}
}

// Planes out of service are left out of grants, and not waited for.
func TestGrantsGoWithoutPlanesThatAreDown(t *testing.T) {
	r := newTestRig(t, 2, 2, nil)
	ask := func(mask uint64) testGrant {
		t.Helper()
		require.NoError(t, r.s[0].Acquire(1, ocsctl.Lease{Mask: mask, Holder: 7}))
		a := r.s[0].answers
		r.s[0].answers = nil
		if len(a) != 1 {
			t.Fatalf("%d answers", len(a))
		}
		if a[0].err == nil {
			assert.NoError(t, r.s[0].Release(a[0].mask, 7))
		}
		return a[0]
	}
	if g := ask(3); g.mask != 3 || g.err != nil {
		t.Error(g)
	}
	require.NoError(t, r.core.Disable(1, "cleaning", "ann"))
	if g := ask(3); g.mask != 1 || g.err != nil {
		t.Error(g)
	}
	want(t, "none left", ask(2).err, ocsctl.ErrPlaneDown, "plane p1", "ann", "cleaning")
	r.dev.refuse[0] = true
	r.hold(1)
	r.postAll(0, 0, circuit.AllDark(2))
	r.pass(time.Second)
	r.release(1)
	want(t, "both down", ask(3).err, ocsctl.ErrPlaneDown, "plane p0 epoch 0", "refuses")
	require.NoError(t, r.core.Enable(1, "ann"))
	if g := ask(3); g.mask != 2 || g.err != nil {
		t.Error(g)
	}
	if p := r.plane(0); p.State != Down || p.Reason == "" || p.Failures != 1 {
		t.Errorf("%+v", p)
	}
	// It has refused, so nothing has moved: where it is is where it should be.
	if err := r.core.Enable(0, "ann"); err != nil || r.plane(0).State != Resident {
		t.Error(err, r.plane(0))
	}
}

func TestStaleAndRepeatedPosts(t *testing.T) {
	r := newTestRig(t, 2, 1, nil)
	same := circuit.Shift(2, 0)
	r.hold(1)
	r.postAll(0, 0, same)
	r.pass(time.Second)
	if r.page.epochs[0] != 1 {
		t.Fatal("not switched")
	}
	r.post(1, 0, 0, same)
	if len(r.s[1].refused) != 0 || r.page.faults[0] != nil {
		t.Error("a repetition of what happened was refused")
	}
	r.post(1, 0, 0, circuit.Shift(2, 1))
	if len(r.s[1].refused) != 1 || !errors.Is(r.s[1].refused[0], ocsctl.ErrStaleEpoch) || len(r.s[0].refused) != 0 ||
		r.page.faults[0] != nil {
		t.Error("a stale post must be refused to its port alone")
	}
	r.post(1, 0, 1+maxAhead+1, same)
	if len(r.s[1].refused) != 2 {
		t.Error("a post far ahead was kept")
	}
}

func TestWaitingAndSnapshotNamePorts(t *testing.T) {
	r := newTestRig(t, 8, 2, nil)
	wait := func(s string) {
		t.Helper()
		if got := r.core.Waiting(1); got != s {
			t.Errorf("%q, want %q", got, s)
		}
	}
	target := circuit.Shift(8, 2)
	r.hold(2)
	wait("plane p1 epoch 0: no port has posted")
	for p := range 8 {
		if p != 2 && p != 5 {
			r.post(p, 1, 0, target)
		}
	}
	wait("plane p1 epoch 0: waiting for ports 2,5")
	if p := r.plane(1); p.State != Waiting || !slices.Equal(p.Missing, []int{2, 5}) || len(p.Posted) != 6 ||
		!p.Target.Equal(target) {
		t.Errorf("%+v", p)
	}
	r.post(2, 1, 0, target)
	r.post(5, 1, 0, target)
	wait("plane p1 epoch 0: switching")
	if p := r.plane(1); p.State != Moving {
		t.Errorf("%+v", p)
	}
	if got := r.core.Waiting(2); !strings.Contains(got, "plane 2 of 2") {
		t.Error(got)
	}
}

// A device that takes its own time is asked when it says so, and not before.
func TestTimedDevice(t *testing.T) {
	r := newTestRig(t, 2, 1, withTimed)
	r.hold(1)
	r.dev.delay = 300 * time.Millisecond // the nominal time is 1 ms
	r.postAll(0, 0, circuit.Shift(2, 0))
	r.pass(310 * time.Millisecond)
	if r.page.epochs[0] != 0 {
		t.Fatal("not asked, but told")
	}
	r.timed.news(0)
	if r.page.epochs[0] != 1 || r.plane(0).Verified != "light" {
		t.Fatal(r.core.Waiting(0))
	}
	r.dev.delay = time.Hour
	r.postAll(0, 1, circuit.Shift(2, 1))
	r.timed.news(0)
	r.pass(990 * time.Millisecond)
	if r.page.faults[0] != nil {
		t.Fatal(r.page.faults[0])
	}
	r.pass(20 * time.Millisecond)
	want(t, "never settles", r.page.faults[0], ocsctl.ErrReconfFailed, "plane p0 epoch 1", "not settled")
}

func TestDriftAndHealthTakeAPlaneOutOfService(t *testing.T) {
	r := newTestRig(t, 3, 2, withTimed)
	r.timed.news(0)
	if r.page.faults[0] != nil {
		t.Fatal(r.page.faults[0])
	}
	r.dev.maps[0] = circuit.Shift(3, 2)
	r.timed.news(0)
	want(t, "drift", r.s[1].faults[0], ocsctl.ErrPlaneDown, "plane p0 epoch 0",
		"drift of 3 circuits: port 0 leads to 2, want 1")
	if p := r.plane(0); !p.Desired.Equal(circuit.Shift(3, 1)) || !p.Map.Equal(circuit.Shift(3, 2)) {
		t.Errorf("%+v", p)
	}
	want(t, "enable", r.core.Enable(0, "ann"), ocsctl.ErrPlaneDown, "drift of 3 circuits")
	r.dev.maps[0] = circuit.Shift(3, 1)
	r.timed.news(0)
	if r.page.faults[0] == nil {
		t.Error("a plane came back without an operator")
	}
	if err := r.core.Enable(0, "ann"); err != nil || r.page.faults[0] != nil || r.page.epochs[0] != 1 {
		t.Error(err, r.page.faults[0], r.page.epochs[0])
	}
	r.timed.unwell[1] = errors.New("port 2 is dark")
	r.timed.news(1)
	want(t, "health", r.page.faults[1], ocsctl.ErrPlaneDown, "plane p1 epoch 0", "port 2 is dark")
	want(t, "enable", r.core.Enable(1, "ann"), r.timed.unwell[1])
	for p := range 3 {
		r.s[p].Detach(true)
		r.attach(p)
	}
	r.timed.unwell[1] = nil
	r.timed.news(1)
	if r.page.faults[1] == nil {
		t.Error("a failed device was forgiven")
	}
}

func TestSet(t *testing.T) {
	r := newTestRig(t, 3, 1, nil)
	require.NoError(t, r.s[0].Acquire(1, ocsctl.Lease{Mask: 1, Holder: 7}))
	set := func(target circuit.Permutation) error {
		result := r.set(0, target)
		r.pass(2 * time.Second)
		return *result
	}
	want(t, "held", set(circuit.Shift(3, 2)), ErrHeld, "0x7 of port 0")
	r.dev.wrong[0] = circuit.AllDark(3)
	r.postAll(0, 0, circuit.Shift(3, 0))
	r.pass(time.Second)
	r.release(1)
	want(t, "a failed move", r.page.faults[0], ocsctl.ErrReconfFailed)
	r.dev.wrong[0] = circuit.AllDark(3)
	want(t, "and again", set(circuit.Shift(3, 2)), ocsctl.ErrReconfFailed, "plane p0 epoch 0")
	require.NoError(t, set(circuit.Shift(3, 2)))
	if r.page.faults[0] != nil || r.page.epochs[0] != 1 || !r.page.maps[0].Equal(circuit.Shift(3, 2)) {
		t.Error(r.page.faults[0], r.page.epochs, r.page.maps)
	}
	if err := r.core.Set(1, circuit.Shift(3, 1), "ann"); err == nil {
		t.Error("no such plane")
	}
	if err := r.core.Set(0, circuit.Permutation{0, 0, 1}, "ann"); err == nil {
		t.Error("no such map")
	}
}

func TestJournalComesBeforeTheMove(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		j = &testJournal{now: &r.now, delay: 5 * time.Millisecond, planes: make([]Recovered, 1)}
		c.Journal = j
	})
	j.answer(r)
	r.hold(1)
	r.post(0, 0, 0, circuit.Shift(2, 0))
	if len(j.waiting) != 1 || !j.waiting[0].intent.To.Equal(circuit.Shift(2, 0)) {
		t.Fatal("the first post is an intent")
	}
	r.post(1, 0, 0, circuit.Shift(2, 0))
	r.pass(time.Second)
	if len(r.dev.moves) != 0 || r.core.Waiting(0) != "plane p0 epoch 0: waiting for the journal" {
		t.Fatal(r.core.Waiting(0))
	}
	j.step()
	r.pass(time.Second)
	if r.page.epochs[0] != 1 || len(j.events) == 0 {
		t.Fatal(r.core.Waiting(0))
	}
	r.postAll(0, 1, circuit.Shift(2, 1))
	j.err = errors.New("disk is full")
	r.pass(time.Second)
	j.step()
	want(t, "no intent", r.page.faults[0], ocsctl.ErrReconfFailed, "plane p0 epoch 1", "disk is full")
	if len(r.dev.moves) != 1 {
		t.Error("moved without an intent")
	}
}

func TestWatchersHearOfEverythingInOrder(t *testing.T) {
	d := newTestDevice(new(int64), 1, circuit.Shift(2, 1))
	c, err := Start(Config{Ports: 2, Planes: make([]PlaneConfig, 1), Device: d})
	require.NoError(t, err)
	defer c.Close()
	var mu sync.Mutex
	var got []Event
	cancel := c.Watch(func(e Event) {
		mu.Lock()
		got = append(got, e)
		mu.Unlock()
	})
	cancelled := c.Watch(func(e Event) { t.Errorf("a watcher that has gone was told of %v", e) })
	cancelled()
	cancelled()
	require.NoError(t, c.Set(0, circuit.Shift(2, 0), "ann"))
	require.NoError(t, c.Disable(0, "why not", "bob"))
	deadline := time.Now().Add(60 * time.Second)
	for n := 0; n < 3 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		mu.Lock()
		n = len(got)
		mu.Unlock()
	}
	cancel()
	mu.Lock()
	defer mu.Unlock()
	var kinds []EventKind
	for i, e := range got {
		kinds = append(kinds, e.Kind)
		if i > 0 && e.Seq != got[i-1].Seq+1 {
			t.Errorf("event %d after %d", e.Seq, got[i-1].Seq)
		}
	}
	if !slices.Equal(kinds, []EventKind{Switched, Commanded, Commanded}) || got[1].Who != "ann" || got[0].Epoch != 1 {
		t.Errorf("%+v", got)
	}
}

func TestConfigNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"ports":               func(c *Config) { c.Ports = 0 },
		"planes":              func(c *Config) { c.Planes = nil },
		"device":              func(c *Config) { c.Device = nil },
		"planes[1] bandwidth": func(c *Config) { c.Planes[1].BandwidthBitsPerSec = -1 },
		"planes[0] reconfig":  func(c *Config) { c.Planes[0].Reconfig = -1 },
		"initial: 1 maps":     func(c *Config) { c.Initial = []circuit.Permutation{nil} },
		"initial[1]":          func(c *Config) { c.Initial = []circuit.Permutation{nil, {0, 0}} },
		"recovered":           func(c *Config) { c.Recovered = make([]Recovered, 3) },
		"recovered plane 0":   func(c *Config) { c.Recovered = []Recovered{{Map: circuit.Permutation{0}}, {}} },
		"grace":               func(c *Config) { c.Grace = -1 },
		"settle timeout":      func(c *Config) { c.SettleTimeout = -1 },
	} {
		c := Config{Ports: 2, Planes: make([]PlaneConfig, 2), Device: newTestDevice(new(int64), 2, circuit.Shift(2, 1))}
		change(&c)
		core, err := Start(c)
		if err == nil {
			core.Close()
		}
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestDisabledPlanesAreLookedAt: what an operator has disabled comes back by the operator alone, and only
// with the circuits that it should have, also where nothing had noticed that it has others.
func TestDisabledPlanesAreLookedAt(t *testing.T) {
	r := newTestRig(t, 3, 1, nil)
	require.NoError(t, r.core.Disable(0, "cleaning", "ann"))
	r.dev.maps[0] = circuit.Shift(3, 2) // no notification follows
	want(t, "enable", r.core.Enable(0, "ann"), ocsctl.ErrPlaneDown, "drift of 3 circuits")
	if p := r.plane(0); p.State != Down {
		t.Errorf("%+v", p)
	}
	r.dev.maps[0] = circuit.Shift(3, 1)
	if err := r.core.Enable(0, "ann"); err != nil || r.plane(0).State != Resident {
		t.Error(err, r.plane(0))
	}
}
