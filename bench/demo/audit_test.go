package demo

import (
	"errors"
	"strings"
	"testing"

	"lightpath/collectives/wire"
	"lightpath/internal/require"
	"lightpath/ocsctl/emulator"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// The fabric of these tests has 4 ranks and 2 planes. Step 0 of the plan is step 0 of the schedule: to xor 1, over both
// planes. Step 1 is step 3 of the schedule: to the next rank but one. Plane 0 switches to xor 2 for it; plane 1
// forwards over a cycle.
const (
	testFrame = 1000 // payload bytes of a frame
	period    = 1_000_000
)

func testAuditor() auditor {
	cycle := circuit.Shift(4, 1)
	problem := &plans.Problem{
		Version: plans.Version, Ranks: 4, Planes: 2, BandwidthGbps: 1, ReconfigUS: 10, Forwarding: true,
		Circuits: plans.Simplex,
		Steps:    []plans.Step{{Bytes: 8000, To: circuit.Xor(4, 1)}, {Bytes: 6000, To: circuit.Xor(4, 2)}},
	}
	plan := &plans.Plan{
		Version: plans.Version, Planner: "hand", Initial: []circuit.Permutation{circuit.Xor(4, 1), circuit.Xor(4, 1)},
		Planes: [][]plans.Entry{
			{
				{Kind: plans.Transmit, Step: 0, Bytes: 5000, StartUS: 0, EndUS: 40},
				{Kind: plans.Reconfigure, To: circuit.Xor(4, 2), StartUS: 40, EndUS: 50},
				{Kind: plans.Transmit, Step: 1, Bytes: 4000, StartUS: 50, EndUS: 90},
				{Kind: plans.Reconfigure, To: circuit.Xor(4, 1), StartUS: 90, EndUS: 100},
			},
			{
				{Kind: plans.Transmit, Step: 0, Bytes: 3000, StartUS: 0, EndUS: 30},
				{Kind: plans.Reconfigure, To: cycle, StartUS: 30, EndUS: 40},
				{Kind: plans.Transmit, Step: 1, Bytes: 2000, Flows: []int{0, 1, 2, 3}, StartUS: 50, EndUS: 80},
				{Kind: plans.Reconfigure, To: circuit.Xor(4, 1), StartUS: 80, EndUS: 90},
			},
		},
	}
	return auditor{problem: problem, plan: plan, steps: []int{0, 3}, slack: 64}
}

// testLog returns the log that a switch would write of n iterations of the plan, one per period, and their windows.
func testLog(a auditor, n int) (*emulator.Log, []window) {
	log := &emulator.Log{Ports: a.problem.Ranks, Planes: a.problem.Planes}
	var iters []window
	epoch := make([]uint32, a.problem.Planes)
	for it := range n {
		origin := int64(1+it) * period
		ns := func(us float64) int64 { return origin + int64(us*1e3) }
		iters = append(iters, window{origin, origin + 200_000})
		for plane, entries := range a.plan.Planes {
			at := a.plan.Initial[plane]
			for _, e := range entries {
				if e.Kind == plans.Reconfigure {
					at = e.To
					epoch[plane]++
					log.Switches = append(log.Switches, emulator.SwitchRecord{
						Start: ns(e.StartUS), End: ns(e.EndUS), Plane: uint16(plane), Epoch: epoch[plane], Map: e.To,
					})
					continue
				}
				for _, f := range a.problem.Steps[e.Step].FlowList() {
					for r := f[0]; r != f[1]; r = at[r] {
						for sent := 0.0; sent < e.Bytes; sent += testFrame {
							log.Frames = append(log.Frames, frame(plane, a.steps[e.Step], r, at[r], testFrame, ns(e.StartUS), ns(e.EndUS),
								epoch[plane]))
						}
					}
				}
			}
		}
	}
	return log, iters
}

func frame(plane, step, src, dst, bytes int, start, end int64, epoch uint32) emulator.FrameRecord {
	r := emulator.FrameRecord{
		Start: start, Finish: end, Bytes: uint32(bytes), Epoch: epoch, Plane: uint16(plane), Src: uint16(src),
		Dst: uint16(dst),
	}
	wire.Encode(&wire.Header{Step: uint32(step), Plane: uint16(plane), Epoch: epoch, Length: uint32(bytes)}, r.Label[:])
	return r
}

func TestAuditPasses(t *testing.T) {
	a := testAuditor()
	log, iters := testLog(a, 3)
	// Frames before the first window belong to the warm-up. The audit checks them for losses only.
	log.Frames = append(log.Frames, frame(0, 3, 2, 3, 999, 5, 6, 0))
	got, err := a.audit(log, iters)
	require.NoError(t, err)
	// Per iteration: 8 frames a rank in step 0; 4 over one circuit and 2 over two in step 1.
	if want := 3*4*(8+4+2*2) + 1; got.Frames != want || got.Switches != 3*2 || got.Lost != 0 {
		t.Errorf("%+v, want %d frames and 6 switches, the switches before the last frame", got, want)
	}
}

// TestAuditFinds breaks the log of the third iteration in one way at a time.
func TestAuditFinds(t *testing.T) {
	const it = 2
	origin := int64(1+it) * period
	find := func(log *emulator.Log, plane, step, src int) *emulator.FrameRecord {
		var h wire.Header
		for i := range log.Frames {
			r := &log.Frames[i]
			require.NoError(t, wire.Decode(r.Label[:], &h))
			if r.Start >= origin && int(r.Plane) == plane && int(h.Step) == step && int(r.Src) == src {
				return r
			}
		}
		t.Fatalf("no frame of plane %d step %d from %d", plane, step, src)
		return nil
	}
	for _, c := range []struct {
		name  string
		bend  func(log *emulator.Log)
		says  string
		quiet bool // the audit passes: the difference is within the rounding to elements
	}{
		{"a frame lost in the dark", func(l *emulator.Log) { find(l, 1, 0, 2).Verdict = emulator.LostDark }, "lost 1 of",
			false},
		{"a frame of the wrong epoch", func(l *emulator.Log) { find(l, 0, 3, 2).Verdict = emulator.LostEpoch }, "lost 1 of",
			false},
		{"a frame of the warm-up lost", func(l *emulator.Log) { l.Frames[0].Verdict = emulator.LostVacant }, "lost 1 of",
			false},
		{"a frame ends in the switch", func(l *emulator.Log) { find(l, 0, 0, 3).Finish = origin + 41_000 },
			"plane 0: a frame from port 3 was on the wire while its circuit moved to epoch 5", false},
		{"a frame begins in the switch", func(l *emulator.Log) { find(l, 0, 3, 1).Start = origin + 45_000 },
			"plane 0: a frame from port 1", false},
		{"a frame outlasts the switch", func(l *emulator.Log) {
			r := find(l, 1, 0, 1)
			r.Start, r.Finish = origin, origin+60_000
		}, "plane 1: a frame from port 1", false},
		{"a frame touches the switch", func(l *emulator.Log) { find(l, 0, 0, 3).Finish = origin + 40_000 }, "", true},
		{"bytes are missing", func(l *emulator.Log) { find(l, 1, 3, 2).Bytes -= 65 },
			"iteration 2: plane 1 step 3 circuit 2 -> 3 carried 3935 bytes, the plan says 4000", false},
		{"bytes are missing within rounding", func(l *emulator.Log) { find(l, 1, 3, 2).Bytes -= 64 }, "", true},
		{"too many bytes", func(l *emulator.Log) { find(l, 0, 0, 1).Bytes += 65 },
			"iteration 2: plane 0 step 0 circuit 1 -> 0 carried 5065 bytes, the plan says 5000", false},
		{"a frame comes late", func(l *emulator.Log) {
			r := find(l, 0, 3, 0)
			r.Start, r.Finish = origin+300_000, origin+300_001
		}, "iteration 2: plane 0 step 3 circuit 0 -> 2 carried 3000 bytes, the plan says 4000", false},
		{"a step that the plan does not have", func(l *emulator.Log) {
			l.Frames = append(l.Frames, frame(1, 1, 0, 1, 10, origin+10, origin+20, 4))
		}, "iteration 2: plane 1 step 1 circuit 0 -> 1 carried 10 bytes, the plan says none", false},
		{"another circuit of the step", func(l *emulator.Log) { find(l, 1, 3, 0).Dst = 2 },
			"iteration 2: plane 1 step 3 circuit 0 -> ", false},
		{"a label that is none", func(l *emulator.Log) { find(l, 0, 0, 0).Label[3] ^= 1 }, "iteration 2: ", false},
	} {
		a := testAuditor()
		log, iters := testLog(a, 3)
		c.bend(log)
		_, err := a.audit(log, iters)
		switch {
		case c.quiet && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.quiet:
		case !errors.Is(err, ErrAudit) || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v; want ErrAudit with %q", c.name, err, c.says)
		}
	}
}

// TestAuditLeavesUnmovedCircuits checks that a circuit that a switch keeps may carry frames during the switch.
func TestAuditLeavesUnmovedCircuits(t *testing.T) {
	log := &emulator.Log{Ports: 4, Planes: 1, Switches: []emulator.SwitchRecord{
		{Start: 10, End: 20, Epoch: 1, Map: circuit.Permutation{1, 0, 3, 2}},
		{Start: 30, End: 40, Epoch: 2, Map: circuit.Permutation{1, 2, 3, 0}},
	}}
	log.Frames = []emulator.FrameRecord{frame(0, 0, 0, 1, 8, 25, 45, 1), frame(0, 0, 2, 3, 8, 25, 45, 1)}
	if err := checkQuietSwitching(log); err != nil {
		t.Error(err)
	}
	log.Frames = append(log.Frames, frame(0, 0, 1, 2, 8, 39, 45, 1))
	if err := checkQuietSwitching(log); !errors.Is(err, ErrAudit) || !strings.Contains(err.Error(), "port 1") {
		t.Errorf("%v, want the frame from port 1", err)
	}
}

func TestAuditRefusesPlansThatLeadNowhere(t *testing.T) {
	for name, m := range map[string]circuit.Permutation{"dark": circuit.AllDark(4),
		"a cycle beside it": circuit.Xor(4, 2)} {
		a := testAuditor()
		log, iters := testLog(a, 1)
		a.plan.Initial[1] = m
		if _, err := a.audit(log, iters); !errors.Is(err, ErrAudit) || !strings.Contains(err.Error(), "0 -> 1 on plane 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
