package protocols

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/bench/protocols/trace"
	"lightpath/shim/control"
)

// job is a set of ranks with communicators: one of all ranks, one of all but the first if there are enough and, in a
// world that shares, two of one half each.
type job struct {
	w      *world
	name   string
	ports  []int
	groups []*group // in place; empty: the job starts or has ended
	life   int
	left   int // operations until it ends in order
	served int // operations since all faults have ended
	ends   map[*group][]int
	// program lists the communicators that ranks call, if each makes one call at a time; it grows as ranks go on.
	program []int
	at      map[int]int // by port: its place in the program
}

// runsFor are numbers of operations of a job.
var runsFor = [4]int{100, 10, 30, 300}

const (
	operationTimeout = 20 * time.Second
	tickEvery        = 500 * time.Millisecond
)

func newJob(w *world, i int) *job {
	j := &job{w: w, name: fmt.Sprint("job ", i), ends: map[*group][]int{}}
	for p := i * w.cfg.Ports / w.cfg.Jobs; p < (i+1)*w.cfg.Ports/w.cfg.Jobs; p++ {
		j.ports = append(j.ports, p)
	}
	return j
}

// start starts the processes of a job. Its operations begin when all are attached.
func (j *job) start() {
	j.life++
	j.left = runsFor[j.w.choose.Choose(len(runsFor))]
	j.w.line(trace.Internal, j.name, "", "starts")
	for _, p := range j.ports {
		j.w.ports[p].begin()
	}
	j.tick(j.life)
}

// tick lets time-outs pass, and begins the operations of a job that has started.
func (j *job) tick(life int) {
	if j.life != life {
		return
	}
	j.w.after(tickEvery, func() { j.tick(life) })
	j.w.quiet()
	if len(j.groups) == 0 {
		for _, p := range j.ports {
			if h := j.w.ports[p].host; h.gone != nil {
				j.end(false)
				return
			} else if !h.ready {
				return
			}
		}
		j.open()
		return
	}
	for _, g := range j.groups {
		if j.w.running(j.w.ports[g.cfg.ports[0]].node) {
			g.look()
		}
		for _, m := range g.members {
			if g.failed == nil && j.w.running(j.w.ports[m.host.port].node) {
				m.tick()
			}
		}
		if j.life != life {
			return
		}
	}
	for _, p := range j.ports {
		j.w.answers(j.w.ports[p].host)
	}
}

// open creates the communicators.
func (j *job) open() {
	all, half, share := j.ports, len(j.ports)/2, j.w.cfg.Share != 0
	parts := [][]int{all, all[1:]}
	if share {
		parts = append(parts, all[:half], all[half:])
	}
	for i, ports := range parts {
		if len(ports) < 2 || i == 3 && half < 2 {
			continue
		}
		j.w.holders++
		g := newGroup(j.w, &groupConfig{id: j.w.holders, ports: ports, size: j.w.cfg.Ports,
			planes: j.w.cfg.Planes, keeps: 3, timeout: operationTimeout, repeats: repeats(j.w.cfg.Repeats),
			script: j.w.script, share: share, anywhere: share && i == 0 && half > 1},
			func(p int) *host { return j.w.ports[p].host })
		j.groups = append(j.groups, g)
		j.w.groups[g.cfg.id] = g
		j.ends[g] = nil
		j.connect(g)
		for _, m := range g.members {
			if j.w.cfg.Turns == 0 {
				j.think(m)
			}
		}
	}
	j.program, j.at = nil, map[int]int{}
	if j.w.cfg.Turns != 0 {
		for _, p := range j.ports {
			j.goOn(p)
		}
	}
}

// goOn makes the rank at a port make the next call of the program that is one of its own. Programs repeat a few calls,
// mostly.
func (j *job) goOn(port int) {
	for {
		for len(j.program) <= j.at[port] {
			next := len(j.program) % (len(j.groups) + 1) % len(j.groups)
			if j.w.choose.Choose(32) == 31 {
				next = len(j.groups) - 1 - next
			}
			j.program = append(j.program, next)
		}
		m := j.groups[j.program[j.at[port]]].at(port)
		j.at[port]++
		if m != nil {
			j.think(m)
			return
		}
	}
}

// repeats returns the setting of a leader.
func repeats(n int) int {
	if n == 1 {
		return 0
	}
	return n
}

// script repeats three operations, mostly.
func (w *world) script(i int) (shape, skipped int) {
	if shape = 0; i%3 == 2 {
		shape = 1
	}
	switch w.choose.Choose(16) {
	case 14:
		return 2, 0
	case 15:
		return shape, 1
	}
	return shape, 0
}

// connect carries the control messages of a group over the network.
func (j *job) connect(g *group) {
	leader := j.w.ports[g.cfg.ports[0]].node
	for _, m := range g.members {
		own := j.w.ports[m.host.port].node
		up, down := &pipe{w: j.w, from: own, to: leader}, &pipe{w: j.w, from: leader, to: own}
		m.toLeader.sent = func() {
			q, sent := m.toLeader.next(), j.w.time()
			up.carry(func() {
				if g.failed == nil {
					j.w.message(up, sent, kindOf(q, g))
					g.take(&q)
				}
			})
		}
		m.toRank.sent = func() {
			q, sent := m.toRank.next(), j.w.time()
			down.carry(func() {
				if g.failed == nil {
					j.w.message(down, sent, kindOf(q, g))
					m.take(&q)
				}
			})
		}
	}
}

// kindOf names a control message.
func kindOf(q control.Message, g *group) string {
	names := map[control.Kind]string{control.MsgWant: "want", control.MsgDone: "done", control.MsgTicket: "ticket",
		control.MsgRecall: "recall", control.MsgRecalled: "recalled", control.MsgContested: "contested",
		control.MsgPrepare: "prepare"}
	return fmt.Sprintf("holder %d: %s %d", g.cfg.id, names[q.Kind], q.Seq)
}

// thinking are the times between two operations of a rank.
var thinking = [8]time.Duration{0, 0, 0, 50e3, 300e3, 1e6, 4e6, 150e6}

// think makes a rank ask for its next operation.
func (j *job) think(m *member) {
	g := m.g
	j.w.after(thinking[j.w.choose.Choose(len(thinking))], j.w.ports[m.host.port].alive(func() {
		if g.failed == nil && m.stage == idle {
			m.ask()
		}
	}))
}

// ended implements [ground].
func (w *world) ended(m *member) {
	j := w.jobOf(m.g)
	ends := j.ends[m.g]
	for len(ends) < m.ended {
		ends = append(ends, 0)
	}
	ends[m.ended-1]++
	j.ends[m.g] = ends
	if ends[m.ended-1] == len(m.g.members) {
		w.result.Operations++
		if w.healing != 0 {
			j.served++
		}
		if j.left--; j.left == 0 {
			w.after(0, func() {
				if m.g.failed == nil {
					j.end(true)
				}
			})
		}
	}
	if j.w.cfg.Turns != 0 && len(j.groups) > 0 {
		j.goOn(m.host.port)
		return
	}
	j.think(m)
}

func (w *world) jobOf(g *group) *job {
	i := slices.IndexFunc(w.jobs, func(j *job) bool { return slices.Contains(j.groups, g) })
	return w.jobs[i]
}

// failed implements [ground]: the processes of the job end.
func (w *world) failed(g *group, why error) {
	w.mayFail(g, why)
	w.result.Operations++
	j := w.jobOf(g)
	w.line(trace.Internal, j.name, "", "fails: %v", why)
	life := j.life
	w.later(func() {
		if j.life == life {
			j.end(false)
		}
	})
}

// errEnded is the state of groups whose job has ended.
var errEnded = errors.New("the job has ended")

// restarts are the times until a job starts again.
var restarts = [8]time.Duration{100e6, 1e6, 10e6, 300e6, 1e9, 3e9, 12e9, 45e9}

// end ends the processes of a job. It starts again later. clean: its communicators give their planes back, and its
// processes say goodbye.
func (j *job) end(clean bool) {
	for _, g := range j.groups {
		h := g.members[0].host
		if mask := h.held[g.cfg.id]; clean && mask != 0 {
			h.tell(release{g.cfg.id, mask})
		}
		if g.failed == nil {
			g.failed = errEnded
		}
		delete(j.w.groups, g.cfg.id)
		delete(j.ends, g)
	}
	j.life++
	j.groups = nil
	for _, p := range j.ports {
		j.w.ports[p].end(clean)
	}
	j.w.after(restarts[j.w.choose.Choose(len(restarts))], j.start)
}

// timer implements [ground].
func (w *world) timer(g *group, d time.Duration) {
	g.armed++
	if d == 0 {
		return
	}
	n := g.armed
	w.after(d, w.ports[g.members[0].host.port].alive(func() {
		if g.armed == n && g.failed == nil {
			g.expire()
		}
	}))
}

// later implements [ground].
func (w *world) later(f func()) { w.local = append(w.local, f) }

// now implements [ground].
func (w *world) now(h *host) time.Time { return time.Unix(0, w.clock+w.ports[h.port].node.skew) }

// group implements [ground].
func (w *world) group(holder uint64) *group { return w.groups[holder] }

// agreed implements [ground].
func (w *world) agreed(*host, *agree) {}
