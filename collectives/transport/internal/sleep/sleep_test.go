package sleep

import (
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/shmring"
)

func sleeper(t *testing.T) *Sleeper {
	t.Helper()
	bell, err := shmring.NewDoorbell(make([]byte, shmring.DoorbellSize))
	if err != nil {
		t.Fatal(err)
	}
	s := &Sleeper{}
	s.Use(bell)
	return s
}

// TestCloseReleasesWaiters: nobody is inside Wait any more when the last act comes, which
// happens once.
func TestCloseReleasesWaiters(t *testing.T) {
	s := sleeper(t)
	const waiters = 4
	var inside, out, last atomic.Int32
	for range waiters {
		go func() {
			armed := s.Arm()
			inside.Add(1)
			s.Wait(armed, time.Hour)
			out.Add(1)
		}()
	}
	for inside.Load() < waiters {
		time.Sleep(time.Millisecond)
	}
	closed := make(chan struct{})
	for range 2 {
		go func() {
			s.Close(func() {
				last.Add(1)
				if n := s.waiting.Load(); n != 0 || !s.Closed() {
					t.Errorf("%d waiters are left, closed %t", n, s.Closed())
				}
			})
			closed <- struct{}{}
		}()
	}
	for range 2 {
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Fatal("Close hangs")
		}
	}
	if last.Load() != 1 {
		t.Errorf("the last act came %d times", last.Load())
	}
	s.Wait(s.Arm(), time.Hour) // returns at once
	for out.Load() < waiters {
		time.Sleep(time.Millisecond)
	}
}

func TestWakeEndsAWait(t *testing.T) {
	s := sleeper(t)
	armed := s.Arm()
	s.Wake()
	s.Wait(armed, time.Hour)
	if allocs := testing.AllocsPerRun(100, func() { s.Wake(); s.Wait(s.Arm(), time.Microsecond) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
