package controller

import (
	"errors"
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
		j := &job{holder: uint64(1000 + p), moves: make([]jobMove, planes)}
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

// mayMove: a move has been journaled, and every port that changes has agreed to it.
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
		if !mv.on || mv.epoch != m.Epoch {
			continue
		}
		for _, p := range mv.left {
			if m.From[p] != m.To[p] && !w.dead[p] && !w.strayed(p, plane, m) {
				w.t.Fatalf("plane %d epoch %d: moves without port %d", plane, m.Epoch, p)
			}
		}
	}
}

// strayed reports whether a port has posted a move without its job.
func (w *world) strayed(port, plane int, m Move) bool {
	for _, l := range w.strays {
		if l.port == port && l.plane == plane && l.epoch == m.Epoch && l.target.Equal(m.To) {
			return true
		}
	}
	return false
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

// granted checks that no other holder has the planes, and that they are in service.
func (w *world) granted(j *job, mask uint64) {
	if mask == 0 {
		w.t.Fatal("a grant of nothing")
	}
	for _, other := range w.jobs {
		if both := other.holds & mask; both != 0 {
			w.t.Fatalf("planes %#x have two holders", both)
		}
	}
	for p := range w.config.Planes {
		if mask>>p&1 != 0 && w.page.faults[p] != nil {
			w.t.Fatalf("plane %d was granted: %v", p, w.page.faults[p])
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
		w.must(lead.Acquire(j.id, ocsctl.Lease{Mask: uint64(j.asks), Holder: j.holder}))
	case j.holds != 0:
		w.use(j)
	}
}

// use moves the planes of a job a little further.
func (w *world) use(j *job) {
	for plane := range j.moves {
		mv := &j.moves[plane]
		if j.holds>>plane&1 == 0 {
			continue
		}
		if w.page.faults[plane] != nil {
			w.quit(j) // poisoned: everybody leaves, and comes back
			return
		}
		switch {
		case !mv.on && w.rng.IntN(2) == 0:
			*mv = jobMove{on: true, epoch: w.page.epochs[plane], target: w.shuffle(w.page.maps[plane], j.ports)}
			mv.left = append(mv.left, j.ports...)
		case mv.on && len(mv.left) > 0:
			i := w.rng.IntN(len(mv.left))
			p := mv.left[i]
			mv.left = append(mv.left[:i:i], mv.left[i+1:]...)
			w.must(w.s[p].Post(plane, mv.epoch, j.holder, mv.target))
		case mv.on && w.page.epochs[plane] > mv.epoch:
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

// harm has something go wrong.
func (w *world) harm() {
	plane, port := w.rng.IntN(len(w.config.Planes)), w.rng.IntN(len(w.s))
	j := w.jobOf(port)
	switch w.rng.IntN(14) {
	case 10:
		w.intrude(j, port, plane)
	case 11, 12, 13:
		w.book(j)
	case 0: // a rank dies, and its job with it
		w.dead[port] = true
		if port == j.ports[0] {
			j.holds, j.asked = 0, false
		}
		w.s[port].Detach(false)
		w.join(port)
		w.quit(j)
	case 1:
		w.dev.wrong[plane] = w.shuffle(w.dev.maps[plane], []int{0, 1, 2, 3})
	case 2:
		w.dev.refuse[plane] = !w.dev.refuse[plane]
	case 3:
		w.ask(func(m *machine, done func(error), now int64) {
			m.disable(plane, "test", "ann", func(err error) {
				w.off[plane] = err == nil
				done(err)
			}, now)
		})
	case 4:
		w.off[plane] = false
		w.enable(plane)
	case 5:
		if j.holds != 0 { // a rank that is not honest
			other := w.shuffle(w.page.maps[plane], []int{0, 1, 2})
			epoch := w.page.epochs[plane] + uint32(w.rng.IntN(2))
			w.strays = append(w.strays, stray{port, plane, epoch, other})
			w.must(w.s[port].Post(plane, epoch, j.holder, other))
		}
	case 6, 7:
		w.takeOver()
	case 8:
		w.worsen(plane, errors.New("a port is dark"), nil)
	case 9:
		w.worsen(plane, nil, w.shuffle(w.dev.maps[plane], []int{0, 1, 2}))
	}
}

// worsen makes a device unwell, or moves it as another writer would. Either takes the plane out of service at once.
func (w *world) worsen(plane int, unwell error, drift circuit.Permutation) {
	if w.timed == nil || w.dev.next[plane] != nil || w.page.faults[plane] != nil {
		return
	}
	if drift == nil {
		drift = w.dev.maps[plane]
	} else if drift.Equal(w.dev.maps[plane]) {
		return
	}
	w.timed.unwell[plane], w.dev.maps[plane] = unwell, drift
	w.timed.news(plane)
	if !errors.Is(w.page.faults[plane], ocsctl.ErrPlaneDown) {
		w.t.Fatalf("plane %d: %v though the device has %v and says %v", plane, w.page.faults[plane], drift, unwell)
	}
	w.timed.unwell[plane] = nil
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
