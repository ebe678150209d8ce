package sleep

import (
	"runtime"
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

// TestCloseWakesWaiters checks that Close calls release once, after every goroutine has left Wait.
func TestCloseWakesWaiters(t *testing.T) {
	s := sleeper(t)
	const waiters = 4
	var inside, out, released atomic.Int32
	for range waiters {
		go func() {
			armed := s.Arm()
			inside.Add(1)
			s.Wait(armed, time.Hour)
			out.Add(1)
		}()
	}
	for inside.Load() < waiters {
		runtime.Gosched()
	}
	closed := make(chan struct{})
	for range 2 {
		go func() {
			s.Close(func() {
				released.Add(1)
				if n := s.waiting.Load(); n != 0 || !s.Closed() {
					t.Errorf("in release: %d goroutines in Wait, closed %t", n, s.Closed())
				}
			})
			closed <- struct{}{}
		}()
	}
	for range 2 {
		<-closed
	}
	if released.Load() != 1 {
		t.Errorf("Close called release %d times", released.Load())
	}
	s.Wait(s.Arm(), time.Hour) // returns at once
	for out.Load() < waiters {
		runtime.Gosched()
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
