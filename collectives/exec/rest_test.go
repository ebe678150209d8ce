package exec

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/collectives/transport"
	"lightpath/internal/require"
)

// standstills is an operation that makes progress after given numbers of polls. It is also its endpoint, and counts the
// polls after a sleep.
type standstills struct {
	transport.Endpoint
	rounds []int // polls without progress of each remaining standstill
	polls  int   // polls of the present standstill
	sleeps []int // by standstill: polls before the first sleep, or -1
	slept  int
	stop   time.Duration // duration of every Wait
}

func (s *standstills) Poll() (moved, done bool, err error) {
	if s.polls++; s.polls <= s.rounds[0] {
		return false, false, nil
	}
	s.sleeps = append(s.sleeps, s.slept)
	s.rounds, s.polls, s.slept = s.rounds[1:], 0, -1
	return true, len(s.rounds) == 0, nil
}

func (s *standstills) Waiting() Wait             { return Wait{} }
func (s *standstills) Planes() []transport.Plane { return nil }
func (s *standstills) Arm() uint32               { return 0 }

func (s *standstills) Wait(uint32, time.Duration) {
	if s.slept < 0 {
		s.slept = s.polls
	}
	time.Sleep(s.stop)
}

func (s *standstills) run(t *testing.T, o *Options) error {
	t.Helper()
	s.slept = -1
	var task Task
	require.NoError(t, task.Bind(Call{Engine: s, Endpoint: s}))
	return Run([]*Task{&task}, o)
}

// TestBrief checks that Run sleeps early after several waits that were longer than a wake-up. After short waits, or a
// single long one, it does not. In a bubble no yield takes long.
func TestBrief(t *testing.T) { synctest.Test(t, testBrief) }

func testBrief(t *testing.T) {
	rounds := []int{30, 10, 10, 100}
	for range longWaits + 1 {
		rounds = append(rounds, 30)
	}
	rounds = append(rounds, 5, 30)
	for _, brief := range []int{0, 8} {
		s := &standstills{rounds: rounds}
		require.NoError(t, s.run(t, &Options{Spin: 20, Yield: 30, LongWait: brief}))
		long := 0
		for i, n := range rounds {
			want := 20 + 30
			if brief > 0 && long >= longWaits {
				want = 0
			}
			if n > brief {
				long++
			}
			if n <= want {
				want = -1
			} else {
				want += 2 // the round after Arm is one more
			}
			if s.sleeps[i] != want {
				t.Errorf("LongWait %d: standstill %d of %d polls: first sleep after %d, want %d",
					brief, i, n, s.sleeps[i], want)
			}
		}
	}
}

// TestSlowNetwork checks that a Run learns from the durations of its sleeps whether the network is still slow.
func TestSlowNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for stop, want := range map[time.Duration]bool{wakeUp / 5: false, 2 * wakeUp: true} {
			slow, rounds := true, []int{30}
			for range longWaits {
				rounds = append(rounds, 3)
			}
			s := &standstills{rounds: rounds, stop: stop}
			require.NoError(t, s.run(t, &Options{Spin: 20, Yield: 30, LongWait: 8, Slow: &slow}))
			if slow != want {
				t.Errorf("sleeps of %v: slow %v", stop, slow)
			}
		}
	})
}

// TestBriefTimeout checks that a Run that sleeps early still times out, and not too early.
func TestBriefTimeout(t *testing.T) { synctest.Test(t, testBriefTimeout) }

func testBriefTimeout(t *testing.T) {
	rounds := make([]int, longWaits)
	for i := range rounds {
		rounds[i] = 9
	}
	const timeout = 20 * time.Millisecond
	s := &standstills{rounds: append(rounds, 1<<62), stop: time.Millisecond}
	begin := time.Now()
	if err := s.run(t, &Options{Spin: 20, Yield: 30, LongWait: 8, Timeout: timeout}); !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(begin); d < timeout || s.slept != 2 {
		t.Errorf("gave up after %v, first sleep after %d polls", d, s.slept)
	}
}

// TestOwnStandstill checks that time in which the process itself was stopped does not count for the timeout.
func TestOwnStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &standstills{rounds: []int{20 + 30 + 2, 20 + 30 + 3, 0}, stop: absence + 50*time.Millisecond}
		err := s.run(t, &Options{
			Spin: 20, Yield: 30, Timeout: 20 * time.Millisecond, StallAfter: time.Millisecond,
			OnStall: func() error { return errors.New("stalled") },
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestTry checks that Try never sleeps, and that Run completes the tasks that Try has not finished.
func TestTry(t *testing.T) {
	for _, rounds := range []int{9, 10, 11} {
		s := &standstills{rounds: []int{10}, slept: -1}
		var task Task
		require.NoError(t, task.Bind(Call{Engine: s, Endpoint: s}))
		ended, err := Try([]*Task{&task}, rounds)
		if err != nil || ended != (rounds > 10) || s.slept >= 0 {
			t.Fatalf("after %d rounds: ended %v, error %v, sleep after %d", rounds, ended, err, s.slept)
		}
		if ended {
			continue
		}
		if s.polls != rounds {
			t.Errorf("%d polls in %d rounds", s.polls, rounds)
		}
		if err := Run([]*Task{&task}, &Options{}); err != nil || !task.Done() {
			t.Fatalf("Run: %v", err)
		}
	}
	if _, err := Try([]*Task{{}}, 1); !errors.Is(err, ErrCall) {
		t.Errorf("a task that is not bound: %v", err)
	}
}
