package session

import (
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
	var use []int
	if s.Request.Planes != 0 && !calls.FactsOf(c).Circuits { // otherwise the request names planes with circuits
		use = slices.Collect(s.Request.Planes.Each())
	}
	sig := s.Signature()
	if key.Shares != 0 {
		sig = program.Signature(uint64(sig), uint64(key.Shares))
	}
	e, err := dispatch.Lower(c, &s, dispatch.PacketsOf(c), nil, nil, program.Args{
		Planes: len(st.Packet.Planes()), Use: use, Shares: units, MinPiece: st.MinPiece, Signature: sig,
	})
	if err != nil {
		return nil, err
	}
	if st.Shares != nil {
		e.ReceivedBytes = shares.ReceivedBytes(e.Prog)
	}
	st.Programs.Put(key, e)
	st.Programs.Trace(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s, %d instructions on packet planes",
		c.Rank, s.Kind, s.Count, s.Type, s.Root, e.Algorithm, e.Prog.Instructions())
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
