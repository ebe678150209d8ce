package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// testDevice moves planes in virtual time and goes wrong when it is told to.
type testDevice struct {
	now    *int64
	delay  time.Duration
	maps   []circuit.Permutation
	next   []circuit.Permutation // nil: resident
	due    []int64
	wrong  []circuit.Permutation // where the next move of a plane leads to instead
	refuse []bool
	moves  []Move
	check  func(plane int, m Move)
}

func newTestDevice(now *int64, planes int, at circuit.Permutation) *testDevice {
	d := &testDevice{
		now: now, maps: make([]circuit.Permutation, planes), next: make([]circuit.Permutation, planes),
		due: make([]int64, planes), wrong: make([]circuit.Permutation, planes), refuse: make([]bool, planes),
	}
	for p := range d.maps {
		d.maps[p] = at
	}
	return d
}

func (d *testDevice) Switch(plane int, m Move) error {
	if d.check != nil {
		d.check(plane, m)
	}
	if d.refuse[plane] {
		return errors.New("device refuses")
	}
	d.moves = append(d.moves, m)
	d.next[plane], d.due[plane] = m.To, *d.now+int64(d.delay)
	if w := d.wrong[plane]; w != nil {
		d.next[plane], d.wrong[plane] = w, nil
	}
	return nil
}

func (d *testDevice) Map(plane int) (circuit.Permutation, error) {
	if d.next[plane] != nil {
		if *d.now < d.due[plane] {
			return nil, ErrMoving
		}
		d.maps[plane], d.next[plane] = d.next[plane], nil
	}
	return d.maps[plane], nil
}

// timedDevice says when it has settled; news is what the test calls.
type timedDevice struct {
	*testDevice
	news   func(plane int)
	unwell []error
}

func (d *timedDevice) OnSettled(f func(plane int))      { d.news = f }
func (d *timedDevice) Report(plane int) (string, error) { return "light", d.unwell[plane] }

// testSink is the sink of a front end, with or without a port.
type testSink struct {
	wanted [][2]uint64 // holder and planes
	Attachment
	port    int            // whose epochs it takes
	epochs  map[int]uint32 // by plane
	maps    map[int]circuit.Permutation
	faults  map[int]error
	refused []error
	answers []testGrant
	closed  error
	granted func(mask uint64)
	changed func(plane int)
}

type testGrant struct {
	id, mask uint64
	err      error
}

func newTestSink() *testSink {
	return &testSink{epochs: map[int]uint32{}, maps: map[int]circuit.Permutation{}, faults: map[int]error{}}
}

func (s *testSink) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	s.epochs[plane], s.maps[plane], s.faults[plane] = epochs[s.port], m, fault
	if s.changed != nil {
		s.changed(plane)
	}
}
func (s *testSink) Refused(_ int, _ uint64, why error) { s.refused = append(s.refused, why) }
func (s *testSink) Wanted(holder, mask uint64)         { s.wanted = append(s.wanted, [2]uint64{holder, mask}) }
func (s *testSink) Closed(err error)                   { s.closed = err }
func (s *testSink) Granted(id, mask uint64, err error) {
	s.answers = append(s.answers, testGrant{id, mask, err})
	if s.granted != nil && err == nil {
		s.granted(mask)
	}
}

// isRefused expects one refused post of the port.
func (s *testSink) isRefused(t *testing.T, is error, says ...string) {
	t.Helper()
	if len(s.refused) != 1 {
		t.Errorf("port %d: refused %v", s.port, s.refused)
		return
	}
	want(t, fmt.Sprint("port ", s.port), s.refused[0], is, says...)
}

// testJournal keeps intents and the maps of planes. Writes become durable some time after the call.
type testJournal struct {
	now     *int64
	delay   time.Duration
	err     error // of the next answer
	waiting []testWrite
	planes  []Recovered
	events  []Event
}

// testWrite is an intent or an event that the core waits for.
type testWrite struct {
	intent *Intent
	event  Event
	done   func(error)
	due    int64
}

func (j *testJournal) Intend(i Intent, done func(error)) {
	j.waiting = append(j.waiting, testWrite{intent: &i, done: done, due: *j.now + int64(j.delay)})
}

func (j *testJournal) Record(e Event, done func(error)) {
	j.events = append(j.events, e)
	if done != nil {
		j.waiting = append(j.waiting, testWrite{event: e, done: done, due: *j.now + int64(j.delay)})
		return
	}
	j.apply(e)
}

// apply folds an event into where its plane is.
func (j *testJournal) apply(e Event) {
	if e.Plane < 0 {
		return
	}
	p := &j.planes[e.Plane]
	switch e.Kind {
	case Switched, Restored:
		*p = Recovered{Epoch: e.Epoch, Epochs: e.Epochs, Map: e.To, Disabled: p.Disabled, Jobs: p.Jobs,
			FailedMoves: p.FailedMoves}
	case Began, Ended:
		p.Jobs = slices.DeleteFunc(slices.Clone(p.Jobs), func(j Job) bool { return j.ID == e.Job.ID })
		if e.Kind == Began {
			p.Jobs = append(p.Jobs, *e.Job)
		}
	case Failed:
		p.Map, p.Epochs, p.Intent, p.Failed = e.Desired, nil, nil, true
	case Commanded:
		p.Disabled = e.Err
	case Excluded, Included:
		if delete(p.FailedMoves, e.Port); e.FailedMove {
			p.FailedMoves = map[int]string{e.Port: e.Err} // of one port at most
		}
	}
}

// step makes durable what is due.
func (j *testJournal) step() {
	for len(j.waiting) > 0 && j.waiting[0].due <= *j.now {
		w := j.waiting[0]
		j.waiting = j.waiting[1:]
		err := j.err
		switch j.err = nil; {
		case err != nil:
		case w.intent != nil:
			j.planes[w.intent.Plane].Intent = w.intent
		default:
			j.apply(w.event)
		}
		w.done(err)
	}
}

// answer has everything become durable that the journal has been told.
func (j *testJournal) answer(r *testRig) {
	r.pass(j.delay)
	j.step()
	r.pass(0)
}

// testRig is a controller in virtual time.
type testRig struct {
	t     testing.TB
	core  *Core
	dev   *testDevice
	timed *timedDevice // dev, where the configuration says so
	now   int64
	page  *testSink
	s     []*testSink

	absent int // 1 more than the port that is not attached at the start; 0: all are
}

// newTestRig makes a controller of dark planes with every port, but for absent ones, attached; change may alter the
// configuration before it starts.
func newTestRig(t testing.TB, ports, planes int, change func(r *testRig, c *Config)) *testRig {
	t.Helper()
	r := &testRig{t: t, now: 1e9, page: newTestSink()}
	r.dev = newTestDevice(&r.now, planes, circuit.Shift(ports, 1))
	c := Config{Name: "test", Ports: ports, Planes: make([]PlaneConfig, planes), Device: r.dev}
	for p := range c.Planes {
		c.Planes[p] = PlaneConfig{Name: fmt.Sprint("p", p), Reconfig: time.Millisecond}
	}
	if change != nil {
		change(r, &c)
	}
	var err error
	if r.core, err = NewManual(c, func() int64 { return r.now }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.core.Close)
	if _, err := r.core.Attach(r.page, AttachOptions{Port: -1}); err != nil {
		t.Fatal(err)
	}
	r.s = make([]*testSink, ports)
	for p := range ports {
		if p != r.absent-1 {
			r.attach(p)
		}
	}
	return r
}

// withTimed gives the rig a device that says when it has settled.
func withTimed(r *testRig, c *Config) {
	r.timed = &timedDevice{testDevice: r.dev, unwell: make([]error, len(c.Planes))}
	c.Device = r.timed
}

func (r *testRig) attach(port int, held ...ocsctl.Lease) {
	r.t.Helper()
	s := newTestSink()
	s.port = port
	a, err := r.core.Attach(s, AttachOptions{Port: port, Who: fmt.Sprint("rank ", port), Held: held})
	require.NoError(r.t, err)
	s.Attachment = a
	r.s[port] = s
}

// pass lets time pass.
func (r *testRig) pass(d time.Duration) {
	for end := r.now + int64(d); ; {
		next := r.core.Step()
		if next > end {
			r.now = end
			return
		}
		r.now = max(next, r.now+1)
	}
}

// testHolder is the communicator of all ports of a rig; port 0 asks for planes for it.
const testHolder = 7

// hold has planes granted to testHolder.
func (r *testRig) hold(mask uint64) {
	r.t.Helper()
	before := len(r.s[0].answers)
	require.NoError(r.t, r.s[0].Acquire(1, ocsctl.Lease{Mask: mask, Holder: testHolder}))
	if a := r.s[0].answers; len(a) != before+1 || a[before].mask != mask {
		r.t.Fatalf("planes %#x are not granted: %v", mask, a)
	}
	r.s[0].answers = r.s[0].answers[:before]
}

func (r *testRig) release(mask uint64) {
	r.t.Helper()
	require.NoError(r.t, r.s[0].Release(mask, testHolder))
}

func (r *testRig) post(port, plane int, epoch uint32, target circuit.Permutation) {
	r.t.Helper()
	require.NoError(r.t, r.s[port].Post(plane, epoch, testHolder, target))
}

// postAll has all ports post, on a plane that testHolder holds.
func (r *testRig) postAll(plane int, epoch uint32, target circuit.Permutation) {
	r.t.Helper()
	for p := range r.s {
		r.post(p, plane, epoch, target)
	}
}

// ask has an operator ask for something, and returns where the answer will be: errNoAnswer before.
func (r *testRig) ask(begin func(m *machine, done func(error), now int64)) *error {
	r.t.Helper()
	var answer error
	answered := &answer
	*answered = errNoAnswer
	require.NoError(r.t, r.core.do(func(now int64) {
		begin(r.core.machine, func(err error) { *answered = err }, now)
	}))
	return answered
}

// errNoAnswer: an operator waits.
var errNoAnswer = errors.New("no answer")

func (r *testRig) disable(plane int) *error {
	return r.ask(func(m *machine, done func(error), now int64) { m.disable(plane, "fibre work", "ann", done, now) })
}

func (r *testRig) enable(plane int) *error {
	return r.ask(func(m *machine, done func(error), now int64) { m.enable(plane, &order{who: "ann", done: done}, now) })
}

func (r *testRig) set(plane int, target circuit.Permutation) *error {
	return r.ask(func(m *machine, done func(error), now int64) {
		m.set(plane, &order{target: target, who: "ann", done: done}, now)
	})
}

func (r *testRig) plane(plane int) PlaneSnapshot {
	r.t.Helper()
	s, err := r.core.Snapshot()
	require.NoError(r.t, err)
	return s.Planes[plane]
}
