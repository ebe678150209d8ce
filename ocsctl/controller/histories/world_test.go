package histories

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/plans/circuit"
)

const (
	jobs     = 3
	jobPorts = 2
	ports    = jobs * jobPorts
	planes   = 2

	journalTimeout = 4 * time.Millisecond
	settleTimeout  = 3 * time.Millisecond

	// patience bounds waits that a correct controller ends in milliseconds.
	patience = time.Minute
)

// world is a fabric, its clients, and the controllers that rule it one after the other.
type world struct {
	t      *testing.T
	seed   uint64
	config controller.Config
	panel  *panel
	disk   *disk
	beside *beside // leases have the ports of their job; nil: all ports
	// between is put between each controller and its clients; nil: nothing is.
	between func(controller.Controller) controller.Controller

	clock   atomic.Int64 // of the history: it counts starts and ends of operations
	behind  atomic.Int64 // publications of planes whose journal has lost changes
	mu      sync.Mutex
	changed *sync.Cond
	now     *life // nil before the first controller
	over    bool
	ops     []operation
	told    map[news]bool
}

// news is a publication that a rank got.
type news struct {
	life, plane int
	epoch       uint32
}

// life is the time of one controller.
type life struct {
	number int
	core   *controller.Core
	api    controller.Controller
	pen    *pen
	left   atomic.Int64  // operators' requests until the controller ends
	stall  int64         // the journal stalls when so many requests are left; -1: it does not
	ending chan struct{} // closed when none is left
	closed int64         // when it had ended, on the history's clock
	lost   []string      // the journal had lost changes before: by plane, why the plane is disabled
}

// operation is part of a history.
type operation struct {
	life      *life
	client    int
	in        input
	out       output
	call, end int64
}

// Numbers of clients in pictures of a history; ranks follow.
const (
	nature = iota // observers and takeovers
	firstOperator
	operators = 3
	firstJob  = firstOperator + operators
)

func newWorld(t *testing.T, seed uint64) *world {
	at := circuit.Shift(ports, 1)
	w := &world{t: t, seed: seed, panel: newPanel(seed, at, planes), told: map[news]bool{}}
	w.changed = sync.NewCond(&w.mu)
	w.disk = &disk{dice: newDice(seed, 2), faults: some, planes: make([]journal.State, planes)}
	for j := range w.disk.planes {
		w.disk.planes[j].Baseline(controller.Recovered{Map: at})
	}
	w.config = controller.Config{
		Ports: ports, Planes: make([]controller.PlaneConfig, planes), Device: w.panel, Grace: patience,
		JournalTimeout: journalTimeout, SettleTimeout: settleTimeout, Forgive: seed%3 == 0,
	}
	for j := range w.config.Planes {
		w.config.Planes[j] = controller.PlaneConfig{Name: fmt.Sprint("p", j), Reconfig: 100 * time.Microsecond}
	}
	if seed%4 == 1 {
		w.config.Device = polled{w.panel}
	}
	return w
}

func (w *world) tick() int64 { return w.clock.Add(1) }

// run rules with one controller after the other until they have ended.
func (w *world) run(controllers, requests int) {
	var clients sync.WaitGroup
	for c := range operators {
		o := &operator{world: w, number: firstOperator + c, dice: newDice(w.seed, uint64(10+c))}
		clients.Go(o.run)
	}
	for c := range jobs {
		j := newJob(w, c)
		clients.Go(j.run)
	}
	for n := range controllers {
		w.rule(n+1, requests)
	}
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.changed.Broadcast()
	clients.Wait()
}

// rule starts a controller, and ends it after a number of requests of operators.
func (w *world) rule(number, requests int) {
	l := &life{number: number, ending: make(chan struct{})}
	if w.disk.lose() {
		for j := range w.disk.planes {
			l.lost = append(l.lost, w.disk.planes[j].Disabled)
		}
	}
	if number%2 == 1 {
		w.disk.save()
	}
	l.pen = w.disk.open()
	l.left.Store(int64(requests/2 + w.disk.dice.n(requests)))
	if l.stall = -1; w.disk.dice.percent(w.disk.faults.cut) {
		l.stall = 10
	}
	c := w.config
	c.Name, c.Token = fmt.Sprint("controller ", number), uint64(number)
	c.Journal, c.Leading = l.pen, l.pen.leading
	for j := range w.disk.planes {
		c.Recovered = append(c.Recovered, w.disk.planes[j].Next())
	}
	began := w.tick()
	var err error
	if l.core, err = controller.Start(c); err != nil {
		w.t.Fatal(err)
	}
	sees := &observer{world: w, life: l, began: began}
	if _, err := l.core.Attach(sees, controller.AttachOptions{Port: -1}); err != nil {
		w.t.Fatal(err)
	}
	l.api = l.core
	if w.between != nil {
		l.api = w.between(l.core)
	}
	w.mu.Lock()
	w.now = l
	w.mu.Unlock()
	w.changed.Broadcast()
	<-l.ending
	l.pen.cut()
	l.core.Close()
	l.closed = w.tick()
	w.panel.interrupt()
}

// requested counts a request of an operator. The last one cuts the journal at once, so that its answer may be ahead of
// the journal's.
func (l *life) requested() {
	switch l.left.Add(-1) {
	case l.stall:
		l.pen.stall()
	case 0:
		l.pen.cut()
		close(l.ending)
	}
}

// next waits for the controller after last; nil: there are no more.
func (w *world) next(last *life) *life {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.now == last && !w.over {
		w.changed.Wait()
	}
	if w.now == last {
		return nil
	}
	return w.now
}

// add adds an operation that ends now to the history.
func (w *world) add(l *life, client int, call int64, in input, out output) {
	w.addUntil(l, client, call, w.tick(), in, out)
}

func (w *world) addUntil(l *life, client int, call, end int64, in input, out output) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops = append(w.ops, operation{l, client, in, out, call, end})
}

// tell notes that a rank was told an epoch.
func (w *world) tell(n news) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[n] = true
}

// observer records what a controller publishes.
type observer struct {
	world *world
	life  *life
	began int64
	known [planes]bool
}

func (o *observer) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	in, call := input{plane: plane, kind: published}, o.world.tick()
	if !o.known[plane] {
		o.known[plane] = true
		in.kind, call = takeover, o.began
	}
	out := output{epoch: epochs[0], m: key(m), actual: o.world.panel.actual(plane)}
	switch {
	case fault == nil:
	case strings.Contains(fault.Error(), "has not reported its map"):
		out.health = unread
	case strings.Contains(fault.Error(), "the journal has lost changes"):
		o.world.behind.Add(1)
		out.health = broken
	default:
		out.health = broken
	}
	o.world.add(o.life, nature, call, in, out)
}

func (o *observer) Refused(int, uint64, error)    {}
func (o *observer) Granted(uint64, uint64, error) {}
func (*observer) Wanted(uint64, uint64)           {}
func (o *observer) Closed(error)                  {}

// history returns the operations as porcupine wants them. An operation without an answer may take effect until its
// controller has ended.
func (w *world) history() []porcupine.Operation {
	var all []porcupine.Operation
	ops := w.ops
	for _, o := range ops {
		o.in.shared = w.told[news{o.life.number, o.in.plane, o.out.epoch}]
		switch {
		case o.out.answer == unknown:
			o.end = max(o.end, o.life.closed)
		case o.in.kind == acquire && o.out.answer == failed:
			for _, x := range ops {
				o.in.busy = o.in.busy || x.in.plane == o.in.plane && (x.in.kind == set || x.in.kind == enable) &&
					x.call < o.end && o.call < x.until()
			}
		case o.in.kind == takeover:
			if o.life.lost != nil {
				o.in.lost, o.in.text = true, o.life.lost[o.in.plane]
			}
			for _, x := range ops {
				if x.in.plane == o.in.plane && x.life.number == o.life.number-1 && (x.in.kind == set || x.in.kind == move) &&
					x.out.answer != done {
					o.in.moves = append(o.in.moves, x.in.target)
				}
			}
		}
		all = append(all, porcupine.Operation{ClientId: o.client, Input: o.in, Call: o.call, Output: o.out, Return: o.end})
	}
	return all
}

// until returns the last time at which an operation may take effect.
func (o *operation) until() int64 {
	if o.out.answer == unknown {
		return math.MaxInt64
	}
	return o.end
}
