package staged

import (
	"sync"

	"lightpath/shim/comm"
	"lightpath/shim/stream"
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
	l := &launch{state: slot.Of(c)}
	l.token = stream.AddPlace(l)
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
		stream.DropPlace(l.token)
	}
}

// close gives the spare launches back. Those in use follow when their streams have come to them.
func (w *worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.spare {
		stream.DropPlace(l.token)
	}
	w.spare, w.open = nil, false
}

// Come implements [stream.Place]: the stream has come to the next step.
func (l *launch) Come(int) { l.state.worker.submit(l) }

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
