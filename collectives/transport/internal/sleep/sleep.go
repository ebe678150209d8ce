package sleep

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/internal/shmring"
)

// Sleeper implements Arm, Wait and Wake of a [transport.Endpoint]. Wake, Close and Closed are safe for concurrent
// use. Only Wait and Close block. No method allocates.
type Sleeper struct {
	bell    *shmring.Doorbell
	closed  atomic.Bool
	waiting atomic.Int32 // goroutines inside Wait
	once    sync.Once
}

// Use sets the doorbell. The caller calls it before any other method.
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

// Close makes every Wait return, now and later, and then calls release. At that moment no goroutine uses the
// doorbell, so release may free its memory. Only the first call does this; later calls wait until it is done.
func (s *Sleeper) Close(release func()) {
	s.once.Do(func() {
		s.closed.Store(true)
		s.bell.Ring()
		for s.waiting.Load() != 0 {
			s.bell.Ring()
			runtime.Gosched()
		}
		release()
	})
}
