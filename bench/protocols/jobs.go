package protocols

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
)

// port is a port of the planes, and the process of the rank that is attached to it. It finds the controller in charge,
// as rpc.Client does.
type port struct {
	w       *world
	index   int
	node    *node
	host    *host // nil: there is no rank
	c       *connection
	order   []int // controllers, in the order in which it tries them
	session uint64
	since   int64 // when it began to look for a controller
	life    int   // counts processes
}

// connection is a port's connection to a controller.
type connection struct {
	port     *port
	p        *process
	session  *session // at the controller; nil: not attached
	up, down pipe
	over     bool
}

const (
	silence  = 6 * time.Second  // without a message, after which a rank looks for another controller
	takeover = 30 * time.Second // for which it looks
	stall    = 10 * time.Second // without a message, after which a controller breaks a connection
	backoff  = 100 * time.Millisecond
)

func newPort(w *world, i int) *port {
	p := &port{w: w, index: i, node: w.newNode(fmt.Sprint("rank at port ", i))}
	for c := range w.cfg.Controllers {
		p.order = append(p.order, c)
	}
	return p
}

// begin starts a process at the port.
func (p *port) begin() *host {
	p.life++
	p.session = 0
	p.node.backlog = nil
	p.host = newHost(p.w, p.index, p.w.cfg.Ports, p.w.cfg.Planes)
	h := p.host
	h.up.sent = func() {
		m := h.up.next()
		if c := p.c; c != nil {
			c.ask(m)
		}
	}
	p.look()
	return h
}

// end ends the process. If clean is set, the process says goodbye to the controller.
func (p *port) end(clean bool) {
	p.life++
	p.host = nil
	c := p.c
	if p.c = nil; c == nil {
		return
	}
	c.over = true
	c.down.cut()
	w, gen := p.w, c.p.gen
	c.up.carry(func() {
		if x := c.session; x != nil && c.p.gen == gen && x.c == c {
			if x.c = nil; clean {
				x.end(true)
			} else {
				x.lose()
			}
		}
	})
	w.line(Internal, p.node.name, "", "ends")
}

// alive wraps f: it does nothing after the end of the current process.
func (p *port) alive(f func()) func() {
	life := p.life
	return func() {
		p.w.reach(p.node, func() {
			if p.life == life {
				f()
			}
		})
	}
}

// look begins to look for the controller in charge.
func (p *port) look() {
	p.since = p.w.clock
	p.try(0)
}

// try tries the next controller.
func (p *port) try(n int) {
	if p.w.clock-p.since > int64(takeover) && p.host.token != 0 {
		p.host.lose(fmt.Errorf("port %d finds no controller: %w", p.index, errdefs.ErrTimeout))
		p.host.look()
		return
	}
	next := p.alive(func() {
		if p.c == nil {
			p.try(n + 1)
		}
	})
	i := n % len(p.order)
	pause := time.Duration(0)
	if i == len(p.order)-1 {
		pause = backoff << min(n/len(p.order), 4)
	}
	q := p.w.processes[p.order[i]]
	c := &connection{port: p, p: q}
	c.up = pipe{w: p.w, from: p.node, to: q.node}
	c.down = pipe{w: p.w, from: q.node, to: p.node}
	if !c.up.open() || !c.down.open() || !p.w.running(q.node) {
		p.w.after(silence, next)
		return
	}
	m := p.host.hello()
	if p.session != 0 {
		m.session = p.session
	}
	sent := p.w.time()
	c.up.carry(func() {
		p.w.message(&c.up, sent, m)
		err := errStandsBy
		if q.up {
			err = q.attach(c, m)
		}
		if err == nil {
			return
		}
		c.over = true
		held := errors.Is(err, controller.ErrHeld)
		p.w.line(Internal, q.node.name, "", "refuses port %d: %v", p.index, err)
		c.down.carry(p.alive(func() {
			if held {
				p.host.lose(fmt.Errorf("port %d: %w", p.index, err))
				p.host.look()
			} else if p.c == nil || p.c == c {
				p.c = nil
				p.w.after(pause, next)
			}
		}))
	})
	p.c = c
	p.w.after(silence, p.alive(func() { // no welcome
		if p.c == c && !p.host.ready {
			c.over, p.c = true, nil
			next()
		}
	}))
}

// prefer puts a controller first or last in the order.
func (p *port) prefer(q *process, first bool) {
	i := slices.Index(p.w.processes, q)
	p.order = slices.DeleteFunc(p.order, func(o int) bool { return o == i })
	if at := len(p.order); first {
		p.order = slices.Insert(p.order, 0, i)
	} else {
		p.order = slices.Insert(p.order, at, i)
	}
}

// ask sends a message to the controller.
func (c *connection) ask(m any) {
	sent := c.port.w.time()
	c.up.carry(func() {
		if x := c.session; x != nil && x.c == c {
			c.port.w.message(&c.up, sent, m)
			x.serve(m)
		}
	})
}

// tell sends a message to the rank.
func (c *connection) tell(m any) {
	p, sent := c.port, c.port.w.time()
	c.down.carry(p.alive(func() {
		if p.c != c {
			return
		}
		p.w.message(&c.down, sent, m)
		switch m := m.(type) {
		case news:
			p.w.told(p.host, &m)
		case welcome:
			for i := range m.states {
				p.w.told(p.host, &m.states[i])
			}
			p.session = m.session
			p.prefer(c.p, true)
		}
		p.host.take(m)
	}))
}

// cut breaks the connection. Both ends learn of it from the network.
func (c *connection) cut(why string) {
	if c.close(why) {
		c.up.carry(c.lost)
		c.down.carry(c.port.alive(c.away))
	}
}

// close loses the messages on their way, and reports whether the connection was open.
func (c *connection) close(why string) bool {
	if c.over {
		return false
	}
	c.over = true
	c.port.w.line(Internal, c.port.node.name, c.p.node.name, "connection breaks: %s", why)
	c.up.cut()
	c.down.cut()
	return true
}

// lost handles the end of the connection at the controller, and away at the rank.
func (c *connection) lost() {
	if x := c.session; x != nil && x.c == c {
		x.lose()
	}
}

func (c *connection) away() {
	if p := c.port; p.c == c {
		p.c, p.host.ready = nil, false
		p.w.after(backoff, p.alive(p.look))
	}
}

// quiet cuts the connections that have been without a message for too long, in one direction.
func (w *world) quiet() {
	for _, p := range w.ports {
		c := p.c
		if c == nil || c.session == nil {
			continue
		}
		switch {
		case c.down.silent() > silence:
			p.prefer(c.p, false)
			c.close("the controller is silent")
			c.up.carry(c.lost)
			w.reach(p.node, c.away)
		case c.up.silent() > stall:
			c.close("the rank is silent")
			w.reach(c.p.node, c.lost)
			c.down.carry(p.alive(c.away))
		}
	}
}

// job is a set of ranks with communicators: one of all ranks, and one of all but the first if there are enough.
type job struct {
	w      *world
	name   string
	ports  []int
	groups []*group // in place; empty: the job starts or has ended
	life   int
	left   int // operations until it ends in order
	served int // operations since all faults have ended
	ends   map[*group][]int
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
	j.w.line(Internal, j.name, "", "starts")
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
	var parent *group
	for first := 0; first <= 1 && len(j.ports)-first >= 2; first++ {
		j.w.holders++
		g := newGroup(j.w, &groupConfig{id: j.w.holders, ports: j.ports[first:], size: j.w.cfg.Ports,
			planes: j.w.cfg.Planes, parent: parent, keeps: 3, timeout: operationTimeout},
			func(p int) *host { return j.w.ports[p].host })
		j.groups = append(j.groups, g)
		j.w.groups[g.cfg.id] = g
		j.ends[g] = nil
		parent = g
		j.connect(g)
		for _, m := range g.members {
			j.think(m)
		}
	}
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
		control.MsgVacateAsk: "asks to vacate", control.MsgVacate: "vacate", control.MsgVacated: "vacated"}
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
	w.line(Internal, j.name, "", "fails: %v", why)
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
