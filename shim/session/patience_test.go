package session

import (
	"runtime"
	"testing"
	"time"

	"lightpath/collectives/program"
	"lightpath/plans"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/settings"
)

// How a rank waits follows from who else needs the CPUs.
func TestPolicy(t *testing.T) {
	cpus := runtime.NumCPU()
	rank := func(local int, alone bool, spin int, timeout time.Duration) *comm.Core {
		cfg := &settings.Config{Spin: spin, Timeout: timeout}
		return &comm.Core{Identity: comm.Identity{Cfg: cfg, LocalRanks: local, SoleRank: alone}}
	}
	packet, arena := &dispatch.Entry{Prog: &program.Program{}}, &dispatch.Entry{}
	light := &dispatch.Entry{Prog: packet.Prog, Plan: &plans.Plan{}}
	for _, tc := range []struct {
		name    string
		comms   []*comm.Core
		entry   *dispatch.Entry
		spin    int
		yields  bool
		alone   bool
		timeout time.Duration
	}{
		{"a CPU each", []*comm.Core{rank(cpus, true, -1, 5)}, packet, 64, true, true, 5},
		{"crowded", []*comm.Core{rank(cpus+1, true, -1, 5)}, packet, 1, true, true, 5},
		{"crowded on circuits", []*comm.Core{rank(cpus+1, true, -1, 5)}, light, 0, false, true, 5},
		{"told", []*comm.Core{rank(cpus+1, true, 9, 5)}, packet, 9, true, true, 5},
		{"ranks in this process", []*comm.Core{rank(cpus, false, -1, 5)}, packet, 64, true, false, 5},
		{"two communicators", []*comm.Core{rank(cpus, false, -1, 4), rank(cpus, true, -1, 5)}, packet, 64, true, false, 4},
		{"who has spun on shared memory", []*comm.Core{rank(cpus, true, -1, 5)}, arena, 0, true, true, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &Session{Comms: tc.comms, refs: []Ref{{Entry: tc.entry}}}
			s.setWaiting()
			if o := &s.opts; o.Spin != tc.spin || o.Yield > 0 != tc.yields || o.Alone != tc.alone || o.Timeout != tc.timeout {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestPatience: ranks whose spinning is in vain soon spin less, but try again, and go back to it.
func TestPatience(t *testing.T) {
	var p Patience
	for range 10 {
		if n := p.polls(); n == SpinLong {
			p.Learn(n, false)
		}
	}
	long := 0
	for range 64 {
		if n := p.polls(); n == SpinLong {
			long++
			p.Learn(n, false)
		}
	}
	if long != 2 {
		t.Errorf("%d of 64 calls spin long", long)
	}
	for p.polls() != SpinLong {
		p.Learn(SpinShort, false)
	}
	p.Learn(SpinLong, true)
	if n := p.polls(); n != SpinLong {
		t.Errorf("%d polls where spinning pays", n)
	}
}
