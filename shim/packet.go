package shim

import (
	"fmt"
	"slices"

	"lightpath/collectives/program"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/log"
	"lightpath/shim/shares"
)

// packetEntry returns the program of a shape on the packet planes, for the collective that is next to get a number.
func packetEntry(c *comm.Core, s calls.Shape) (*dispatch.Entry, error) {
	key := dispatch.Key{Shape: s}
	var units []int
	if p := shares.Of(c); p != nil && s.Request.Planes == 0 {
		var err error
		if key.Shares, units, err = p.Enter(c, hostOf(c).seq+1, &hostOf(c).programs); err != nil {
			return nil, err
		}
	}
	if e := hostOf(c).programs.Get(key); e != nil {
		return e, nil
	}
	if throughArena(c, s.Kind) && s.Request.Planes == 0 {
		return newArenaEntry(c, s), nil
	}
	col, err := dispatch.BuildSchedule(&s, c.Ranks, false, c.Cfg, nil)
	if err != nil {
		return nil, err
	}
	k := calls.KernelsOf(&s, c.Ranks)
	var use []int
	if s.Request.Planes != 0 && circuits.Of(c) == nil { // else they are planes with circuits
		use = slices.Collect(s.Request.Planes.Each())
	}
	sig := s.Signature()
	if key.Shares != 0 {
		sig = program.Signature(uint64(sig), uint64(key.Shares))
	}
	p, err := program.Lower(col.Steps, nil, program.Args{
		Rank: c.Rank, Planes: len(hostOf(c).packet.Planes()), Use: use, Shares: units, Count: int64(s.Count), ElemSize: int64(s.Type.Size()),
		InPlace: s.InPlace, Scale: k.Scale != nil, Signature: sig,
	})
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s: %w", s.Kind, col.Algorithm, err)
	}
	e := &dispatch.Entry{Prog: p, Signature: s.Signature(), Algorithm: col.Algorithm, Kernels: k}
	if shares.Of(c) != nil {
		e.Brings = shares.Brings(p)
	}
	hostOf(c).programs.Put(key, e)
	hostOf(c).programs.Trace(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s, %d operations on packet planes",
		c.Rank, s.Kind, s.Count, s.Type, s.Root, col.Algorithm, len(p.Ops))
	return e, nil
}
