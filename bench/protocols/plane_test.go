package protocols

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/switches"
	"lightpath/plans/circuit"
)

const planeRanks = 4

// planeRig is one switch, the controllers of a test, and simulated time.
type planeRig struct {
	*testing.T
	now   int64
	queue []queued // messages under way
	s     *opticalSwitch
	log   []string
	hold  string // messages to the switch that begin so are held
	held  []func()
	// askIn and answerIn are the times of messages; negative: they are lost.
	askIn, answerIn time.Duration
}

type queued struct {
	at int64
	f  func()
}

func newPlaneRig(t *testing.T, change func(*switchConfig)) *planeRig {
	t.Helper()
	r := &planeRig{T: t}
	c := switchConfig{Name: "sw", Planes: 2, Ports: planeRanks, Fences: true}
	if change != nil {
		change(&c)
	}
	s, err := newSwitch(c, func() int64 { return r.now }, Random(1))
	if err != nil {
		t.Fatal(err)
	}
	r.s = s
	return r
}

// ask and answer implement wire.
func (r *planeRig) ask(what string, f func()) {
	if r.hold != "" && strings.HasPrefix(what, r.hold) {
		r.held = append(r.held, f)
		return
	}
	r.carry(r.askIn, what, f)
}

func (r *planeRig) answer(what string, f func()) { r.carry(r.answerIn, what, f) }

func (r *planeRig) carry(d time.Duration, what string, f func()) {
	r.log = append(r.log, fmt.Sprint(time.Duration(r.now), what))
	switch {
	case d == 0:
		f()
	case d > 0:
		r.queue = append(r.queue, queued{r.now + int64(d), f})
	}
}

// controller opens the switch for one more controller process, and waits until it has been read.
func (r *planeRig) controller(change func(*switches.Config)) *switches.Manual {
	r.Helper()
	now, dial := func() int64 { return r.now }, func(*opticalSwitch) wire { return r }
	m, err := newPlanes([]*opticalSwitch{r.s}, now, dial, change)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := m.Close(); err != nil {
			r.Error(err)
		}
	})
	r.until(m, m.Ready)
	return m
}

// run steps a device until a time.
func (r *planeRig) run(m *switches.Manual, until int64) {
	for {
		next := until
		if at := m.Step(); !at.IsZero() {
			next = min(next, at.UnixNano())
		}
		for _, q := range r.queue {
			next = min(next, q.at)
		}
		if next == until {
			r.now = until
			return
		}
		r.now = next
		r.deliver()
	}
}

// deliver delivers the messages that are due.
func (r *planeRig) deliver() {
	for i := 0; i < len(r.queue); {
		if q := r.queue[i]; q.at <= r.now {
			r.queue = slices.Delete(r.queue, i, i+1)
			q.f()
			i = 0
		} else {
			i++
		}
	}
}

// until steps a device until a condition holds.
func (r *planeRig) until(m *switches.Manual, ok func() bool) {
	r.Helper()
	for end := r.now + int64(5*time.Minute); !ok(); {
		if r.now >= end {
			_, err := m.Report(0)
			r.Fatalf("it does not happen; plane 0: %v", err)
		}
		r.run(m, r.now+int64(time.Millisecond))
	}
}

// move moves a plane and returns its error afterwards.
func (r *planeRig) move(m *switches.Manual, plane int, move controller.Move) error {
	r.Helper()
	if err := m.Switch(plane, move); err != nil {
		r.Fatal(err)
	}
	r.until(m, func() bool { _, err := m.Map(plane); return !errors.Is(err, controller.ErrMoving) })
	_, unwell := m.Report(plane)
	return unwell
}

func (r *planeRig) must(m *switches.Manual, plane int, to circuit.Permutation) {
	r.Helper()
	if err := r.move(m, plane, controller.Move{To: to, Token: 1, Idle: true}); err != nil {
		r.Fatalf("plane %d to %v: %v", plane, to, err)
	}
	if got := r.s.lit(plane); !got.Equal(to) {
		r.Fatalf("plane %d: light goes %v, want %v", plane, got, to)
	}
}

func (r *planeRig) inject(f device.Fault) {
	r.Helper()
	if err := r.s.model.Inject(f); err != nil {
		r.Fatal(err)
	}
}

// unwell steps a device until a plane is unwell for a reason that says text; "": until it is well.
func (r *planeRig) unwell(m *switches.Manual, plane int, text string) {
	r.Helper()
	r.until(m, func() bool {
		var err error
		if _, err = m.Map(plane); err == nil || errors.Is(err, controller.ErrMoving) {
			_, err = m.Report(plane)
		}
		return text == "" && err == nil || text != "" && err != nil && strings.Contains(err.Error(), text)
	})
}

func TestPlanesMove(t *testing.T) {
	r := newPlaneRig(t, nil)
	m := r.controller(nil)
	var told []int
	m.OnSettled(func(plane int) { told = append(told, plane) })
	r.must(m, 0, circuit.Shift(planeRanks, 1))
	r.must(m, 1, circuit.Shift(planeRanks, 2))
	r.must(m, 0, circuit.Permutation{1, circuit.Dark, 3, 0})
	if verified, _ := m.Report(0); verified != "light" {
		t.Errorf("verified by %s", verified)
	}
	if !slices.Equal(told, []int{0, 1, 0}) {
		t.Errorf("told of planes %v", told)
	}
	if took := time.Duration(r.now); took > 2*time.Second {
		t.Errorf("three moves took %v", took)
	}
	tokens := r.controller(func(c *switches.Config) { c.Verify = driver.Token })
	r.must(tokens, 0, circuit.Shift(planeRanks, 3))
	if verified, _ := tokens.Report(0); verified != "token" {
		t.Errorf("verified by %s", verified)
	}
}

// TestPlaneFaults injects each fault of a switch before or after a move, and checks what the controller learns.
func TestPlaneFaults(t *testing.T) {
	to := circuit.Shift(planeRanks, 1)
	pair := func(k device.FaultKind, in, out int) *device.Fault { return &device.Fault{Kind: k, In: in, Out: out} }
	slow := func(in int, by time.Duration) *device.Fault {
		return &device.Fault{Kind: device.SlowPair, In: in, Out: -1, Delay: by}
	}
	lost := &device.Fault{Kind: device.LostReply}
	lostLong := &device.Fault{Kind: device.LostReply, Count: 30}
	silent := &device.Fault{Kind: device.StuckMirror, In: 1, Silent: true}
	partial := &device.Fault{Kind: device.PartialBulk, Count: 2}
	partialSilent := &device.Fault{Kind: device.PartialBulk, Count: 2, Silent: true}
	reboot := &device.Fault{Kind: device.Reboot, Delay: time.Minute}
	for name, c := range map[string]struct {
		before, after *device.Fault
		ask, answer   time.Duration
		move, later   string // why the plane is unwell after the move, and later; "": it is well
		moved         bool   // in the end light goes as asked
	}{
		"none":                  {moved: true},
		"lost-reply":            {before: lost, moved: true},
		"many lost replies":     {before: lostLong, move: "not answer", moved: true},
		"slow-pair":             {before: slow(-1, time.Second), moved: true},
		"very slow pair":        {before: slow(1, time.Minute), move: "is not up", moved: true},
		"stuck-mirror":          {before: pair(device.StuckMirror, 1, -1), move: "failed port", later: "failed port"},
		"silent stuck-mirror":   {before: silent, move: "no light", later: "no light"},
		"lost-light":            {after: pair(device.LostLight, -1, 2), later: "light is lost"},
		"ghost":                 {after: pair(device.GhostConnect, 0, 0), later: "no matching", moved: true},
		"partial-bulk":          {before: partial, move: "bulk request ended"},
		"silent partial-bulk":   {before: partialSilent, move: "does not have it"},
		"third-party":           {after: pair(device.ThirdParty, 0, 0)},
		"third-party, 2 planes": {after: pair(device.ThirdParty, 0, 5), later: "another plane"},
		"reboot":                {after: reboot, later: "not answer"},
		"late answers":          {answer: 3 * time.Second, move: "not answer", later: "not answer"},
		"slow answers":          {ask: 100 * time.Millisecond, answer: time.Second, moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlaneRig(t, nil)
			m := r.controller(nil)
			if c.before != nil {
				r.inject(*c.before)
			}
			r.askIn, r.answerIn = c.ask, c.answer
			err := r.move(m, 0, controller.Move{To: to, Token: 1})
			if c.move == "" && err != nil || c.move != "" && (err == nil || !strings.Contains(err.Error(), c.move)) {
				t.Fatalf("move: %v, want %q", err, c.move)
			}
			if c.after != nil {
				r.inject(*c.after)
			}
			r.run(m, r.now+int64(30*time.Second))
			r.unwell(m, 0, c.later)
			if moved := r.s.lit(0).Equal(to); moved != c.moved {
				t.Errorf("light goes %v", r.s.lit(0))
			}
			if c.later == "" && c.move == "" { // the controller sees where it goes
				if got, err := m.Map(0); err != nil || !got.Equal(r.s.table()) {
					t.Errorf("map %v, %v; the switch has %v", got, err, r.s.table())
				}
			}
		})
	}
}

// TestUnlitStaysDark checks that the controller notices a loss of light after every kind of move, and that no move
// hides it.
func TestUnlitStaysDark(t *testing.T) {
	all, fewer := circuit.Shift(planeRanks, 1), circuit.Permutation{1, circuit.Dark, 3, 0}
	for name, before := range map[string]func(r *planeRig, m *switches.Manual) *switches.Manual{
		"a move":            func(_ *planeRig, m *switches.Manual) *switches.Manual { return m },
		"a move to the map": func(r *planeRig, m *switches.Manual) *switches.Manual { r.must(m, 0, all); return m },
		"a removal":         func(r *planeRig, m *switches.Manual) *switches.Manual { r.must(m, 0, fewer); return m },
		"a restart":         func(r *planeRig, _ *switches.Manual) *switches.Manual { return r.controller(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlaneRig(t, nil)
			m := r.controller(nil)
			r.must(m, 0, all)
			m = before(r, m)
			at := r.s.table()
			r.inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3})
			r.unwell(m, 0, "light is lost")
			for range 2 {
				if err := r.move(m, 0, controller.Move{To: at, Token: 1, Idle: true}); err == nil {
					t.Error("a move to the map hides the lost light")
				}
			}
			if unlit := m.Unlit(0); !slices.Equal(unlit, []int{2}) {
				t.Errorf("without light: %v", unlit)
			}
			r.inject(device.Fault{Kind: device.Clear})
			r.unwell(m, 0, "")
		})
	}
}

// TestDirectSetTwice checks that a set without a controller fails while a circuit is dark. The second set fails too,
// although the switch already has the circuits.
func TestDirectSetTwice(t *testing.T) {
	r := newPlaneRig(t, func(c *switchConfig) { c.Planes = 1 })
	to := circuit.Shift(planeRanks, 1)
	set := func() error {
		err := errors.New("not done")
		now, dial := func() int64 { return r.now }, func(*opticalSwitch) wire { return r }
		task := newDirect(r.s, now, dial, to, 1, func(e error) { err = e })
		defer task.Stop()
		for at, ok := task.Until(); ok; at, ok = task.Until() {
			r.now = max(r.now, at.UnixNano())
			task.Step()
		}
		return err
	}
	r.inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3})
	for range 3 {
		if err := set(); !errors.Is(err, driver.ErrNotAsIntended) {
			t.Errorf("in the dark: %v", err)
		}
	}
	r.inject(device.Fault{Kind: device.Clear})
	if err := set(); err != nil || !r.s.lit(0).Equal(to) {
		t.Errorf("light is back: %v", err)
	}
}

// TestLateChange delivers a change after its controller has died and the next controller has written. A switch with a
// fence refuses the change. A switch without a fence makes it.
func TestLateChange(t *testing.T) {
	for _, fences := range []bool{true, false} {
		r := newPlaneRig(t, func(c *switchConfig) { c.Fences = fences })
		old := r.controller(nil)
		to := circuit.Shift(planeRanks, 1)
		r.must(old, 0, to)
		if err := old.Switch(0, controller.Move{To: circuit.AllDark(planeRanks), Token: 1}); err != nil {
			t.Fatal(err)
		}
		r.hold = "change"
		old.Step()
		old.OnSettled(nil)
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		if len(r.held) != 1 {
			t.Fatalf("%d changes are under way", len(r.held))
		}
		r.hold = ""
		next := r.controller(nil)
		for _, m := range []circuit.Permutation{circuit.Shift(planeRanks, 2), to} {
			if err := r.move(next, 0, controller.Move{To: m, Token: 2}); err != nil {
				t.Fatal(err)
			}
		}
		r.held[0]()
		if lit := r.s.lit(0); lit.Equal(to) != fences {
			t.Errorf("fences %t: light goes %v, want %v", fences, lit, to)
		}
		r.until(next, func() bool { seen, err := next.Map(0); return err == nil && seen.Equal(r.s.table()) })
	}
}

// TestTokenAtATakeover: a change that arrives late is refused also if the next controller has only read the switch.
func TestTokenAtATakeover(t *testing.T) {
	r := newPlaneRig(t, nil)
	old := r.controller(func(c *switches.Config) { c.Token = 1 })
	to := circuit.Shift(planeRanks, 1)
	r.must(old, 0, to)
	if err := old.Switch(0, controller.Move{To: circuit.AllDark(planeRanks), Token: 1}); err != nil {
		t.Fatal(err)
	}
	r.hold = "change"
	old.Step()
	r.controller(func(c *switches.Config) { c.Token = 2 })
	r.held[0]()
	if lit := r.s.lit(0); !lit.Equal(to) {
		t.Errorf("light goes %v, want %v", lit, to)
	}
}

// TestLeaseBeforeTheChange: a switch is not asked to change after the lease has ended.
func TestLeaseBeforeTheChange(t *testing.T) {
	r := newPlaneRig(t, nil)
	m := r.controller(nil)
	err := r.move(m, 0, controller.Move{To: circuit.Shift(planeRanks, 1), Token: 1,
		Leading: func() error { return controller.ErrNotLeader }})
	if !errors.Is(err, controller.ErrNotLeader) || !r.s.lit(0).Equal(circuit.AllDark(planeRanks)) {
		t.Errorf("%v, light goes %v", err, r.s.lit(0))
	}
}

// TestFence checks that a switch that has obeyed a controller refuses the moves of earlier controllers.
func TestFence(t *testing.T) {
	r := newPlaneRig(t, nil)
	old, next := r.controller(nil), r.controller(nil)
	r.must(old, 0, circuit.Shift(planeRanks, 1))
	if err := r.move(next, 0, controller.Move{To: circuit.Shift(planeRanks, 2), Token: 9}); err != nil {
		t.Fatal(err)
	}
	err := r.move(old, 0, controller.Move{To: circuit.Shift(planeRanks, 3), Token: 8})
	if !errors.Is(err, controller.ErrNotLeader) {
		t.Errorf("a move with a lower token: %v", err)
	}
	if lit := r.s.lit(0); !lit.Equal(circuit.Shift(planeRanks, 2)) {
		t.Errorf("light goes %v", lit)
	}
}

// TestObserve checks that the world learns of each change of circuits and light at its time, without a call of the
// switch.
func TestObserve(t *testing.T) {
	r := newPlaneRig(t, nil)
	var seen []circuit.Permutation
	at := func(t int64, f func()) { r.queue = append(r.queue, queued{t, f}) }
	r.s.observe(at, func() {
		if lit := r.s.lit(0); len(seen) == 0 || !seen[len(seen)-1].Equal(lit) {
			seen = append(seen, lit)
		}
	})
	var tokens []uint64
	r.s.taken = func(token uint64, _, _ []circuit.Pair) { tokens = append(tokens, token) }
	m := r.controller(func(c *switches.Config) { c.DriftInterval = time.Hour })
	to := circuit.Permutation{1, circuit.Dark, circuit.Dark, circuit.Dark}
	r.must(m, 0, to)
	dark := circuit.AllDark(planeRanks)
	if !reflect.DeepEqual(seen, []circuit.Permutation{dark, to}) || !slices.Equal(tokens, []uint64{1}) {
		t.Errorf("a move: seen %v, tokens %v", seen, tokens)
	}
	r.inject(device.Fault{Kind: device.ThirdParty, In: 0, Out: 2})
	r.run(m, r.now+int64(time.Second))
	if want := (circuit.Permutation{2, -1, -1, -1}); len(seen) != 4 || !seen[2].Equal(dark) || !seen[3].Equal(want) {
		t.Errorf("a third party: seen %v", seen)
	}
}

// TestPlanesRepeat checks that equal choices give an equal run.
func TestPlanesRepeat(t *testing.T) {
	run := func() []string {
		r := newPlaneRig(t, nil)
		r.askIn, r.answerIn = time.Millisecond, time.Millisecond
		m := r.controller(nil)
		for i := range 5 {
			r.must(m, i%2, circuit.Shift(planeRanks, 1+i%3))
		}
		return r.log
	}
	if one, two := run(), run(); !reflect.DeepEqual(one, two) || len(one) < 50 {
		t.Errorf("two runs differ, or nothing happened: %d and %d messages", len(one), len(two))
	}
}
