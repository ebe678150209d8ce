package shim

import (
	"runtime"
	"testing"
	"time"

	"lightpath/plans"
)

// How a rank waits follows from who else needs the CPUs.
func TestPolicy(t *testing.T) {
	cpus := runtime.NumCPU()
	comm := func(local int, alone bool, spin int, timeout time.Duration) *Comm {
		c := &Comm{cfg: &Config{Spin: spin, Timeout: timeout}}
		c.localRanks, c.alone = local, alone
		return c
	}
	for _, tc := range []struct {
		name    string
		comms   []*Comm
		light   bool
		spin    int
		yields  bool
		alone   bool
		timeout time.Duration
	}{
		{"a CPU each", []*Comm{comm(cpus, true, -1, 5)}, false, 64, true, true, 5},
		{"crowded", []*Comm{comm(cpus+1, true, -1, 5)}, false, 1, true, true, 5},
		{"crowded on circuits", []*Comm{comm(cpus+1, true, -1, 5)}, true, 0, false, true, 5},
		{"told", []*Comm{comm(cpus+1, true, 9, 5)}, false, 9, true, true, 5},
		{"ranks in this process", []*Comm{comm(cpus, false, -1, 5)}, false, 64, true, false, 5},
		{"two communicators", []*Comm{comm(cpus, false, -1, 4), comm(cpus, true, -1, 5)}, false, 64, true, false, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := &entry{}
			if tc.light {
				e.plan = &plans.Plan{}
			}
			s := &session{comms: tc.comms, refs: []taskRef{{entry: e}}}
			s.policy()
			if o := &s.opts; o.Spin != tc.spin || o.Yield > 0 != tc.yields || o.Alone != tc.alone || o.Timeout != tc.timeout {
				t.Errorf("%+v", o)
			}
		})
	}
}
