package staged

import (
	"sync"

	"lightpath/shim/stream"
)

// worker runs the steps of a communicator's launches, in the order in which streams reach them. Its goroutine exists
// while there is work. Hot path: it allocates only when the queue grows.
type worker struct {
	loop func() // run

	mu      sync.Mutex
	queue   []*launch // a ring: n from first
	first   int
	n       int
	running bool      // a goroutine runs steps, or a driver's thread begins one (see submit)
	begun   *launch   // its step was begun; the goroutine continues with it first
	spare   []*launch // unused launches
	open    bool      // false after close: leave drops launches instead of keeping them
}

// take returns an unused launch, which the caller holds.
func (st *state) take() *launch {
	w := &st.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.spare); n > 0 {
		l := w.spare[n-1]
		w.spare = w.spare[:n-1]
		l.holders = 1
		return l
	}
	l := &launch{state: st, holders: 1}
	l.token = stream.AddPlace(l)
	return l
}

// hold keeps a launch until one more leave.
func (w *worker) hold(l *launch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.holders++
}

// leave takes back a launch after its last holder has left it.
func (w *worker) leave(l *launch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.holders--; l.holders > 0 {
		return
	}
	if w.open {
		w.spare = append(w.spare, l)
	} else {
		stream.DropPlace(l.token)
	}
}

// close frees the spare launches. The others are freed when their streams have reached them.
func (w *worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.spare {
		stream.DropPlace(l.token)
	}
	w.spare, w.open = nil, false
}

// Come implements [stream.Place]: the stream has reached the next step.
func (l *launch) Come(int) { l.state.worker.submit(l) }

// submit runs the next step of a launch. If no other step is pending, submit begins it here, on the driver's thread.
// Most short steps also end here: waking a goroutine would take longer than the step.
func (w *worker) submit(l *launch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		w.enqueue(l)
		return
	}
	w.running = true
	w.mu.Unlock()
	over := l.try()
	w.mu.Lock()
	if !over {
		w.begun = l
	}
	if w.running = !over || w.n > 0; w.running {
		go w.loop()
	}
}

// enqueue queues the next step of a launch. The caller holds w.mu.
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
		l.step()
	}
}

// next returns the launch whose step the goroutine runs next. If there is none, it returns nil and the goroutine ends.
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
