package exec

import (
	"math/rand/v2"
	"testing"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
)

// diary is an [Observer] that remembers what it is told.
type diary struct {
	t           *testing.T
	begun, over map[program.ID]int64 // bytes by instruction
	holds       map[int]bool
	waits       int
}

func (d *diary) Transfer(id program.ID, in *program.Instruction, ended bool) {
	if _, begun := d.begun[id]; begun != ended {
		d.t.Errorf("instruction %d: begun %v, ended %v", id, begun, ended)
	}
	if ended {
		d.over[id] += in.Bytes
	} else {
		d.begun[id] += in.Bytes
	}
}

func (d *diary) Hold(plane int, ended bool) {
	if d.holds[plane] != ended {
		d.t.Errorf("plane %d: a wait ends or begins twice", plane)
	}
	d.holds[plane] = !ended
	d.waits++
}

// observe runs tasks that are bound with an observer each, and returns the number of waits for circuits.
func observe(t *testing.T, tm *team) (waits int) {
	t.Helper()
	diaries := make([]*diary, len(tm.tasks))
	for r, task := range tm.tasks {
		diaries[r] = &diary{t, map[program.ID]int64{}, map[program.ID]int64{}, map[int]bool{}, 0}
		c := task.call
		c.Observer = diaries[r]
		require.NoError(t, task.Bind(c))
	}
	require.NoError(t, Run(tm.tasks, patience))
	tm.verify(t)
	for r, d := range diaries {
		for plane, held := range d.holds {
			if held {
				t.Errorf("rank %d: plane %d waits at the end", r, plane)
			}
		}
		waits += d.waits / 2
		want := 0
		for id, e := range tm.tasks[r].Events() {
			if !e.Kind.Transfers() {
				continue
			}
			want++
			if n := d.over[program.ID(id)]; n == 0 || n != d.begun[program.ID(id)] {
				t.Errorf("rank %d, instruction %d: %d bytes at its end", r, id, n)
			}
		}
		if len(d.over) != want || len(d.begun) != want {
			t.Errorf("rank %d: %d transfers begin and %d end, want %d", r, len(d.begun), len(d.over), want)
		}
	}
	return waits
}

// TestObserver checks that an observer is told once of the begin and the end of each transfer and of each wait for
// circuits. It tries all kinds of planes, and programs with sections.
func TestObserver(t *testing.T) {
	waits := 0
	schedules(t, 3, func(t *testing.T, s *schedule.Schedule, rng *rand.Rand) {
		endpoints := network(t, 3, 2, rng.Uint64())
		progs, err := lowerAll(s, nil, program.Args{Planes: 2, Count: 100, ElemSize: 4, MinPiece: 64})
		require.NoError(t, err)
		if n := observe(t, assemble(t, programtest.NewCase(s, 100, 1, 1), progs, false, func(r int, c *Call) {
			c.Endpoint = endpoints[r]
		})); n != 0 {
			t.Errorf("%d waits for circuits on packet planes", n)
		}
		for _, steered := range []bool{false, true} {
			tm, _ := optical(t, s, rng, steered)
			waits += observe(t, tm)
		}
	})
	waits += observe(t, sectionsTeam(t, 23, 3, 2, 6))
	if waits == 0 {
		t.Error("no wait for circuits")
	}
}
