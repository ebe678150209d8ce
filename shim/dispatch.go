package shim

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/settings"
)

// shape is what a program depends on besides rank and communicator.
type shape struct {
	kind    CallKind
	typ     datatype.Type
	op      datatype.Op
	inPlace bool
	root    int32
	count   uint64
	whole   uint64 // count of the call that this is a piece of; 0: none
	wish    wish
	plan    uint64       // 0: packet planes; else the number of the plan in the table of plans
	shares  uint32       // number of the agreement on the shares of packet planes; 0: even
	maps    uint64       // hash of the planes' maps where a setup precedes the plan, else 0
	planes  planeset.Set // that the plan is laid over
	// scripted: the call is interposed, under the plan that all ranks have for its shape.
	scripted bool
}

// entry is a program with the kernels that it needs.
type entry struct {
	prog      *program.Program // nil where the arena does it
	sig       uint32           // of the call
	algorithm string
	kernels   kernels
	plan      *plans.Plan // nil on packet planes
	brings    []int64     // bytes by plane, where they are measured
	used      uint64      // tick of the last use
}

// maxPrograms bounds the table: an application has few call shapes, and one that has
// not pays a search for the oldest entry with each new program.
const maxPrograms = 1024

// programs is a communicator's table from shapes to programs. Not safe for concurrent
// use. A hit allocates nothing.
type programs struct {
	table map[shape]*entry
	tick  uint64
}

func (p *programs) get(s shape) *entry {
	e := p.table[s]
	if e != nil {
		p.tick++
		e.used = p.tick
	}
	return e
}

func (p *programs) put(s shape, e *entry) {
	if p.table == nil {
		p.table = map[shape]*entry{}
	}
	if len(p.table) >= maxPrograms {
		var oldest shape
		least := ^uint64(0)
		for k, v := range p.table {
			if v.used < least {
				oldest, least = k, v.used
			}
		}
		delete(p.table, oldest)
	}
	p.tick++
	e.used = p.tick
	p.table[s] = e
}

// dropShares forgets the programs of an agreement on shares that is no longer in force; those of even shares stay.
func (p *programs) dropShares(version uint32) {
	if version != 0 {
		maps.DeleteFunc(p.table, func(s shape, _ *entry) bool { return s.shares == version })
	}
}

// shapeOf returns the shape of a collective call on packet planes.
func shapeOf(c *Call, inPlace bool) shape {
	k := &kinds[c.Kind]
	s := shape{kind: c.Kind, typ: c.Type, inPlace: inPlace, count: c.Count, whole: c.whole, wish: wish{c.Options.Plan, planeset.Set(c.Options.Planes)}}
	if k.reduces {
		s.op = c.Op
	}
	if k.rooted {
		s.root = c.Peer
	}
	return s
}

// callSignature identifies what ranks must agree on, in frames and in messages between
// them: everything of a shape but whether this rank's call is in place.
func (s *shape) callSignature() uint32 {
	if s.scripted {
		plain := *s
		plain.scripted = false
		return program.Signature(uint64(plain.callSignature()), 1)
	}
	return program.Signature(uint64(s.kind), uint64(s.typ), uint64(s.op), uint64(s.root), s.count, s.wish.signature()^bits.RotateLeft64(s.whole, 32))
}

// collective is a schedule with what it was chosen for.
type collective struct {
	sched     *schedule.Schedule
	algorithm string
}

// buildSchedule chooses and builds the schedule of a shape on so many ranks, which are in pods, or
// in none.
func buildSchedule(s *shape, ranks int, optical bool, cfg *settings.Config, pods [][]int) (collective, error) {
	coll := kinds[s.kind].collective
	block := int64(s.count) * int64(s.typ.Size())
	var opts []schedule.Option
	if !s.inPlace {
		opts = append(opts, schedule.Disjoint())
	}
	var sched *schedule.Schedule
	var name string
	var err error
	if file := cfg.FileFor(coll, ranks); file != nil {
		name = file.Identity()
		sched, err = file.Schedule(int(s.root), opts...)
	} else {
		name = arrange(coll, chooseAlgorithm(coll, block, ranks, optical, cfg.Algorithms), pods, cfg.Algorithms)
		sched, err = schedule.Build(coll, name, ranks, int(s.root), opts...)
	}
	if err != nil {
		return collective{}, fmt.Errorf("shim: %v: algorithm %s: %w", s.kind, name, err)
	}
	return collective{sched, name}, nil
}

// packetEntry returns the program of a shape on the packet planes, for the collective that is next to get a number.
func packetEntry(c *Comm, s shape) (*entry, error) {
	var units []int
	if sharesOf(c) != nil && s.wish.planes == 0 {
		if err := enterShares(c, hostOf(c).seq+1); err != nil {
			return nil, err
		}
		s.shares, units = sharesOf(c).version, sharesOf(c).units
	}
	if e := hostOf(c).programs.get(s); e != nil {
		return e, nil
	}
	if throughArena(c, s.kind) && s.wish.planes == 0 {
		return newArenaEntry(c, s), nil
	}
	col, err := buildSchedule(&s, c.Ranks, false, c.Cfg, nil)
	if err != nil {
		return nil, err
	}
	k := kernelsOf(&s, c.Ranks)
	var use []int
	if s.wish.planes != 0 && opticalOf(c) == nil { // else they are planes with circuits
		use = slices.Collect(s.wish.planes.Each())
	}
	sig := s.callSignature()
	if s.shares != 0 {
		sig = program.Signature(uint64(sig), uint64(s.shares))
	}
	p, err := program.Lower(col.sched, nil, program.Args{
		Rank: c.Rank, Planes: len(hostOf(c).packet.Planes()), Use: use, Shares: units, Count: int64(s.count), ElemSize: int64(s.typ.Size()),
		InPlace: s.inPlace, Scale: k.scale != nil, Signature: sig,
	})
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s: %w", s.kind, col.algorithm, err)
	}
	e := &entry{prog: p, sig: s.callSignature(), algorithm: col.algorithm, kernels: k}
	if sharesOf(c) != nil {
		e.brings = brings(p)
	}
	hostOf(c).programs.put(s, e)
	traceEntry(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s, %d operations on packet planes",
		c.Rank, s.kind, s.count, s.typ, s.root, col.algorithm, len(p.Ops))
	return e, nil
}
