package protocols

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/bench/protocols/trace"
	"lightpath/ocsctl/controller"
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
	w.line(trace.Internal, p.node.name, "", "ends")
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
		p.w.line(trace.Internal, q.node.name, "", "refuses port %d: %v", p.index, err)
		c.down.carry(p.alive(func() {
			switch {
			case !held && (p.c == nil || p.c == c):
				p.c = nil
				p.w.after(pause, next)
			case held && p.c == c: // otherwise the process has ended, or asks again
				p.host.lose(fmt.Errorf("port %d: %w", p.index, err))
				p.host.look()
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
	at := 0
	if !first {
		at = len(p.order)
	}
	p.order = slices.Insert(p.order, at, i)
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
	c.port.w.line(trace.Internal, c.port.node.name, c.p.node.name, "connection breaks: %s", why)
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
