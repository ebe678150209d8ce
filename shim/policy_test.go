package shim

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
	rank := func(local int, alone bool, spin int, timeout time.Duration) *Comm {
		cfg := &settings.Config{Spin: spin, Timeout: timeout}
		return &Comm{Identity: comm.Identity{Cfg: cfg, LocalRanks: local, SoleRank: alone}}
	}
	packet, arena := &dispatch.Entry{Prog: &program.Program{}}, &dispatch.Entry{}
	light := &dispatch.Entry{Prog: packet.Prog, Plan: &plans.Plan{}}
	for _, tc := range []struct {
		name    string
		comms   []*Comm
		entry   *dispatch.Entry
		spin    int
		yields  bool
		alone   bool
		timeout time.Duration
	}{
		{"a CPU each", []*Comm{rank(cpus, true, -1, 5)}, packet, 64, true, true, 5},
		{"crowded", []*Comm{rank(cpus+1, true, -1, 5)}, packet, 1, true, true, 5},
		{"crowded on circuits", []*Comm{rank(cpus+1, true, -1, 5)}, light, 0, false, true, 5},
		{"told", []*Comm{rank(cpus+1, true, 9, 5)}, packet, 9, true, true, 5},
		{"ranks in this process", []*Comm{rank(cpus, false, -1, 5)}, packet, 64, true, false, 5},
		{"two communicators", []*Comm{rank(cpus, false, -1, 4), rank(cpus, true, -1, 5)}, packet, 64, true, false, 4},
		{"who has spun on shared memory", []*Comm{rank(cpus, true, -1, 5)}, arena, 0, true, true, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &session{comms: tc.comms, refs: []taskRef{{entry: tc.entry}}}
			s.policy()
			if o := &s.opts; o.Spin != tc.spin || o.Yield > 0 != tc.yields || o.Alone != tc.alone || o.Timeout != tc.timeout {
				t.Errorf("%+v", o)
			}
		})
	}
}
