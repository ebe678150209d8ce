package journal

import (
	"log/slog"
	"sync"
	"time"
)

// slowWrite is the duration from which a write is logged. A reconfiguration waits for the write of its intent.
const slowWrite = time.Second

// Slow logs once when writes become slow or fail, and once when they are normal again. It may be used from any
// goroutine.
type Slow struct {
	Log *slog.Logger

	mu     sync.Mutex
	logged bool
}

// Begin marks the start of a write; the caller calls end with its result.
func (s *Slow) Begin() (end func(error)) {
	began := time.Now()
	late := time.AfterFunc(slowWrite, func() {
		s.bad("the journal does not answer; planes do not move until it does", "after", slowWrite)
	})
	return func(err error) {
		late.Stop()
		switch took := time.Since(began); {
		case err != nil:
			s.bad("the journal refuses a write", "error", err)
		case took >= slowWrite: // logged above
		default:
			s.good(took)
		}
	}
}

func (s *Slow) bad(text string, attrs ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.logged {
		s.logged = true
		s.Log.Warn(text, attrs...)
	}
}

func (s *Slow) good(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logged {
		s.logged = false
		s.Log.Info("the journal answers in time again", "took", took.Round(time.Millisecond))
	}
}
