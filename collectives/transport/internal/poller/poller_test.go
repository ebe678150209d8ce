package poller

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forever is longer than a test may take: a Wait that should return does so before.
const forever = time.Hour

func open(t *testing.T, capacity int) *Set {
	t.Helper()
	s, err := New(capacity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(func() {}) })
	return s
}

// counter adds an eventfd to the set: readable once raised, and always writable.
func counter(t *testing.T, s *Set, id int32) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := s.Add(fd, unix.EPOLLIN, id); err != nil {
		t.Fatal(err)
	}
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

// TestWaitReturns: what happens after Arm is not slept through, however it was come by.
func TestWaitReturns(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, s *Set, fd int){
		"wake":        func(_ *testing.T, s *Set, _ int) { s.Wake() },
		"swept wake":  func(_ *testing.T, s *Set, _ int) { s.Wake(); s.Sweep() },
		"event":       func(t *testing.T, _ *Set, fd int) { raise(t, fd) },
		"swept event": func(t *testing.T, s *Set, fd int) { raise(t, fd); s.Sweep() },
		"note":        func(_ *testing.T, s *Set, _ int) { s.Note() },
		"close":       func(_ *testing.T, s *Set, _ int) { s.Close(func() {}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, 1)
			fd := counter(t, s, 7)
			armed := s.Arm()
			happens(t, s, fd)
			within(t, "Wait", func() { s.Wait(armed, forever) })
		})
	}
}

// TestOldNews: what was swept before Arm is no reason not to sleep.
func TestOldNews(t *testing.T) {
	s := open(t, 1)
	raise(t, counter(t, s, 7))
	s.Wake()
	s.Note()
	if got := ids(s.Sweep()); !slices.Equal(got, []int32{7}) {
		t.Fatalf("events of %v", got)
	}
	if armed := s.Arm(); s.Pending(armed) {
		t.Error("pending after Arm")
	}
	if s.Sleep(time.Millisecond) {
		t.Error("data that nobody reads wakes more than once")
	}
	armed := s.Arm()
	s.Wake()
	if !s.Pending(armed) {
		t.Error("a wake-up counts only once it is swept")
	}
	if !s.Sleep(forever) {
		t.Error("a wake-up is not told from the end of the time")
	}
	s.Wait(s.Arm(), 0)
	s.Wait(s.Arm(), -1)
}

// TestSweep: a wake-up is news and no event; an edge comes once.
func TestSweep(t *testing.T) {
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
		if got := ids(s.Sweep()); !slices.Equal(got, c.want) {
			t.Errorf("%+v: events of %v", c, got)
		}
		if want := c.wake || len(c.raised) > 0; s.Pending(armed) != want || s.news != want {
			t.Errorf("%+v: pending %t, news %t", c, s.Pending(armed), s.news)
		}
		if got := ids(s.Sweep()); len(got) != 0 {
			t.Errorf("%+v: events of %v, again", c, got)
		}
	}
}

// TestMoreThanCapacity: sweep by sweep, nothing that is ready is missed.
func TestMoreThanCapacity(t *testing.T) {
	const descriptors = 100
	s := open(t, 7)
	for id := range descriptors {
		raise(t, counter(t, s, int32(id)))
	}
	s.Wake()
	seen := map[int32]int{}
	for range descriptors {
		for _, id := range ids(s.Sweep()) {
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

// TestAsk: one sweep answers for everybody who has not asked since.
func TestAsk(t *testing.T) {
	s := open(t, 1)
	fd := counter(t, s, 7)
	var mine, yours uint64
	for range 3 {
		raise(t, fd)
		if got := ids(s.Ask(&mine)); !slices.Equal(got, []int32{7}) {
			t.Fatalf("events of %v", got)
		}
		raise(t, fd)
		if got := s.Ask(&yours); got != nil {
			t.Errorf("swept again for %v", ids(got))
		}
		if got := ids(s.Ask(&yours)); !slices.Equal(got, []int32{7}) {
			t.Errorf("events of %v", got)
		}
		s.Ask(&mine)
	}
}

func TestModify(t *testing.T) {
	s := open(t, 1)
	fd := counter(t, s, 7)
	for range 2 {
		if err := s.Modify(fd, unix.EPOLLIN|unix.EPOLLOUT, 8); err != nil {
			t.Fatal(err)
		}
		got := slices.Clone(s.Sweep())
		if len(got) != 1 || got[0].Fd != 8 || got[0].Events != unix.EPOLLOUT {
			t.Errorf("events %v", got)
		}
	}
	if err := s.Modify(fd, unix.EPOLLIN, 7); err != nil {
		t.Fatal(err)
	}
	if got := s.Sweep(); len(got) != 0 {
		t.Errorf("events %v", got)
	}
}

func TestRefuses(t *testing.T) {
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
		t.Error("the set's own id was accepted")
	}
}

// TestCloseWhileWaiting: nobody is inside Wait any more when the last act comes, which happens
// once and finds the descriptors open.
func TestCloseWhileWaiting(t *testing.T) {
	s := open(t, 1)
	const waiters = 4
	armed := s.Arm()
	var out, last atomic.Int32
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
					last.Add(1)
					if n := s.users.Load(); n != 0 || !s.Closed() {
						t.Errorf("%d are left, closed %t", n, s.Closed())
					}
					s.Sweep() // may be under way in the driving goroutine
					if _, err := unix.FcntlInt(uintptr(s.wakefd), unix.F_GETFD, 0); err != nil {
						t.Error(err)
					}
				})
				if last.Load() != 1 {
					t.Errorf("the last act came %d times", last.Load())
				}
			})
		}
		wg.Wait()
		for out.Load() < waiters {
			time.Sleep(time.Millisecond)
		}
	})
}

// TestCloseWaitsForUsers: who is in the set keeps it open, though it does not sleep.
func TestCloseWaitsForUsers(t *testing.T) {
	s := open(t, 1)
	s.Enter()
	var left atomic.Bool
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close(func() {
			if !left.Load() {
				t.Error("closed under somebody")
			}
		})
	}()
	for !s.Closed() {
		time.Sleep(time.Millisecond)
	}
	if !s.Sleep(forever) || !s.Pending(s.Arm()) {
		t.Error("Close is no reason to wake up")
	}
	left.Store(true)
	s.Leave()
	within(t, "Close", func() { <-closed })
}

// TestWakeAfterClose: the number of the wake-up descriptor may be somebody else's by then.
func TestWakeAfterClose(t *testing.T) {
	s := open(t, 1)
	s.Close(func() {})
	other, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(other) }()
	if other != s.wakefd {
		if _, err := unix.FcntlInt(uintptr(s.wakefd), unix.F_GETFD, 0); err == nil {
			t.Skipf("descriptor %d is in use already", s.wakefd)
		}
		if err := unix.Dup3(other, s.wakefd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(s.wakefd) }()
	}
	s.Wake()
	if _, err := unix.Read(other, make([]byte, 8)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a wake-up went to a descriptor of somebody else: %v", err)
	}
	within(t, "Wait", func() { s.Wait(s.Arm(), forever) })
}

// TestWakeFromAnywhere: wake-ups of several goroutines, and then Close, while one drives the
// set. No wake-up is lost: each waits until it has been seen.
func TestWakeFromAnywhere(t *testing.T) {
	const wakers, rounds = 4, 200
	s := open(t, 1)
	var asked, answered [wakers]atomic.Int32
	within(t, "the set", func() {
		var wg sync.WaitGroup
		var mu sync.Mutex // of the driving goroutine
		wg.Go(func() {
			for !s.Closed() {
				armed := s.Arm()
				for i := range asked {
					answered[i].Store(asked[i].Load())
				}
				mu.Lock()
				if !s.Closed() {
					s.Sweep()
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
						time.Sleep(time.Microsecond)
					}
				}
			})
			wg.Go(func() {
				for !s.Closed() {
					time.Sleep(time.Millisecond)
				}
				for range rounds {
					s.Wake()
				}
			})
		}
		done.Wait()
		s.Close(func() { mu.Lock(); mu.Unlock() }) //nolint:staticcheck // waits for a sweep under way
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
		s.Ask(&seen)
		s.Wait(armed, forever)
		s.Wait(s.Arm(), time.Microsecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
