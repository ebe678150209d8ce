package session

import (
	"fmt"
	"slices"

	"lightpath/collectives/program"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/log"
	"lightpath/shim/shares"
)

// Collectives of ranks that share memory need no frames: they run in that memory, unless the settings or the call name
// an algorithm or planes. The path of a call depends only on values that all ranks share, not on its group.

// sharedAlgorithm is the algorithm's name in logs and traces.
const sharedAlgorithm = "shared-memory"

// newEntry makes the program of a shape on the packet planes. units are the shares of the planes; nil: even.
func (st *State) newEntry(key dispatch.Key, units []int) (*dispatch.Entry, error) {
	c, s := st.c, key.Shape
	if st.InArena(s.Kind) && s.Request.Planes == 0 {
		return st.sharedEntry(s), nil
	}
	col, err := dispatch.BuildSchedule(&s, c.Ranks, dispatch.PacketsOf(c), c.Cfg, nil)
	if err != nil {
		return nil, err
	}
	k := calls.KernelsOf(&s, c.Ranks)
	var use []int
	if s.Request.Planes != 0 && !calls.FactsOf(c).Circuits { // otherwise the request names planes with circuits
		use = slices.Collect(s.Request.Planes.Each())
	}
	sig := s.Signature()
	if key.Shares != 0 {
		sig = program.Signature(uint64(sig), uint64(key.Shares))
	}
	p, err := program.Lower(col.Steps, nil, program.Args{
		Rank: c.Rank, Planes: len(st.Packet.Planes()), Use: use, Shares: units, Count: int64(s.Count),
		ElemSize: int64(s.Type.Size()),
		InPlace:  s.InPlace, Scale: k.Scale != nil, Signature: sig,
	})
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s: %w", s.Kind, col.Algorithm, err)
	}
	e := &dispatch.Entry{Prog: p, Signature: s.Signature(), Algorithm: col.Algorithm, Kernels: k}
	if st.Shares != nil {
		e.ReceivedBytes = shares.ReceivedBytes(p)
	}
	st.Programs.Put(key, e)
	st.Programs.Trace(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s, %d operations on packet planes",
		c.Rank, s.Kind, s.Count, s.Type, s.Root, col.Algorithm, p.Operations())
	return e, nil
}

// sharedEntry returns the entry of a shape that runs in shared memory.
func (st *State) sharedEntry(s calls.Shape) *dispatch.Entry {
	c := st.c
	e := &dispatch.Entry{Algorithm: sharedAlgorithm, Kernels: calls.KernelsOf(&s, c.Ranks), Signature: s.Signature()}
	st.Programs.Put(dispatch.Key{Shape: s}, e)
	st.Programs.Trace(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s", c.Rank, s.Kind, s.Count, s.Type,
		s.Root, e.Algorithm)
	return e
}
