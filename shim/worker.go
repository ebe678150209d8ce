package shim

import (
	"sync"

	"lightpath/shim/comm"
	"lightpath/shim/device"
)

// worker runs the steps of a communicator's launches, in the order in which streams come to them. Its goroutine exists while there is
// work. Hot path: no allocation, but for a queue that has never been as long.
type worker struct {
	comms []*comm.Core // the communicator
	loop  func()       // run

	mu      sync.Mutex
	queue   []*launch // a ring: n from first
	first   int
	n       int
	running bool      // a goroutine, or whoever begins a step (see submit)
	begun   *launch   // whose step the goroutine goes on with first
	spare   []*launch // that nobody uses
	open    bool      // to launches that are spare
}

// take returns a launch that nobody uses.
func (w *worker) take(c *comm.Core) *launch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.spare); n > 0 {
		l := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return l
	}
	l := &launch{dev: onDeviceOf(c)}
	l.token = launches.add(l)
	if w.loop == nil {
		w.comms, w.loop, w.open = []*comm.Core{c}, w.run, true
	}
	return l
}

// give gives back a launch that no stream will come to.
func (w *worker) give(l *launch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open {
		w.spare = append(w.spare, l)
	} else {
		launches.remove(l.token)
	}
}

// close gives the spare launches back. Those in use follow when their streams have come to them.
func (w *worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.spare {
		launches.remove(l.token)
	}
	w.spare, w.open = nil, false
}

// submit has the next step of a launch run. Where nothing is before it, it is begun here, on the driver's thread, and most
// short ones end here: a goroutine would take longer to wake up than they take.
func (w *worker) submit(l *launch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		w.enqueue(l)
		return
	}
	w.running = true
	w.mu.Unlock()
	over := l.try(w.comms)
	w.mu.Lock()
	if !over {
		w.begun = l
	}
	if w.running = !over || w.n > 0; w.running {
		go w.loop()
	}
}

// enqueue has the next step of a launch follow those that are before it. w.mu is held.
func (w *worker) enqueue(l *launch) {
	if w.n == len(w.queue) {
		longer := make([]*launch, max(2*w.n, 16))
		for i := range w.n {
			longer[i] = w.queue[(w.first+i)%w.n]
		}
		w.queue, w.first = longer, 0
	}
	w.queue[(w.first+w.n)%len(w.queue)] = l
	w.n++
}

func (w *worker) run() {
	for l := w.next(); l != nil; l = w.next() {
		l.step(w.comms)
	}
}

// next returns whose step the goroutine is to run, nil where there is none: then it ends.
func (w *worker) next() *launch {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.begun
	switch {
	case l != nil:
		w.begun = nil
	case w.n == 0:
		w.running = false
	default:
		l = w.queue[w.first]
		w.queue[w.first] = nil
		w.first = (w.first + 1) % len(w.queue)
		w.n--
	}
	return l
}

// launchTable gives launches numbers that a driver can carry: a place, and how often that has been given. A number of a launch
// that is gone means nothing. Safe for concurrent use.
type launchTable struct {
	mu    sync.Mutex
	all   []numbered
	spare []uint32 // places
}

type numbered struct {
	l          *launch
	generation uint32
}

var launches launchTable

// Launches is what a [device.Driver] tells how far streams have come.
func Launches() device.Handler { return &launches }

func (t *launchTable) add(l *launch) uintptr {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.spare); n > 0 {
		at := t.spare[n-1]
		t.spare = t.spare[:n-1]
		t.all[at].l = l
		return uintptr(t.all[at].generation)<<32 | uintptr(at)
	}
	t.all = append(t.all, numbered{l, 1})
	return 1<<32 | uintptr(len(t.all)-1)
}

// find returns the launch of a number, nil for none. The lock is held.
func (t *launchTable) find(token uintptr) *launch {
	at, generation := token&(1<<32-1), uint32(token>>32)
	if at >= uintptr(len(t.all)) || t.all[at].generation != generation {
		return nil
	}
	return t.all[at].l
}

func (t *launchTable) remove(token uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.find(token) != nil {
		at := uint32(token)
		t.all[at] = numbered{nil, t.all[at].generation + 1}
		t.spare = append(t.spare, at)
	}
}

// Ready implements device.Handler. Hot path: no allocation.
func (t *launchTable) Ready(token uintptr) {
	switch {
	case token&gdrToken != 0:
		gdrReady(token)
		return
	case token&interposedToken != 0:
		interposedReady(token)
		return
	}
	t.mu.Lock()
	l := t.find(token)
	t.mu.Unlock()
	if l != nil {
		l.dev.worker.submit(l)
	}
}

// Forget implements device.Handler: a captured launch will not run again.
func (t *launchTable) Forget(token uintptr) {
	if token&interposedToken != 0 {
		keepsakes.forget(token)
		return
	}
	t.mu.Lock()
	l := t.find(token)
	t.mu.Unlock()
	if l != nil {
		l.forget()
	}
}
