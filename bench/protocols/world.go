package protocols

import (
	"container/heap"
	"fmt"
	"time"

	"lightpath/bench/protocols/trace"
)

// world is a fabric in simulated time: processes of controllers, etcd, switches, and jobs of ranks. Everything that
// happens is an event of its queue.
type world struct {
	cfg    Config
	choose Chooser
	clock  int64 // nanoseconds
	events events
	number uint64   // of the last event
	drawn  uint64   // choices
	local  []func() // in this step
	result *Result

	store     *store
	processes []*process
	switches  []*opticalSwitch
	planes    []*truth
	ports     []*port
	jobs      []*job
	groups    map[uint64]*group // that have not failed
	holders   uint64            // number of the last communicator

	nodes   []*node
	fault   *faults
	healing int64 // since when all faults have ended; 0: they have not
	checked int64 // when the end of the run was last looked for
}

// event is something that will happen.
type event struct {
	at     int64
	number uint64
	do     func()
}

// events is a heap of events, the next first.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}

// node is a process, a switch or etcd: something with a place in the network.
type node struct {
	name    string
	index   int
	paused  span     // it stands still
	backlog []func() // messages that arrived during the pause
	blocked []span   // by other node: no message from there arrives
	skew    int64    // of its clock
}

// span is a time, or the zero value.
type span struct{ from, to int64 }

// has reports whether a time is in the span.
func (s span) has(t int64) bool { return t < s.to }

func newWorld(cfg Config, c Chooser) (*world, error) {
	w := &world{cfg: cfg, clock: int64(time.Hour), groups: map[uint64]*group{},
		result: &Result{Coverage: Coverage{}}}
	w.choose = counting{c, &w.drawn}
	w.fault = newFaults(w)
	w.store = newStore(w)
	for j := range cfg.Planes {
		s, err := newSwitch(switchConfig{Name: fmt.Sprint("switch ", j), Planes: 1, Ports: cfg.Ports,
			Fences: cfg.Unfenced == 0}, func() int64 { return w.clock }, w.choose)
		if err != nil {
			return nil, err
		}
		w.switches = append(w.switches, s)
		w.planes = append(w.planes, newTruth(w, j))
	}
	for i := range cfg.Controllers {
		w.processes = append(w.processes, newProcess(w, i))
	}
	for p := range cfg.Ports {
		w.ports = append(w.ports, newPort(w, p))
	}
	for i := range cfg.Jobs {
		w.jobs = append(w.jobs, newJob(w, i))
	}
	for _, n := range w.nodes {
		n.blocked = make([]span, len(w.nodes))
	}
	return w, nil
}

// counting counts choices.
type counting struct {
	Chooser
	n *uint64
}

// Choose implements [Chooser].
func (c counting) Choose(n int) int {
	*c.n++
	return c.Chooser.Choose(n)
}

// newNode adds a node.
func (w *world) newNode(name string) *node {
	n := &node{name: name, index: len(w.nodes)}
	w.nodes = append(w.nodes, n)
	return n
}

// Limits of a run: an end that does not come is a violation.
const (
	maxEvents   = 20_000 // per operation
	extraEvents = 3_000_000
)

// run processes events until the run ends.
func (w *world) run() {
	for _, p := range w.processes {
		p.start()
	}
	for _, j := range w.jobs {
		j.start()
	}
	w.operate()
	limit := uint64(w.cfg.Operations)*maxEvents + extraEvents
	for w.result.Violation == nil && !w.served() {
		if w.events.Len() == 0 || w.number > limit {
			w.violate(waitsForever, "the run does not end: %d operations in %v", w.result.Operations, w.time())
			break
		}
		w.next()
		w.fault.step()
	}
	w.result.Time = w.time()
	for _, p := range w.processes {
		p.crash()
	}
}

// next runs the next event.
func (w *world) next() {
	e := heap.Pop(&w.events).(event)
	w.clock = e.at
	w.result.Trace.Mix(uint64(e.at))
	w.result.Trace.Mix(w.drawn)
	w.step(e.do)
}

// step calls do, and then everything that follows from it at this time.
func (w *world) step(do func()) {
	do()
	w.follow()
	for _, p := range w.processes {
		p.step()
	}
}

// follow calls what has been put off until later in this step.
func (w *world) follow() {
	for len(w.local) > 0 {
		f := w.local[0]
		w.local = w.local[1:]
		f()
	}
}

// time returns the time since the run began.
func (w *world) time() time.Duration { return time.Duration(w.clock) - time.Hour }

// at calls do at a time.
func (w *world) at(t int64, do func()) {
	w.number++
	heap.Push(&w.events, event{max(t, w.clock), w.number, do})
}

// after calls do after a time.
func (w *world) after(d time.Duration, do func()) { w.at(w.clock+int64(d), do) }

// reach calls do at a node: now if the node runs, or else at the end of its pause.
func (w *world) reach(n *node, do func()) {
	if !w.running(n) {
		n.backlog = append(n.backlog, do)
		return
	}
	do()
}

// running reports whether a node runs.
func (w *world) running(n *node) bool { return !n.paused.has(w.clock) }

// pause makes a node stand still. Afterwards the node handles its backlog.
func (w *world) pause(n *node, d time.Duration) {
	if !w.running(n) {
		return
	}
	n.paused = span{w.clock, w.clock + int64(d)}
	w.at(n.paused.to, func() { w.wake(n) })
}

// wake makes a node handle its backlog.
func (w *world) wake(n *node) {
	for len(n.backlog) > 0 && w.running(n) {
		do := n.backlog[0]
		n.backlog = n.backlog[1:]
		do()
	}
}

// delays are the times of messages, the most frequent first.
var delays = [16]time.Duration{30e3, 20e3, 25e3, 35e3, 40e3, 50e3, 60e3, 80e3, 100e3, 150e3, 200e3, 300e3, 500e3, 1e6,
	5e6, 80e6}

func (w *world) delay() time.Duration { return delays[w.choose.Choose(len(delays))] }

// pipe carries messages from a node to another, in order.
type pipe struct {
	w        *world
	from, to *node
	last     int64 // when the last message arrives
	broken   int   // how often it has broken: then messages on their way are lost
}

// carry makes do happen at the other end.
func (p *pipe) carry(do func()) {
	at := max(p.w.clock, p.to.blocked[p.from.index].to) + int64(p.w.delay())
	p.last = max(at, p.last)
	broken := p.broken
	p.w.at(p.last, func() {
		p.w.reach(p.to, func() {
			if p.broken == broken {
				do()
			}
		})
	})
}

// cut loses the messages on their way.
func (p *pipe) cut() { p.broken, p.last = p.broken+1, 0 }

// open reports whether messages arrive.
func (p *pipe) open() bool { return !p.to.blocked[p.from.index].has(p.w.clock) }

// silent returns for how long no message has come, since the sender stands still or the network loses them.
func (p *pipe) silent() time.Duration {
	since := p.w.clock
	for _, s := range [2]span{p.from.paused, p.to.blocked[p.from.index]} {
		if s.has(p.w.clock) {
			since = min(since, s.from)
		}
	}
	return time.Duration(p.w.clock - since)
}

// line adds a line to the trace.
func (w *world) line(k trace.Kind, from, to, text string, args ...any) {
	if !w.cfg.Lines {
		return
	}
	l := trace.Line{Sent: w.time(), At: w.time(), Kind: k, From: from, To: to, Text: text}
	if len(args) > 0 {
		l.Text = fmt.Sprintf(text, args...)
	}
	w.result.Trace.Lines = append(w.result.Trace.Lines, l)
}

// message adds a message that has arrived now.
func (w *world) message(p *pipe, sent time.Duration, what any) {
	if !w.cfg.Lines {
		return
	}
	if p.from == p.to {
		w.line(trace.Internal, p.from.name, "", "%s", describe(what))
		return
	}
	w.result.Trace.Lines = append(w.result.Trace.Lines,
		trace.Line{Sent: sent, At: w.time(), Kind: trace.Message, From: p.from.name, To: p.to.name, Text: describe(what)})
}

// describe returns a short text for a message.
func describe(m any) string {
	switch m := m.(type) {
	case string:
		return m
	case hello:
		return fmt.Sprintf("hello, holds %v", m.held)
	case welcome:
		return fmt.Sprintf("welcome, token %d", m.token)
	case news:
		if m.fault != nil {
			return fmt.Sprintf("plane %d epoch %d: %v", m.plane, m.epoch, m.fault)
		}
		if m.epochs != nil {
			return fmt.Sprintf("plane %d epochs %d: %v", m.plane, m.epochs, m.m)
		}
		return fmt.Sprintf("plane %d epoch %d: %v", m.plane, m.epoch, m.m)
	case refused:
		return fmt.Sprintf("refused on plane %d: %v", m.plane, m.why)
	case agree:
		return fmt.Sprintf("post plane %d epoch %d holder %d: %v", m.plane, m.epoch, m.holder, m.target)
	case acquire:
		return fmt.Sprintf("request %d: planes %#x for holder %d", m.id, m.Mask, m.Holder)
	case wanted:
		return fmt.Sprintf("holder %d: planes %#x are wanted", m.holder, m.mask)
	case release:
		return fmt.Sprintf("release %#x of holder %d", m.mask, m.holder)
	case grant:
		if m.err != nil {
			return fmt.Sprintf("request %d gets no planes: %v", m.id, m.err)
		}
		return fmt.Sprintf("request %d gets planes %#x", m.id, m.mask)
	}
	return fmt.Sprint(m)
}
