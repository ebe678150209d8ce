// Package sleep is how the endpoints over shared memory wait: on a doorbell, without
// missing their own end.
//
// Layer: inside collectives/transport.
package sleep

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/internal/shmring"
)

// Sleeper is the waiting part of a [transport.Endpoint]: Arm, Wait and Wake are as
// documented there. Wake, Close and Closed may be called from any goroutine. Nothing but
// Wait and Close blocks; nothing allocates.
type Sleeper struct {
	bell    *shmring.Doorbell
	closed  atomic.Bool
	waiting atomic.Int32 // goroutines inside Wait
	once    sync.Once
}

// Use sets the doorbell, before anything else.
func (s *Sleeper) Use(bell *shmring.Doorbell) { s.bell = bell }

// Arm implements [transport.Endpoint].
func (s *Sleeper) Arm() uint32 { return s.bell.Arm() }

// Wait implements [transport.Endpoint]. After Close it returns at once.
func (s *Sleeper) Wait(armed uint32, d time.Duration) {
	s.waiting.Add(1)
	if !s.closed.Load() {
		s.bell.Wait(armed, d)
	}
	s.waiting.Add(-1)
}

// Wake implements [transport.Endpoint].
func (s *Sleeper) Wake() { s.bell.Ring() }

// Closed reports whether Close was called.
func (s *Sleeper) Closed() bool { return s.closed.Load() }

// Close ends all waiting, for good, and then calls last: nobody is on the doorbell any
// more, so its memory may go. Only the first call does this; others wait for it to be done.
func (s *Sleeper) Close(last func()) {
	s.once.Do(func() {
		s.closed.Store(true)
		s.bell.Ring()
		for s.waiting.Load() != 0 {
			s.bell.Ring()
			runtime.Gosched()
		}
		last()
	})
}
