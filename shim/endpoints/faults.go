package endpoints

import (
	"sync"
	"time"

	"lightpath/collectives/transport"
	"lightpath/shim/status"
)

// Faults returns the signs of faults that an endpoint sees now. e may be nil.
func Faults(e transport.Endpoint) (all []status.Fault) {
	if s, wrapped := e.(*steeredEndpoint); wrapped {
		e = s.Endpoint
	}
	f, ok := e.(transport.FaultFinder)
	if !ok {
		return nil
	}
	for _, one := range f.Faults() {
		all = append(all, status.Fault{Plane: one.Plane, Peer: one.Peer, Seen: one.Seen})
	}
	return all
}

// SilentAfter is the time without an answer after which a controller counts as silent.
const SilentAfter = time.Second

// probe is a question to the controller, at most one at a time.
type probe struct {
	mu    sync.Mutex
	since time.Time     // time of the first unanswered question; zero: the controller answered the last one
	done  chan struct{} // closed when the question has ended; nil: no question is open
	err   error         // of the last question
}

// Silent asks the controller whether it answers, and reports since when it does not. It waits at most that long for an
// answer; a later call returns what has come of the question.
func (a *Controller) Silent(wait time.Duration) (since time.Time, silent bool) {
	p := &a.probe
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		if p.since.IsZero() {
			p.since = time.Now()
		}
		p.done = make(chan struct{})
		go p.ask(a.Client, p.done)
	}
	if done := p.done; wait > 0 && !p.silent() {
		p.mu.Unlock()
		select {
		case <-done:
		case <-time.After(wait):
		}
		p.mu.Lock()
	}
	return p.since, p.silent()
}

// silent reports whether the controller has failed to answer. The caller holds mu.
func (p *probe) silent() bool {
	return !p.since.IsZero() && (p.err != nil || time.Since(p.since) >= SilentAfter)
}

// ask asks one question.
func (p *probe) ask(client Client, done chan struct{}) {
	_, err := client.Waiting(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done, p.err = nil, err; err == nil {
		p.since = time.Time{}
	}
	close(done)
}
