package journal

import (
	"log/slog"
	"sync"
	"time"
)

// slowWrite is after how long a write is worth a line in the log. A reconfiguration waits for it.
const slowWrite = time.Second

// Slow tells the log when writes begin to be slow or to fail, and when they are well again: once each. It may
// be used from any goroutine.
type Slow struct {
	Log *slog.Logger

	mu   sync.Mutex
	told bool
}

// Begin notes that a write begins; the caller calls end with its outcome.
func (s *Slow) Begin() (end func(error)) {
	began := time.Now()
	late := time.AfterFunc(slowWrite, func() { s.bad("the journal does not answer; planes do not move until it does", "after", slowWrite) })
	return func(err error) {
		late.Stop()
		switch took := time.Since(began); {
		case err != nil:
			s.bad("the journal refuses a write", "error", err)
		case took >= slowWrite: // told
		default:
			s.good(took)
		}
	}
}

func (s *Slow) bad(text string, attrs ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told {
		s.told = true
		s.Log.Warn(text, attrs...)
	}
}

func (s *Slow) good(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told {
		s.told = false
		s.Log.Info("the journal answers in time again", "took", took.Round(time.Millisecond))
	}
}
