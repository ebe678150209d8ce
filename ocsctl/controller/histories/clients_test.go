package histories

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// ended reports whether an error says that the controller has ended.
func ended(err error) bool {
	return errors.Is(err, controller.ErrNotLeader) || errors.Is(err, controller.ErrStopped)
}

// classify returns the answer to an operator's request.
func classify(err error) answer {
	switch {
	case err == nil:
		return done
	case ended(err):
		return unknown
	case errors.Is(err, controller.ErrHeld):
		return held
	case strings.Contains(err.Error(), "the change is in force"):
		return inForce
	}
	return failed
}

// operator is a client that commands and looks.
type operator struct {
	world  *world
	number int
	dice   *dice
	orders int
}

func (o *operator) run() {
	for l := o.world.next(nil); l != nil; l = o.world.next(l) {
		for o.command(l) {
			time.Sleep(o.dice.upTo(300 * time.Microsecond))
		}
	}
}

// command makes one request, and reports whether the controller still answers.
func (o *operator) command(l *life) bool {
	w, in := o.world, input{plane: o.dice.n(planes)}
	call := w.tick()
	var err error
	switch n := o.dice.n(100); {
	case n < 35:
		return look(w, l, o.number)
	case n < 38:
		w.panel.harm(in.plane)
		return true
	case n < 60:
		target := circuit.Shift(ports, 1+o.dice.n(ports-1))
		in.kind, in.target = set, key(target)
		err = l.api.Set(in.plane, target, o.name())
	case n < 72:
		o.orders++
		reason := fmt.Sprint("order ", o.orders)
		in.kind, in.text = disable, "disabled by "+o.name()+": "+reason
		err = l.api.Disable(in.plane, reason, o.name())
	default:
		in.kind = enable
		err = l.api.Enable(in.plane, o.name())
	}
	l.requested()
	w.add(l, o.number, call, in, output{answer: classify(err)})
	return !ended(err)
}

func (o *operator) name() string { return fmt.Sprint("operator ", o.number) }

// look takes a snapshot, and reports whether the controller still rules.
func look(w *world, l *life, client int) bool {
	call := w.tick()
	s, err := l.api.Snapshot()
	if err != nil || !s.Leader {
		return false
	}
	end := w.tick()
	for j, p := range s.Planes {
		if b := w.beside; b != nil && len(p.Holders) > 1 {
			b.together.Add(1)
		}
		out := output{epoch: p.Epoch, m: key(p.Map), moving: p.State == controller.Moving}
		if len(p.Holders) > 0 {
			out.holder = p.Holders[0].Holder
		}
		switch _, order, disabled := strings.Cut(p.Reason, ": disabled by "); {
		case p.Reason == "":
		case disabled:
			out.health, out.text = off, "disabled by "+order
		case strings.Contains(p.Reason, ": being "):
			out.health = setting
		default:
			out.health = broken
		}
		w.addUntil(l, client, call, end, input{plane: j, kind: snapshot}, out)
	}
	return true
}

// rank is the sink of one port.
type rank struct {
	controller.Attachment
	world *world
	life  *life
	port  int
	news  chan struct{} // holds an element after every change

	mu      sync.Mutex
	planes  [planes]ocsctl.PlaneState
	faults  [planes]error
	refused [planes]error // of a post, since it was reset
	wanted  *wanted
	granted *granted
	held    uint64 // planes of the rank's job
	closed  bool
}

// wanted is a move that the rank waits for.
type wanted struct {
	plane  int
	epoch  uint32
	target circuit.Permutation
	answer answer // inactive: none yet
	at     int64
}

// granted is the answer to an Acquire.
type granted struct {
	mask uint64
	at   int64
}

func newRank(w *world, l *life, port int) *rank {
	return &rank{world: w, life: l, port: port, news: make(chan struct{}, 1)}
}

// change changes the rank's state, and wakes its goroutine.
func (r *rank) change(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *rank) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	epoch := epochs[r.port]
	r.world.tell(news{r.life.number, plane, epoch})
	r.change(func() {
		if b := r.world.beside; b != nil && fault == nil {
			b.check(r, plane, ocsctl.PlaneState{Epoch: epoch, Map: m})
		}
		r.planes[plane], r.faults[plane] = ocsctl.PlaneState{Epoch: epoch, Map: m}, fault
		if x := r.wanted; x != nil && x.plane == plane && x.answer == inactive && (fault != nil || epoch != x.epoch) {
			x.at, x.answer = r.world.tick(), failed
			if fault == nil && epoch == x.epoch+1 && r.arrived(m, x.target) {
				x.answer = done
			}
		}
	})
}

func (r *rank) Refused(plane int, _ uint64, why error) { r.change(func() { r.refused[plane] = why }) }
func (*rank) Wanted(uint64, uint64)                    {}
func (r *rank) Closed(error)                           { r.change(func() { r.closed = true }) }
func (r *rank) Granted(_, mask uint64, _ error) {
	r.change(func() { r.granted = &granted{mask, r.world.tick()} })
}

// await waits until f returns true, or the controller has closed the attachment.
func (r *rank) await(what string, f func() bool) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		r.mu.Lock()
		enough := f() || r.closed
		r.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-r.news:
		case <-limit.C:
			r.world.t.Errorf("seed %d: port %d waits in vain: %s", r.world.seed, r.port, what)
			return
		}
	}
}

func (r *rank) state(plane int) (ocsctl.PlaneState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.planes[plane], r.faults[plane]
}

// refusal returns why a post was refused.
func refusal(err error) answer {
	if errors.Is(err, ocsctl.ErrNotHolder) {
		return foreign
	}
	return stale
}

// job is a communicator: its ranks swap their circuits on planes that its leader was granted.
type job struct {
	world   *world
	number  int
	holder  uint64
	dice    *dice
	life    *life
	ranks   [jobPorts]*rank
	held    uint64
	all     bool // its leases have all ports
	known   [jobPorts][planes]uint32
	pending [planes]*wanted // a move that the controller before may have begun
}

func newJob(w *world, n int) *job {
	return &job{world: w, number: firstJob + n, holder: uint64(n + 1), dice: newDice(w.seed, uint64(20+n)),
		all: w.beside == nil}
}

func (j *job) run() {
	for j.life = j.world.next(nil); j.life != nil; j.life = j.world.next(j.life) {
		for j.attach() {
			for range 1 + j.dice.n(4) {
				if !j.use() {
					break
				}
			}
			j.detach()
		}
	}
}

// attach attaches all ranks, the leader with the leases of the controller before.
func (j *job) attach() bool {
	for i := range j.ranks {
		r := newRank(j.world, j.life, int(j.holder-1)*jobPorts+i)
		o := controller.AttachOptions{Port: r.port, Who: fmt.Sprint("rank ", r.port), Known: j.learned(i)}
		claims := j.held
		if i > 0 {
			claims = 0
		}
		if claims != 0 {
			o.Held = []ocsctl.Lease{j.lease(claims)}
		}
		call := j.world.tick()
		a, err := j.life.api.Attach(r, o)
		if errors.Is(err, controller.ErrHeld) {
			j.held = 0
			return j.attach()
		}
		if err != nil {
			return false
		}
		r.Attachment, j.ranks[i] = a, r
		j.each(claims, func(plane int) { j.add(claim, plane, call, output{}) })
	}
	return j.held == 0 || j.confirm()
}

// learned returns the newest epochs that a rank knows.
func (j *job) learned(rank int) []uint32 {
	for plane := range planes {
		if r := j.ranks[rank]; r != nil {
			at, _ := r.state(plane)
			j.known[rank][plane] = max(j.known[rank][plane], at.Epoch)
		}
	}
	return slices.Clone(j.known[rank][:])
}

// confirm finds out which claims were granted: none are after the grace time.
func (j *job) confirm() bool {
	s, err := j.life.api.Snapshot()
	if err != nil {
		return false
	}
	j.each(j.held, func(plane int) {
		has := func(h controller.LeaseSnapshot) bool { return h.Holder == j.holder }
		if !slices.ContainsFunc(s.Planes[plane].Holders, has) {
			j.held &^= 1 << plane
		}
	})
	j.hold(j.held)
	return true
}

func (j *job) each(mask uint64, f func(plane int)) {
	for plane := range planes {
		if mask>>plane&1 != 0 {
			f(plane)
		}
	}
}

func (j *job) add(k kind, plane int, call int64, out output) {
	j.world.add(j.life, j.number, call, input{plane: plane, kind: k, holder: j.holder}, out)
}

// use acquires planes, moves them, and releases them. It reports whether the controller still answers.
func (j *job) use() bool {
	lead := j.ranks[0]
	if j.held == 0 && !j.acquire() {
		return false
	}
	for plane := range planes {
		if j.held>>plane&1 == 0 {
			if j.dice.percent(20) && !j.stray(plane, 0) {
				return false
			}
			continue
		}
		for range 1 + j.dice.n(3) {
			if !j.move(plane) || j.dice.percent(10) && !j.stray(plane, 1) {
				return false
			}
		}
	}
	for plane := range planes {
		if j.held>>plane&1 == 0 && !j.dice.percent(10) { // also releases planes that it does not hold
			continue
		}
		j.hold(j.held &^ (1 << plane))
		call := j.world.tick()
		err := lead.Release(1<<plane, j.holder)
		out := output{answer: done}
		if err != nil {
			out.answer = failed
		}
		if ended(err) {
			out.answer = unknown
		}
		j.add(release, plane, call, out)
		if out.answer == unknown {
			return false
		}
	}
	time.Sleep(j.dice.upTo(600 * time.Microsecond))
	return true
}

func (j *job) acquire() bool {
	lead := j.ranks[0]
	mask := uint64(1 + j.dice.n(1<<planes-1))
	call := j.world.tick()
	lead.change(func() { lead.granted = nil })
	if j.world.beside != nil {
		j.all, j.pending = j.dice.percent(15), [planes]*wanted{}
	}
	l := j.lease(mask)
	if !j.all && j.dice.percent(30) {
		j.each(mask, func(int) { l.Circuits = append(l.Circuits, circuit.Shift(jobPorts, j.dice.n(jobPorts))) })
	}
	if lead.Acquire(1, l) != nil {
		return false
	}
	lead.await("planes", func() bool { return lead.granted != nil })
	g := lead.granted
	if g == nil {
		return false // no lease: the core answers when it grants
	}
	j.each(mask, func(plane int) {
		in, out := input{plane: plane, kind: acquire, holder: j.holder}, output{answer: failed}
		if g.mask>>plane&1 != 0 {
			out.answer = done
		}
		j.world.addUntil(j.life, j.number, call, g.at, in, out)
	})
	j.hold(g.mask)
	return true
}

// move makes all ranks post a move, and waits for its end.
func (j *job) move(plane int) bool {
	lead := j.ranks[0]
	at, fault := lead.state(plane)
	if fault != nil {
		return true
	}
	x := &wanted{plane: plane, epoch: at.Epoch, target: j.target(at), answer: inactive}
	if p := j.pending[plane]; p != nil && p.epoch == at.Epoch {
		x.target = p.target
	}
	j.pending[plane] = x
	in := input{plane: plane, kind: move, holder: j.holder, epoch: x.epoch, target: key(x.target)}
	call := j.world.tick()
	lead.change(func() { lead.wanted = x })
	for _, r := range j.ranks {
		r.change(func() { r.refused[plane] = nil })
		if r.Post(plane, x.epoch, j.holder, x.target) != nil {
			break // the controller has stopped, and closes the attachment
		}
	}
	var refused error
	lead.await("a move", func() bool { refused = lead.refused[plane]; return x.answer != inactive || refused != nil })
	lead.mu.Lock()
	out, end := output{answer: x.answer}, x.at
	lead.wanted = nil
	lead.mu.Unlock()
	if out.answer == inactive {
		end = j.world.tick()
		if out.answer = unknown; refused != nil {
			out.answer = refusal(refused)
			if j.world.beside != nil {
				j.world.t.Errorf("seed %d: %v", j.world.seed, refused)
			}
		}
	}
	j.world.addUntil(j.life, j.number, call, end, in, out)
	if out.answer == unknown {
		return false
	}
	j.pending[plane] = nil
	return true
}

// swapped returns m with the circuits of the job's ports swapped.
func (j *job) swapped(m circuit.Permutation) circuit.Permutation {
	m = m.Clone()
	a, b := j.ranks[0].port, j.ranks[1].port
	m[a], m[b] = m[b], m[a]
	return m
}

// stray posts what must be refused: for a past epoch, or without a grant.
func (j *job) stray(plane int, past uint32) bool {
	lead := j.ranks[0]
	at, fault := lead.state(plane)
	if fault != nil || at.Epoch < past {
		return true
	}
	target := j.swapped(at.Map)
	in := input{plane: plane, kind: stray, holder: j.holder, epoch: at.Epoch - past, target: key(target)}
	lead.change(func() { lead.refused[plane] = nil })
	call := j.world.tick()
	// The core executes requests in order, so the snapshot comes after the refusal.
	if lead.Post(plane, in.epoch, j.holder, target) != nil || !look(j.world, j.life, j.number) {
		return false
	}
	lead.mu.Lock()
	why := lead.refused[plane]
	lead.mu.Unlock()
	out := output{answer: ignored}
	if why != nil {
		out.answer = refusal(why)
	}
	j.world.add(j.life, j.number, call, in, out)
	return true
}

// detach ends the attachments; the planes are released. Some ranks end without a goodbye.
func (j *job) detach() {
	call := j.world.tick()
	for _, r := range j.ranks {
		r.mu.Lock()
		closed := r.closed
		r.mu.Unlock()
		if closed {
			return // the planes stay held: the ranks claim them from the next controller
		}
		r.change(func() { r.held = 0 })
		r.Detach(j.dice.percent(80))
	}
	out := output{answer: unknown}
	if j.life.pen.leading() == nil {
		out.answer = done
	}
	for plane := range planes {
		j.add(detach, plane, call, out)
	}
	j.held = 0
}
