package poller

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
)

// forever is longer than a test may take, so a Wait that does not return makes the test fail.
const forever = time.Hour

func open(t *testing.T, capacity int) *Set {
	t.Helper()
	s, err := New(capacity)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(func() {}) })
	return s
}

// counter adds an eventfd to the set. It is readable after raise, and always writable.
func counter(t *testing.T, s *Set, id int32) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, s.Add(fd, unix.EPOLLIN, id))
	return fd
}

var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

func raise(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, one); err != nil {
		t.Fatal(err)
	}
}

func ids(events []unix.EpollEvent) (all []int32) {
	for _, ev := range events {
		all = append(all, ev.Fd)
	}
	slices.Sort(all)
	return all
}

// within fails the test if f hangs.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

// TestWaitReturnsAfterEvent checks that Wait returns after every kind of event since Arm.
func TestWaitReturnsAfterEvent(t *testing.T) {
	for name, event := range map[string]func(t *testing.T, s *Set, fd int){
		"wake":             func(_ *testing.T, s *Set, _ int) { s.Wake() },
		"wake, then poll":  func(_ *testing.T, s *Set, _ int) { s.Wake(); s.Poll() },
		"event":            func(t *testing.T, _ *Set, fd int) { raise(t, fd) },
		"event, then poll": func(t *testing.T, s *Set, fd int) { raise(t, fd); s.Poll() },
		"SetReady":         func(_ *testing.T, s *Set, _ int) { s.SetReady() },
		"close":            func(_ *testing.T, s *Set, _ int) { s.Close(func() {}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, 1)
			fd := counter(t, s, 7)
			armed := s.Arm()
			event(t, s, fd)
			within(t, "Wait", func() { s.Wait(armed, forever) })
		})
	}
}

// TestArmForgetsEarlierEvents checks that events before Arm do not prevent a sleep.
func TestArmForgetsEarlierEvents(t *testing.T) {
	s := open(t, 1)
	raise(t, counter(t, s, 7))
	s.Wake()
	s.SetReady()
	if got := ids(s.Poll()); !slices.Equal(got, []int32{7}) {
		t.Fatalf("events of %v", got)
	}
	if armed := s.Arm(); s.Pending(armed) {
		t.Error("pending after Arm")
	}
	for n := 1; s.Sleep(time.Millisecond); n++ { // a signal may end it, too
		if n == 10 {
			t.Fatal("unread data ended a second sleep")
		}
	}
	armed := s.Arm()
	s.Wake()
	if !s.Pending(armed) {
		t.Error("not pending after Wake")
	}
	if !s.Sleep(forever) {
		t.Error("Sleep returned false after Wake")
	}
	s.Wait(s.Arm(), 0)
	s.Wait(s.Arm(), -1)
}

// TestPoll checks that Poll returns each edge once and never a wake-up.
func TestPoll(t *testing.T) {
	s := open(t, 3)
	fds := []int{counter(t, s, 0), counter(t, s, 1), counter(t, s, -2)}
	for _, c := range []struct {
		raised []int
		wake   bool
		want   []int32
	}{
		{nil, false, nil},
		{nil, true, nil},
		{[]int{1}, false, []int32{1}},
		{[]int{2, 0}, true, []int32{-2, 0}},
		{[]int{0, 1, 2}, true, []int32{-2, 0, 1}},
		{[]int{0, 1, 2}, false, []int32{-2, 0, 1}},
	} {
		armed := s.Arm()
		if c.wake && len(c.raised) > 0 {
			s.Wake() // before the others: not the last of the events
		}
		for _, i := range c.raised {
			raise(t, fds[i])
		}
		if c.wake {
			s.Wake()
		}
		if got := ids(s.Poll()); !slices.Equal(got, c.want) {
			t.Errorf("%+v: events of %v", c, got)
		}
		if want := c.wake || len(c.raised) > 0; s.Pending(armed) != want || s.ready != want {
			t.Errorf("%+v: pending %t, ready %t", c, s.Pending(armed), s.ready)
		}
		if got := ids(s.Poll()); len(got) != 0 {
			t.Errorf("%+v: the second Poll returned events of %v", c, got)
		}
	}
}

// TestPollBeyondCapacity checks that repeated Polls return every event once.
func TestPollBeyondCapacity(t *testing.T) {
	const descriptors = 100
	s := open(t, 7)
	for id := range descriptors {
		raise(t, counter(t, s, int32(id)))
	}
	s.Wake()
	seen := map[int32]int{}
	for range descriptors {
		for _, id := range ids(s.Poll()) {
			seen[id]++
		}
	}
	for id := range int32(descriptors) {
		if seen[id] != 1 {
			t.Errorf("descriptor %d: %d events", id, seen[id])
		}
	}
	if len(seen) != descriptors {
		t.Errorf("%d of %d descriptors", len(seen), descriptors)
	}
}

// TestPollOnce checks that one Poll serves two descriptors.
func TestPollOnce(t *testing.T) {
	s := open(t, 1)
	fd := counter(t, s, 7)
	var first, second uint64
	for range 3 {
		raise(t, fd)
		if got := ids(s.PollOnce(&first)); !slices.Equal(got, []int32{7}) {
			t.Fatalf("events of %v", got)
		}
		raise(t, fd)
		if got := s.PollOnce(&second); got != nil {
			t.Errorf("polled again: events of %v", ids(got))
		}
		if got := ids(s.PollOnce(&second)); !slices.Equal(got, []int32{7}) {
			t.Errorf("events of %v", got)
		}
		s.PollOnce(&first)
	}
}

func TestModify(t *testing.T) {
	s := open(t, 1)
	fd := counter(t, s, 7)
	for range 2 {
		require.NoError(t, s.Modify(fd, unix.EPOLLIN|unix.EPOLLOUT, 8))
		got := slices.Clone(s.Poll())
		if len(got) != 1 || got[0].Fd != 8 || got[0].Events != unix.EPOLLOUT {
			t.Errorf("events %v", got)
		}
	}
	require.NoError(t, s.Modify(fd, unix.EPOLLIN, 7))
	if got := s.Poll(); len(got) != 0 {
		t.Errorf("events %v", got)
	}
}

func TestAddAndModifyErrors(t *testing.T) {
	s := open(t, 1)
	fd := counter(t, s, 7)
	for name, c := range map[string]struct {
		err  error
		want unix.Errno
	}{
		"add twice":      {s.Add(fd, unix.EPOLLIN, 1), unix.EEXIST},
		"add nothing":    {s.Add(-1, unix.EPOLLIN, 1), unix.EBADF},
		"modify unknown": {s.Modify(s.epfd, unix.EPOLLIN, 1), unix.EINVAL},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if s.Add(fd, unix.EPOLLIN, wakeID) == nil {
		t.Error("the reserved id was accepted")
	}
}

// TestCloseWakesWaiters checks that Close calls release once, after every goroutine has left Wait and while the
// descriptors are still open.
func TestCloseWakesWaiters(t *testing.T) {
	s := open(t, 1)
	const waiters = 4
	armed := s.Arm()
	var out, released atomic.Int32
	for range waiters {
		go func() {
			s.Wait(armed, forever)
			out.Add(1)
		}()
	}
	for s.users.Load() < waiters {
		time.Sleep(time.Millisecond)
	}
	within(t, "Close", func() {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				s.Close(func() {
					released.Add(1)
					if n := s.users.Load(); n != 0 || !s.Closed() {
						t.Errorf("in release: %d users, closed %t", n, s.Closed())
					}
					s.Poll() // the driving goroutine may be in Poll
					if _, err := unix.FcntlInt(uintptr(s.wakefd), unix.F_GETFD, 0); err != nil {
						t.Error(err)
					}
				})
				if released.Load() != 1 {
					t.Errorf("Close called release %d times", released.Load())
				}
			})
		}
		wg.Wait()
		for out.Load() < waiters {
			time.Sleep(time.Millisecond)
		}
	})
}

// TestCloseWaitsForLeave checks that Close waits for a goroutine between Enter and Leave that does not sleep.
func TestCloseWaitsForLeave(t *testing.T) {
	s := open(t, 1)
	s.Enter()
	var left atomic.Bool
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close(func() {
			if !left.Load() {
				t.Error("Close did not wait for Leave")
			}
		})
	}()
	for !s.Closed() {
		runtime.Gosched()
	}
	if !s.Sleep(forever) || !s.Pending(s.Arm()) {
		t.Error("Close did not wake the set")
	}
	left.Store(true)
	s.Leave()
	within(t, "Close", func() { <-closed })
}

// TestWakeAfterClose checks that Wake does not write to the closed descriptor, whose number may be in use again.
func TestWakeAfterClose(t *testing.T) {
	s := open(t, 1)
	s.Close(func() {})
	other, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	defer func() { _ = unix.Close(other) }()
	if other != s.wakefd {
		if _, err := unix.FcntlInt(uintptr(s.wakefd), unix.F_GETFD, 0); err == nil {
			t.Skipf("descriptor %d is already in use", s.wakefd)
		}
		require.NoError(t, unix.Dup3(other, s.wakefd, unix.O_CLOEXEC))
		defer func() { _ = unix.Close(s.wakefd) }()
	}
	s.Wake()
	if _, err := unix.Read(other, make([]byte, 8)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("Wake wrote to a descriptor that the set no longer owns: %v", err)
	}
	within(t, "Wait", func() { s.Wait(s.Arm(), forever) })
}

// TestConcurrentWakes checks that no Wake of several goroutines is lost while one goroutine drives the set, and that
// Wake and Close may run at once.
func TestConcurrentWakes(t *testing.T) {
	const wakers, rounds = 4, 200
	s := open(t, 1)
	var asked, answered [wakers]atomic.Int32
	within(t, "the driving goroutine or a waker", func() {
		var wg sync.WaitGroup
		closing := make(chan struct{})
		var mu sync.Mutex // held by the driving goroutine while it polls
		wg.Go(func() {
			for !s.Closed() {
				armed := s.Arm()
				for i := range asked {
					answered[i].Store(asked[i].Load())
				}
				mu.Lock()
				if !s.Closed() {
					s.Poll()
				}
				mu.Unlock()
				s.Wait(armed, forever)
			}
		})
		var done sync.WaitGroup
		for i := range wakers {
			done.Go(func() {
				for n := range int32(rounds) {
					asked[i].Store(n + 1)
					s.Wake()
					for answered[i].Load() != n+1 {
						runtime.Gosched()
					}
				}
			})
			wg.Go(func() {
				<-closing
				for range rounds {
					s.Wake()
				}
			})
		}
		done.Wait()
		close(closing)
		s.Close(func() { mu.Lock(); mu.Unlock() }) //nolint:staticcheck // waits for a Poll in progress
		wg.Wait()
	})
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	s := open(t, 2)
	fd := counter(t, s, 7)
	var seen uint64
	if n := testing.AllocsPerRun(100, func() {
		armed := s.Arm()
		s.Wake()
		raise(t, fd)
		_ = s.Modify(fd, unix.EPOLLIN|unix.EPOLLOUT, 7)
		s.PollOnce(&seen)
		s.Wait(armed, forever)
		s.Wait(s.Arm(), time.Microsecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
