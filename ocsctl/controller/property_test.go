package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// job is a communicator: some ports, of which the first is the leader. Honest ranks do what tickets
// make them do: post the same maps in order, on planes that the leader has been granted.
type job struct {
	holder uint64
	ports  []int
	some   bool // it asks for planes at its ports, not at all ports
	asked  bool
	since  int64
	asks   int64
	holds  uint64
	served int
	moves  []jobMove // under way, by plane
	id     uint64
}

// jobMove is a plane's next switch and the ports that have posted it.
type jobMove struct {
	on     bool
	epoch  uint32
	target circuit.Permutation
	left   []int // ports that have not posted
	events int   // of the journal, when it began
}

// stray is a post that no job is waiting for: of a rank that has left since, or is not honest.
type stray struct {
	port, plane int
	epoch       uint32
	target      circuit.Permutation
}

// world is jobs at a controller with a device and a journal that go wrong, and what an observer
// who knows nothing of the core's inside can hold it to.
type world struct {
	*testRig
	rng     *rand.Rand
	journal *testJournal
	config  Config
	jobs    []*job
	dead    []bool // ports without a rank
	off     []bool // by plane: an operator knows that it is disabled
	strays  []stray
	token   uint64
	takes   int

	booked   []*booking // jobs of a scheduler
	bookings int
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 11))}
	ports, planes := 4+w.rng.IntN(5), 1+w.rng.IntN(4)
	w.journal = &testJournal{planes: make([]Recovered, planes)}
	w.testRig = &testRig{t: t, now: 1e9}
	w.journal.now = &w.now
	w.dev = newTestDevice(&w.now, planes, circuit.Shift(ports, 1))
	w.dev.delay = time.Duration(w.rng.IntN(3)) * time.Millisecond
	w.journal.delay = time.Duration(w.rng.IntN(4)) * time.Millisecond
	w.dev.check = w.mayMove
	w.config = Config{
		Name: "property", Ports: ports, Planes: make([]PlaneConfig, planes), Device: w.dev, Journal: w.journal,
		Grace: 50 * time.Millisecond, SettleTimeout: 20 * time.Millisecond, Forgive: seed%3 != 0,
	}
	if seed%2 == 1 {
		withTimed(w.testRig, &w.config)
	}
	for p := range planes {
		w.config.Planes[p].Reconfig = time.Duration(w.rng.IntN(2)) * time.Millisecond
		w.journal.planes[p] = Recovered{Map: w.dev.maps[p]}
	}
	w.off = make([]bool, planes)
	w.dead, w.s = make([]bool, ports), make([]*testSink, ports)
	w.start()
	for p := 0; p < ports; {
		n := min(1+w.rng.IntN(3), ports-p)
		j := &job{holder: uint64(1000 + p), moves: make([]jobMove, planes), some: w.rng.IntN(3) > 0}
		for range n {
			j.ports = append(j.ports, p)
			p++
		}
		w.jobs = append(w.jobs, j)
	}
	for p := range w.s {
		w.join(p)
	}
	return w
}

// start makes a controller: the first, or one that takes over.
func (w *world) start() {
	w.token++
	w.config.Token = w.token
	w.page = newTestSink()
	var err error
	if w.core, err = NewManual(w.config, func() int64 { return w.now }); err != nil {
		w.t.Fatal(err)
	}
	w.page.changed = w.published
	if _, err := w.core.Attach(w.page, AttachOptions{Port: -1}); err != nil {
		w.t.Fatal(err)
	}
}

// published checks that a plane shown in service at a new epoch has the map of its device.
func (w *world) published(plane int) {
	if w.page.faults[plane] != nil {
		return
	}
	have := w.dev.maps[plane]
	if n := w.dev.next[plane]; n != nil {
		w.t.Fatalf("plane %d: epoch %d published while the device moves to %v", plane, w.page.epochs[plane], n)
	}
	if !have.Equal(w.page.maps[plane]) {
		w.t.Fatalf("plane %d epoch %d: published %v, the device has %v", plane, w.page.epochs[plane],
			w.page.maps[plane], have)
	}
}

// lease returns the lease of a job on planes.
func (j *job) lease(mask uint64) ocsctl.Lease {
	l := ocsctl.Lease{Mask: mask, Holder: j.holder}
	if j.some {
		l.Ports = j.ports
	}
	return l
}

// epoch returns the epoch of a job's ports.
func (w *world) epoch(j *job, plane int) uint32 { return w.s[j.ports[0]].epochs[plane] }

// mayMove: a move has been journaled, and every port has agreed to it whose circuit changes inside a lease.
func (w *world) mayMove(plane int, m Move) {
	w.mayTouch(plane, m)
	i := w.journal.planes[plane].Intent
	if i == nil || i.Epoch != m.Epoch || !i.To.Equal(m.To) {
		w.t.Fatalf("plane %d: moves to %v of epoch %d, the journal has %v", plane, m.To, m.Epoch, i)
	}
	if m.Token != w.token {
		w.t.Fatalf("plane %d: token %d, want %d", plane, m.Token, w.token)
	}
	for _, j := range w.jobs {
		mv := &j.moves[plane]
		if j.holds>>plane&1 == 0 {
			continue
		}
		for _, p := range j.ports {
			agreed := mv.on && !slices.Contains(mv.left, p)
			if j.inside(m.From[p]) != j.inside(m.To[p]) && !agreed && !w.dead[p] && !w.strayed(j, p, plane, m) {
				w.t.Fatalf("plane %d epoch %d: moves without port %d", plane, m.Epoch, p)
			}
		}
	}
}

// inside returns where a circuit of the job leads, dark if that is not inside its lease.
func (j *job) inside(to int) int {
	if j.some && !slices.Contains(j.ports, to) {
		return circuit.Dark
	}
	return to
}

// strayed reports whether a port has posted a move without its job.
func (w *world) strayed(j *job, port, plane int, m Move) bool {
	for _, l := range w.strays {
		if l.port == port && l.plane == plane && j.inside(l.target[port]) == j.inside(m.To[port]) {
			return true
		}
	}
	return false
}

// counts reports whether a job's ports must be at the epoch of its move, or one beyond. Not if one of its ranks has
// posted moves without it, or the plane has failed meanwhile.
func (w *world) counts(j *job, plane int) bool {
	strayed := slices.ContainsFunc(w.strays, func(s stray) bool {
		return s.plane == plane && slices.Contains(j.ports, s.port)
	})
	return !strayed &&
		!slices.ContainsFunc(w.journal.events[j.moves[plane].events:], func(e Event) bool {
			return e.Plane == plane && (e.Kind == Failed || e.Kind == Restored)
		})
}

// join attaches a port's rank.
func (w *world) join(port int, held ...ocsctl.Lease) {
	w.attach(port, held...)
	w.dead[port] = false
	w.s[port].granted = func(mask uint64) { w.granted(w.jobOf(port), mask) }
}

func (w *world) jobOf(port int) *job {
	for _, j := range w.jobs {
		if slices.Contains(j.ports, port) {
			return j
		}
	}
	return nil
}

// granted checks that no other holder has the planes at the job's ports, that they are in service, and that all ports
// of the job are at one epoch.
func (w *world) granted(j *job, mask uint64) {
	if mask == 0 {
		w.t.Fatal("a grant of nothing")
	}
	for _, other := range w.jobs {
		if both := other.holds & mask; both != 0 && (!j.some || !other.some) {
			w.t.Fatalf("planes %#x have two holders", both)
		}
	}
	for p := range w.config.Planes {
		if mask>>p&1 != 0 && w.page.faults[p] != nil {
			w.t.Fatalf("plane %d was granted: %v", p, w.page.faults[p])
		}
		for _, port := range j.ports {
			if e := w.s[port].epochs[p]; mask>>p&1 != 0 && !w.dead[port] && e != w.epoch(j, p) {
				w.t.Fatalf("plane %d was granted to ports %v: port %d is at epoch %d, not %d", p, j.ports, port, e, w.epoch(j, p))
			}
		}
	}
	j.holds, j.asked = mask, false
	j.served++
}

// act has a job do one thing.
func (w *world) act(j *job) {
	lead := w.s[j.ports[0]]
	for _, p := range j.ports {
		if w.dead[p] {
			return
		}
	}
	for _, a := range lead.answers {
		if a.err != nil { // none in service
			j.asked = false
		}
	}
	lead.answers = nil
	switch {
	case j.holds == 0 && !j.asked:
		j.id++
		j.asked, j.since = true, w.now
		j.asks = w.rng.Int64N(1<<len(w.config.Planes)-1) + 1
		w.must(lead.Acquire(j.id, w.request(j)))
	case j.holds != 0:
		w.use(j)
	}
}

// request returns the request of a job, now and then with circuits.
func (w *world) request(j *job) ocsctl.Lease {
	l := j.lease(uint64(j.asks))
	for mask := l.Mask; j.some && j.id%2 == 0 && mask != 0; mask &= mask - 1 {
		l.Circuits = append(l.Circuits, w.rng.Perm(len(j.ports)))
	}
	return l
}

// isRefused reports whether a rank of a job has been refused.
func (w *world) isRefused(j *job) bool {
	return slices.ContainsFunc(j.ports, func(p int) bool { return len(w.s[p].refused) > 0 })
}

// use moves the planes of a job a little further.
func (w *world) use(j *job) {
	for plane := range j.moves {
		mv := &j.moves[plane]
		if j.holds>>plane&1 == 0 {
			continue
		}
		if w.page.faults[plane] != nil || w.isRefused(j) {
			w.quit(j) // poisoned: everybody leaves, and comes back
			return
		}
		switch {
		case !mv.on && w.rng.IntN(2) == 0:
			*mv = jobMove{on: true, epoch: w.epoch(j, plane), target: w.target(j, plane),
				events: len(w.journal.events)}
			mv.left = append(mv.left, j.ports...)
		case mv.on && len(mv.left) > 0:
			i := w.rng.IntN(len(mv.left))
			p := mv.left[i]
			mv.left = append(mv.left[:i:i], mv.left[i+1:]...)
			w.must(w.s[p].Post(plane, mv.epoch, j.holder, mv.target))
		case mv.on && w.epoch(j, plane) > mv.epoch:
			if w.epoch(j, plane) != mv.epoch+1 && w.counts(j, plane) {
				w.t.Fatalf("plane %d: ports %v at epoch %d, after a move from %d", plane, j.ports, w.epoch(j, plane), mv.epoch)
			}
			*mv = jobMove{}
		}
	}
	for plane := range j.moves {
		if j.moves[plane].on {
			return
		}
	}
	if w.rng.IntN(3) == 0 {
		mask := j.holds
		j.holds = 0
		w.must(w.s[j.ports[0]].Release(mask, j.holder))
	}
}

// shuffle exchanges what the circuits of some ports lead to.
func (w *world) shuffle(m circuit.Permutation, ports []int) circuit.Permutation {
	next := m.Clone()
	for i, k := range w.rng.Perm(len(ports)) {
		next[ports[i]] = m[ports[k]]
	}
	return next
}

// target returns a map to which a job moves a plane.
func (w *world) target(j *job, plane int) circuit.Permutation {
	if !j.some {
		return w.shuffle(w.page.maps[plane], j.ports)
	}
	m := circuit.AllDark(len(w.s))
	for i, k := range w.rng.Perm(len(j.ports)) {
		if w.rng.IntN(4) > 0 {
			m[j.ports[i]] = j.ports[k]
		}
	}
	return m
}

// quit ends a job's ranks and starts them again.
func (w *world) quit(j *job) {
	moves := j.moves
	j.holds, j.asked, j.moves = 0, false, make([]jobMove, len(j.moves))
	for _, p := range j.ports {
		clean := w.rng.IntN(2) == 0
		if clean { // its posts outlive it
			for plane, mv := range moves {
				if mv.on && !slices.Contains(mv.left, p) {
					w.strays = append(w.strays, stray{p, plane, mv.epoch, mv.target})
				}
			}
		}
		w.s[p].Detach(clean)
	}
	for _, p := range j.ports {
		w.join(p)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestProperty sends random jobs, faults and takeovers to the core, and checks the rules. A plane never has two
// holders, and no plane that is down is granted. Ranks make no circuit into a scheduler's job, and jobs survive
// takeovers. A move needs an intent and agreement. An epoch is published only at
// the device's map. No plane is in service on an unwanted map. When the faults end, every job is served.
func TestProperty(t *testing.T) {
	takes, switched := 0, uint64(0)
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 1500 {
				w.act(w.jobs[w.rng.IntN(len(w.jobs))])
				if w.rng.IntN(60) == 0 {
					w.harm()
				}
				w.elapse()
			}
			w.settleDown()
			for p := range w.config.Planes {
				switched += w.plane(p).Switches
			}
			takes += w.takes
			w.core.Close()
		})
	}
	if takes < 100 || switched < 1000 {
		t.Errorf("%d takeovers and %d switches are not what this test is for", takes, switched)
	}
}

// elapse lets a little time pass for everybody.
func (w *world) elapse() {
	w.now += w.rng.Int64N(int64(time.Millisecond))
	w.journal.step()
	if w.timed != nil {
		for p, to := range w.dev.next {
			if to != nil && w.dev.due[p] <= w.now {
				w.timed.news(p)
			}
		}
	}
	w.core.Step()
}

// settleDown: nothing goes wrong any more, and every job is served again and again.
func (w *world) settleDown() {
	for p := range w.config.Planes {
		w.dev.refuse[p], w.dev.wrong[p] = false, nil
	}
	for len(w.booked) > 0 {
		w.unbook(w.booked[0])
	}
	for range 200 { // moves end, well or not
		w.elapse()
	}
	for _, j := range w.jobs { // who saw a failure leaves
		w.quit(j)
	}
	for range 200 {
		w.elapse()
	}
	for p, fault := range w.page.faults {
		if fault != nil && !w.config.Forgive { // drift is for an operator to decide
			w.core.machine.set(p, &order{target: w.dev.maps[p], who: "ann", done: func(err error) { w.must(err) }}, w.now)
		}
	}
	for range 200 {
		w.elapse()
	}
	for p := range w.config.Planes {
		w.off[p] = false
		w.enable(p)
	}
	for range 200 {
		w.elapse()
	}
	for i, j := range w.jobs {
		j.served = 0
		if i%2 == 0 {
			w.book(j)
		}
	}
	for range 20000 {
		w.act(w.jobs[w.rng.IntN(len(w.jobs))])
		w.elapse()
		all := true
		for _, j := range w.jobs {
			all = all && (j.served >= 3)
		}
		for _, b := range w.booked {
			all = all && b.begun
		}
		if all {
			return
		}
	}
	s, _ := w.core.Snapshot()
	for _, j := range w.jobs {
		w.t.Logf("job of ports %v: served %d, asked %v, holds %#x, moves %+v", j.ports, j.served, j.asked, j.holds, j.moves)
	}
	w.t.Fatalf("a job is not served: %+v", s)
}
