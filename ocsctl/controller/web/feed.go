package web

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"lightpath/ocsctl/controller"
)

// Limits of the feed.
const (
	beat       = 250 * time.Millisecond // interval between two reads of the state
	remembered = 4096                   // events
	batch      = 256                    // largest number of events per beat
	backlog    = 16                     // largest number of unread messages of a reader
	maxReaders = 64
)

// feed follows the controller in charge, and passes changes to the readers of /api/events. It does so once per beat,
// so that planes that switch every few microseconds cost no more than others.
type feed struct {
	s         *Server
	snapshots snapshots

	mu      sync.Mutex
	recent  []controller.Event   // the last ones, in order
	unsent  int                  // events that came since the last beat
	readers map[*reader]struct{} // nil: closed
}

// reader is a client of /api/events. Its channel is closed when it is disconnected.
type reader struct {
	messages chan message
	knows    bool // it has a whole state
}

// message is an event of the stream in the sense of the HTML standard.
type message struct {
	event string
	data  []byte
}

func newFeed(s *Server) *feed {
	return &feed{s: s, readers: make(map[*reader]struct{})}
}

// Run follows the controller until ctx is done. It is called once.
func (s *Server) Run(ctx context.Context) {
	f := s.feed
	var watched controller.Controller
	cancel := func() {}
	defer func() { cancel() }()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var last state
	for {
		if c, _ := s.o.Controller(); c != watched {
			cancel()
			if watched, cancel = c, func() {}; c != nil {
				cancel = c.Watch(f.note)
			}
		}
		last = f.tell(ctx, last)
		select {
		case <-ctx.Done():
			f.close()
			return
		case <-tick.C:
		}
	}
}

// note adds an event of the core.
func (f *feed) note(e controller.Event) {
	f.s.metrics.observe(&e, f.s.planeName(e.Plane))
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.recent) == remembered {
		f.recent = slices.Delete(f.recent, 0, remembered/4) // a quarter at once: removing single events would cost more
	}
	f.recent = append(f.recent, e)
	f.unsent++
}

// tell sends changes to the readers, and returns the state that they then have. A new reader gets the whole state.
func (f *feed) tell(ctx context.Context, last state) state {
	f.mu.Lock()
	fresh := f.recent[len(f.recent)-min(f.unsent, len(f.recent)):]
	skipped := f.unsent - min(len(fresh), batch)
	fresh = slices.Clone(fresh[max(0, len(fresh)-batch):])
	f.unsent = 0
	readers := len(f.readers)
	f.mu.Unlock()
	if readers == 0 {
		return nil
	}
	if len(fresh) > 0 {
		f.send(encode("history", historyMessage{Events: entries(fresh), Skipped: skipped}))
	}
	whole := encode("status", f.s.status(ctx))
	now := decompose(whole.data)
	f.sendState(whole, now.since(last))
	return now
}

// historyMessage holds the events of one beat.
type historyMessage struct {
	Events  []Entry `json:"events"`            // oldest first
	Skipped int     `json:"skipped,omitempty"` // events before them that are only in the history
}

func encode(event string, v any) message {
	data, err := json.Marshal(v)
	if err != nil { // cannot happen: all values can be encoded
		data, _ = json.Marshal(problem{err.Error()})
		event = "problem"
	}
	return message{event, data}
}

// send passes m to all readers.
func (f *feed) send(m message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		f.pass(r, m)
	}
}

// sendState passes the state to new readers, and what has changed to the others. nil: nothing has changed.
func (f *feed) sendState(whole message, changed state) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change := encode("change", changed)
	for r := range f.readers {
		switch {
		case !r.knows:
			r.knows = true
			f.pass(r, whole)
		case changed != nil:
			f.pass(r, change)
		}
	}
}

// pass passes m to a reader, and disconnects one with unread messages. The caller holds f.mu.
func (f *feed) pass(r *reader, m message) {
	select {
	case r.messages <- m:
	default:
		close(r.messages)
		delete(f.readers, r)
		f.s.metrics.cut.Inc()
	}
}

// join adds a reader, unless there are too many or the feed has ended.
func (f *feed) join() (*reader, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == nil || len(f.readers) >= maxReaders {
		return nil, false
	}
	r := &reader{messages: make(chan message, backlog)}
	f.readers[r] = struct{}{}
	return r, true
}

func (f *feed) leave(r *reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, r)
}

// close disconnects all readers and accepts no more.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		close(r.messages)
	}
	f.readers = nil
}

// count returns the number of readers.
func (f *feed) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.readers)
}

// remember answers a query from the events of this process, newest first.
func (f *feed) remember(q controller.Query) []controller.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []controller.Event
	for i := len(f.recent) - 1; i >= 0 && (q.Limit == 0 || len(found) < q.Limit); i-- {
		if q.Match(&f.recent[i]) {
			found = append(found, f.recent[i])
		}
	}
	return found
}
