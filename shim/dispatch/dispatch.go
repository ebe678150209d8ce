package dispatch

import (
	"fmt"
	"maps"

	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/planeset"
	"lightpath/shim/settings"
)

// Entry is a program with the kernels that it needs.
type Entry struct {
	Prog          *program.Program // nil: the call goes through shared memory, which needs no program
	Signature     uint32           // of the call
	Algorithm     string
	Kernels       calls.Kernels
	Plan          *plans.Plan // nil on packet planes
	ReceivedBytes []int64     // bytes that each plane brings this rank; nil: they are not measured
	Used          uint64      // tick of the last use
}

// MaxPrograms bounds the table. An application with more shapes pays a search for the oldest entry with each new
// program.
const MaxPrograms = 1024

// Key holds all facts of a communicator on which a program depends.
type Key struct {
	calls.Shape
	Plan   uint64       // first bytes of the plan's digest; 0: packet planes
	Shares uint32       // number of the agreement on the shares of packet planes; 0: even
	Maps   uint64       // hash of the maps that a setup starts from; 0: the program has no setup
	Planes planeset.Set // that the plan is laid over
}

// Table is a communicator's programs. Not safe for concurrent use. A hit allocates nothing.
type Table struct {
	Programs    map[Key]*Entry
	last        *Entry // of key lastKey, in Programs: a loop over one shape needs no look-up. nil: none
	lastKey     Key
	tick        uint64
	traceFailed bool // LIGHTPATH_TRACE could not be written, and is not tried again
}

// Get returns the entry of a key, nil for none.
func (t *Table) Get(k Key) *Entry {
	if t.last != nil && t.lastKey == k {
		return t.last // no other entry has been used since
	}
	e := t.Programs[k]
	if e != nil {
		t.use(k, e)
	}
	return e
}

// use records the use of an entry.
func (t *Table) use(k Key, e *Entry) {
	t.tick++
	e.Used = t.tick
	t.last, t.lastKey = e, k
}

// Put adds an entry. If the table is full it drops the one used longest ago.
func (t *Table) Put(k Key, e *Entry) {
	if t.Programs == nil {
		t.Programs = map[Key]*Entry{}
	}
	if len(t.Programs) >= MaxPrograms {
		var oldest Key
		least := ^uint64(0)
		for old, v := range t.Programs {
			if v.Used < least {
				oldest, least = old, v.Used
			}
		}
		delete(t.Programs, oldest)
	}
	t.Programs[k] = e
	t.use(k, e)
}

// DropShares forgets the programs of an agreement on shares that is no longer in force. Programs of even shares stay.
func (t *Table) DropShares(version uint32) {
	if version != 0 {
		t.last = nil
		maps.DeleteFunc(t.Programs, func(k Key, _ *Entry) bool { return k.Shares == version })
	}
}

// Schedule is a schedule with the algorithm that made it.
type Schedule struct {
	Steps     *schedule.Schedule
	Algorithm string
}

// BuildSchedule chooses and builds the schedule of a shape on so many ranks. pods are the ranks of each pod; nil: there
// are none.
func BuildSchedule(s *calls.Shape, ranks int, from *Choices, cfg *settings.Config, pods [][]int) (Schedule, error) {
	coll := calls.Kinds[s.Kind].Collective
	block := int64(s.Count) * int64(s.Type.Size())
	var opts []schedule.Option
	if !s.InPlace {
		opts = append(opts, schedule.Disjoint)
	}
	var sched *schedule.Schedule
	var name string
	var err error
	if file := cfg.FileFor(coll, ranks); file != nil {
		name = file.Identity()
		sched, err = file.Schedule(int(s.Root), opts...)
	} else {
		_, asked := cfg.Algorithms[coll.String()]
		name = Arrange(coll, Choose(coll, block, ranks, from, cfg.Algorithms), pods, asked)
		sched, err = schedule.Build(coll, name, ranks, int(s.Root), opts...)
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("shim: %v: algorithm %s: %w", s.Kind, name, err)
	}
	return Schedule{sched, name}, nil
}

// Lower builds the schedule of a shape and lowers it under a plan, nil on packet planes. It completes args by what
// follows from the shape.
func Lower(
	c *comm.Core, s *calls.Shape, from *Choices, pods [][]int, plan *plans.Plan, args program.Args,
) (*Entry, error) {
	col, err := BuildSchedule(s, c.Ranks, from, c.Cfg, pods)
	if err != nil {
		return nil, err
	}
	e := &Entry{Signature: s.Signature(), Algorithm: col.Algorithm, Kernels: calls.KernelsOf(s, c.Ranks), Plan: plan}
	args.Rank, args.Count, args.ElemSize, args.InPlace = c.Rank, int64(s.Count), int64(s.Type.Size()), s.InPlace
	args.Scale = e.Kernels.Scale != nil
	if e.Prog, err = program.Lower(col.Steps, plan, args); err != nil {
		by := ""
		if plan != nil {
			by = ", planner " + plan.Planner
		}
		return nil, fmt.Errorf("shim: %v: algorithm %s%s: %w", s.Kind, col.Algorithm, by, err)
	}
	return e, nil
}
