package exec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/schedule"
)

// timed sets times for all reconfigurations of the programs of a team.
func timed(tm *team, at int64) {
	timedTasks(tm.tasks, at)
}

func timedTasks(tasks []*Task, at int64) {
	p := tasks[0].prog
	times := make([][]int64, len(p.Configs))
	for j := range times {
		times[j] = make([]int64, p.Switches(j))
		for k := range times[j] {
			times[j][k] = at
		}
	}
	for _, t := range tasks {
		t.call.SwitchAt = times
	}
}

// punctual moves each plane at its time. In this test that is when every rank whose circuit moves has finished with it,
// which punctual reads from the tasks.
func (tm *team) punctual(f *fabric) {
	for j, w := range f.planes {
		base := tm.tasks[0].call.Base[j]
		maps := tm.tasks[0].prog.Configs[j]
		k := int(w.epoch - base)
		if k+1 >= len(maps) {
			continue
		}
		ready := true
		for r, t := range tm.tasks {
			ready = ready && (maps[k][r] == maps[k+1][r] || int32(t.lanes[j].settle-w.epoch) > 0 || t.lanes[j].finished)
		}
		if !ready {
			continue
		}
		for p := range w.to {
			w.posted[w.epoch] = merge(w.posted[w.epoch], p, maps[k+1])
		}
		w.change()
	}
}

func merge[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[k] = v
	return m
}

// TestTimed checks that ranks post no requests with the time-based barrier, and that the results are the same.
func TestTimed(t *testing.T) {
	for _, steer := range []bool{false, true} {
		schedules(t, 5, func(t *testing.T, s *schedule.Schedule, rng *rand.Rand) {
			tm, f := optical(t, s, rng, steer)
			timed(tm, time.Now().Add(time.Hour).UnixNano())
			f.clock = func() { tm.punctual(f) }
			if err := Run(tm.tasks, patience); err != nil {
				t.Fatal(err)
			}
			if f.lost != nil || f.posts != 0 {
				t.Fatalf("%v, %d posts", f.lost, f.posts)
			}
			tm.verify(t)
		})
	}
}

// TestLate checks that a rank that is late for a reconfiguration reports it, and by how much.
func TestLate(t *testing.T) {
	late := 0
	for seed := range uint64(20) {
		s, err := schedule.Build(schedule.AllReduce, "rabenseifner", 4, 0)
		if err != nil {
			t.Fatal(err)
		}
		tm, f := optical(t, s, rand.New(rand.NewPCG(seed, 4)), seed%2 == 0)
		timed(tm, time.Now().Add(-time.Second).UnixNano())
		f.clock = func() { tm.punctual(f) }
		err = Run(tm.tasks, patience)
		if err == nil {
			continue // nothing was to be sent before any switch
		}
		late++
		if !errors.Is(err, ErrLate) {
			t.Fatal(err)
		}
		for _, want := range []string{"rank ", "plane ", "epoch ", "left 1"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	}
	if late < 10 {
		t.Errorf("%d of 20 runs were late", late)
	}
}

// TestLateOnTheWire checks that frames on the circuit at the time of the reconfiguration make the rank late.
func TestLateOnTheWire(t *testing.T) {
	s, err := schedule.Build(schedule.AllReduce, "rabenseifner", 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for seed := range uint64(20) {
		tm, f := optical(t, s, rand.New(rand.NewPCG(seed, 4)), true)
		timed(tm, time.Now().Add(time.Hour).UnixNano())
		f.clock = func() {
			tm.punctual(f)
			for r, task := range tm.tasks {
				for i := range task.lanes {
					if l := &task.lanes[i]; l.left == 0 && len(f.planes[i].tx[task.prog.Rank]) > 0 {
						timedTasks(tm.tasks[r:r+1], time.Now().Add(-3*time.Second).UnixNano())
					}
				}
			}
		}
		err := Run(tm.tasks, &Options{Timeout: time.Second})
		if err != nil && strings.Contains(err.Error(), "not drained 3") {
			found = errors.Is(err, ErrLate)
			break
		}
	}
	if !found {
		t.Error("nobody noticed frames on the wire")
	}
}

func TestTimesMustFit(t *testing.T) {
	s, err := schedule.Build(schedule.AllReduce, "rabenseifner", 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	for seed := uint64(0); ; seed++ {
		tm, _ := optical(t, s, rand.New(rand.NewPCG(seed, 4)), false)
		if tm.tasks[0].prog.Switches(0) == 0 {
			continue
		}
		for _, at := range [][][]int64{{}, make([][]int64, len(tm.tasks[0].prog.Configs))} {
			c := tm.tasks[0].call
			c.SwitchAt = at
			var task Task
			if err := task.Bind(c); !errors.Is(err, ErrCall) {
				t.Fatal(fmt.Errorf("%d planes with times: %w", len(at), err))
			}
		}
		return
	}
}
