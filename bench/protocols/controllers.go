package protocols

import (
	"fmt"
	"math"
	"slices"
	"time"

	"lightpath/bench/protocols/trace"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/switches"
	"lightpath/plans/circuit"
)

// process is a controller process. It campaigns, opens the switches, and rules with a core until its rule ends.
type process struct {
	w        *world
	node     *node
	up       bool
	gen      int // counts its starts: an event of an earlier life does nothing
	rule     *rule
	dev      *switches.Manual
	core     *controller.Core // nil: it does not rule
	began    int64            // when the core began
	watcher  *watcher
	sessions []*session // by port
	nextID   uint64     // of a session
	wakes    int64      // the time of its next step; 0: none is due
	planned  int64      // of the next event for a step
	woken    bool       // a message or an event has reached it

	toStore, fromStore pipe
	toSwitch, fromSw   []pipe // by switch
}

func newProcess(w *world, i int) *process {
	p := &process{w: w, node: w.newNode(fmt.Sprint("controller ", i)), sessions: make([]*session, w.cfg.Ports)}
	p.toStore = pipe{w: w, from: p.node, to: w.store.node}
	p.fromStore = pipe{w: w, from: w.store.node, to: p.node}
	for _, t := range w.planes {
		sw := w.switchNode(t.plane)
		p.toSwitch = append(p.toSwitch, pipe{w: w, from: p.node, to: sw})
		p.fromSw = append(p.fromSw, pipe{w: w, from: sw, to: p.node})
	}
	return p
}

// switchNode returns the node of a plane's switch.
func (w *world) switchNode(plane int) *node {
	name := w.switches[plane].name
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return w.newNode(name)
}

// now is the process's clock.
func (p *process) now() int64 { return p.w.clock + p.node.skew }

// after calls f at the process after a time, unless the process has ended.
func (p *process) after(d time.Duration, f func()) {
	gen := p.gen
	p.w.after(d, func() {
		p.w.reach(p.node, func() {
			if p.gen == gen {
				f()
			}
		})
	})
}

func (p *process) start() {
	if p.up {
		return
	}
	p.up, p.gen = true, p.gen+1
	p.w.line(trace.Internal, p.node.name, "", "starts")
	p.campaign()
}

// crash ends the process. Messages on their way to it and to ranks are lost. Those to a switch or to the store arrive.
func (p *process) crash() {
	if !p.up {
		return
	}
	p.up, p.gen = false, p.gen+1
	p.node.backlog = nil
	p.shut()
	p.fromStore.cut()
	for j := range p.fromSw {
		p.fromSw[j].cut()
	}
}

// shut closes the core and the switches. Messages that they send while closing are dropped.
func (p *process) shut() {
	rule, core, dev := p.rule, p.core, p.dev
	p.rule, p.core, p.dev, p.watcher = nil, nil, nil, nil
	for port, x := range p.sessions {
		if x != nil {
			p.sessions[port] = nil
			x.over = true
			x.drop()
		}
	}
	if dev != nil {
		dev.OnSettled(nil)
	}
	if core != nil {
		core.Close()
	}
	if dev != nil {
		if err := dev.Close(); err != nil {
			p.w.violate(panics, "%s: close: %v", p.node.name, err)
		}
	}
	if rule != nil && rule.over == nil {
		rule.end("the process has ended")
	}
}

// lead begins a rule: it opens the switches.
func (p *process) lead(r *rule) {
	p.rule = r
	p.w.line(trace.Internal, p.node.name, "", "leads with token %d", r.token)
	r.renew()
	gen := p.gen
	dial := func(s *opticalSwitch) wire { return &switchWire{p: p, rule: r, gen: gen, plane: p.w.planeOf(s)} }
	dev, err := newPlanes(p.w.switches, p.now, dial, func(c *switches.Config) { c.Token = r.token })
	if err != nil {
		p.w.violate(panics, "%s: %v", p.node.name, err)
		return
	}
	p.dev = dev
	p.touch()
}

func (w *world) planeOf(s *opticalSwitch) int {
	for j := range w.switches {
		if w.switches[j] == s {
			return j
		}
	}
	return -1
}

// rules starts the core once the switches have been read.
func (p *process) rules() {
	c := controller.Config{
		Name: p.node.name, Ports: p.w.cfg.Ports, Planes: make([]controller.PlaneConfig, p.w.cfg.Planes), Device: p.dev,
		Journal: p.rule, Token: p.rule.token, LastSeq: p.rule.seq, Leading: p.rule.leading, SettleTimeout: time.Minute,
	}
	for j := range p.rule.local {
		if p.rule.local[j].Recorded() && c.Recovered == nil {
			c.Recovered = make([]controller.Recovered, p.w.cfg.Planes)
		}
	}
	for j := range c.Recovered {
		c.Recovered[j] = p.rule.local[j].Next()
	}
	core, err := controller.NewManual(c, p.now)
	if err != nil {
		p.w.violate(panics, "%s: %v", p.node.name, err)
		return
	}
	p.core, p.began = core, p.w.clock
	p.watcher = &watcher{p: p, seen: make([]news, p.w.cfg.Planes)}
	if _, err := core.Attach(p.watcher, controller.AttachOptions{Port: -1, Who: "observer"}); err != nil {
		p.rule.end(err.Error()) // a switch has seen a higher token
		p.touch()
		return
	}
	p.w.tookOver(p)
	p.watch()
}

// watch records the maps of planes without a record, and ends the rule if the core has given up.
func (p *process) watch() {
	core := p.core
	if core == nil {
		return
	}
	shot, err := core.Snapshot()
	if err != nil {
		return
	}
	if !shot.Leader {
		p.rule.end("the core has given up")
		p.touch()
		return
	}
	for j, pl := range shot.Planes {
		if p.rule.local[j].Map == nil && (pl.State == controller.Resident || pl.State == controller.Waiting) {
			p.rule.baseline(j, controller.Recovered{Epoch: pl.Epoch, Map: pl.Map})
		}
	}
	p.after(time.Second, func() {
		if p.core == core {
			p.watch()
		}
	})
}

// depose ends the rule, and campaigns again.
func (p *process) depose() {
	why := p.rule.over
	p.w.line(trace.Internal, p.node.name, "", "leads no more: %v", why)
	if p.core != nil {
		p.core.Resign(why)
	}
	rule := p.rule
	p.shut()
	p.request("resign", func() (any, bool) {
		if p.w.store.leader == rule {
			p.w.store.leader = nil
		}
		return nil, true
	}, func(any) {})
	p.campaign()
}

// noticing is how long a process takes to notice that its lease has ended.
var noticing = [4]time.Duration{0, 50e3, 1e6, 30e6}

// touch makes the process do a step at this time.
func (p *process) touch() { p.woken = true }

// step does all work that is due.
func (p *process) step() {
	if !p.woken && (p.wakes == 0 || p.wakes > p.w.clock) || !p.up || p.dev == nil || !p.w.running(p.node) {
		return
	}
	p.woken, p.wakes = false, 0
	switch rule := p.rule; {
	case rule.over != nil:
		p.depose()
		return
	case !rule.late && p.now() >= rule.until: // another goroutine notices
		rule.late = true
		p.after(noticing[p.w.choose.Choose(len(noticing))], func() {
			if p.rule == rule {
				_ = rule.leading()
				p.touch()
			}
		})
	}
	next := p.run()
	p.w.follow()
	if p.woken {
		p.w.after(0, func() {})
	}
	if next != math.MaxInt64 {
		p.wakes = max(next-p.node.skew, p.w.clock)
		if p.planned <= p.w.clock || p.wakes < p.planned {
			p.planned = p.wakes
			p.w.at(p.wakes, func() {})
		}
	}
}

// run has the device and the core do what is due, and returns the time of the next step.
func (p *process) run() (next int64) {
	for {
		next = math.MaxInt64
		if at := p.dev.Step(); !at.IsZero() {
			next = at.UnixNano()
		}
		if p.core == nil && p.dev.Ready() {
			p.rules()
		}
		if p.core == nil {
			return next
		}
		if next = min(next, p.core.Step()); next > p.now() {
			return next
		}
	}
}

// switchWire is a process's connection to a switch.
type switchWire struct {
	p     *process
	rule  *rule
	gen   int
	plane int
}

// ask implements [wire]. The message arrives also if the process has ended meanwhile.
func (x *switchWire) ask(what string, f func()) {
	w, to, sent := x.p.w, &x.p.toSwitch[x.plane], x.p.w.time()
	to.carry(func() {
		w.message(to, sent, what)
		w.planes[x.plane].writer = x.rule
		f()
	})
}

// answer implements [wire].
func (x *switchWire) answer(what string, f func()) {
	w, back, sent := x.p.w, &x.p.fromSw[x.plane], x.p.w.time()
	back.carry(func() {
		if x.p.gen == x.gen {
			w.message(back, sent, what)
			f()
			x.p.touch()
		}
	})
}

// watcher gets everything that a core publishes.
type watcher struct {
	p    *process
	seen []news // by plane
}

// Changed implements [controller.Sink].
func (x *watcher) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	n := news{plane, slices.Max(epochs), m, fault, epochs}
	x.p.w.planes[plane].published(x.p, &x.seen[plane], &n)
	x.seen[plane] = n
}

// Refused, Granted and Closed implement [controller.Sink].
func (*watcher) Refused(int, uint64, error)    {}
func (*watcher) Granted(uint64, uint64, error) {}
func (*watcher) Wanted(uint64, uint64)         {}
func (*watcher) Closed(error)                  {}
