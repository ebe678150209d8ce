package shim_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/exec"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// TestPlaneMask: a call stays on the packet planes that it is told.
func TestPlaneMask(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	t.Setenv("LIGHTPATH_PLANES", "3")
	w := shimtest.NewWorld(t, 3)
	out, errs := shimtest.SumWith(w, func(int) calls.Options { return calls.Options{Planes: 0b101} })
	for r := range out {
		if errs[r] != nil || out[r] != 6 {
			t.Fatalf("rank %d: %v, %v", r, out[r], errs[r])
		}
	}
	for s, e := range session.Of(w.Comms[0]).Programs.Programs {
		if s.Request.Planes != 0b101 || len(e.Prog.Lanes) != 3 {
			t.Errorf("%+v on %d lanes", s, len(e.Prog.Lanes))
		}
		for i := range e.Prog.Code {
			if p := e.Prog.Code[i].Plane; p == 1 {
				t.Errorf("operation %d is on plane 1", i)
			}
		}
	}
	// Larger calls, which are cut.
	k := shimtest.Collective{Kind: calls.AllToAll, Type: datatype.Float64, Count: 40000,
		Options: calls.Options{Planes: 0b110}}
	assert.NoError(t, k.Run(w, rand.New(rand.NewPCG(8, 8))))
}

// TestSlowPlanes: the fabric file says that planes are slow, so calls and messages of few KiB use several.
func TestSlowPlanes(t *testing.T) {
	fabric := filepath.Join(t.TempDir(), "planes.yaml")
	text := "version: 1\nranks: 3\nplanes: [{name: a, bandwidth: 200Mbps}]\n"
	require.NoError(t, os.WriteFile(fabric, []byte(text), 0o600))
	t.Setenv("LIGHTPATH_FABRIC", fabric)
	t.Setenv("LIGHTPATH_TRANSPORT", "tcp")
	t.Setenv("LIGHTPATH_PLANES", "3")
	w := shimtest.NewWorld(t, 3)
	w.RunAll(t, rand.New(rand.NewPCG(3, 9)), 1001)
	for key, e := range session.Of(w.Comms[0]).Programs.Programs {
		used := map[int]bool{}
		for i := range e.Prog.Code {
			used[int(e.Prog.Code[i].Plane)] = true
		}
		if key.Kind == calls.AllGather && len(used) < 3 {
			t.Errorf("%v uses planes %v", key.Shape, used)
		}
	}
	messages := shimtest.RandomMessages(rand.New(rand.NewPCG(3, 9)), 3, 5000)
	require.NoError(t, messages.Exchange(w, 0, func(int) time.Duration { return 0 }))
}

// TestOptionsDiffer: ranks that ask for different planes are told what both asked for.
func TestOptionsDiffer(t *testing.T) {
	t.Parallel()
	w := shimtest.NewWorldWith(t, 2, shimtest.Settings(t, "LIGHTPATH_TRANSPORT", "inproc", "LIGHTPATH_PLANES", "2"))
	_, errs := shimtest.SumWith(w, func(r int) calls.Options { return calls.Options{Planes: uint64(1 + r)} })
	shimtest.WantErrors(t, errs, errdefs.ErrMismatch, "rank 0 called", "planes 0x1)", "rank 1 called", "planes 0x2)")
}

func TestBadOptions(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	c := shimtest.NewWorld(t, 1).Comms[0]
	var in, out float32
	for says, o := range map[string]calls.Options{
		"planes 0x2": {Planes: 2}, "no planes with circuits": {Plan: calls.DigestPrefix{Bits: 1 << 60, Digits: 1}},
		"17": {Plan: calls.DigestPrefix{Digits: 17}}, "deadline": {Deadline: -1},
	} {
		shimtest.WantError(t, shimtest.ReduceWith(c, &in, &out, o), errdefs.ErrInvalidArgument, says)
	}
	err := shim.Run([]calls.Call{{Comm: c, Kind: calls.Send, Type: datatype.Int8, Count: 1, Send: unsafe.Pointer(&in),
		Options: calls.Options{Planes: 1}}})
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, "only collectives")
}

// TestDeadline: a call that cannot end in time fails, long before LIGHTPATH_TIMEOUT, and so does
// its communicator; with time enough nothing happens.
func TestDeadline(t *testing.T) {
	for _, transport := range []string{"inproc", "shm"} {
		t.Run(transport, func(t *testing.T) { deadline(t, transport) })
	}
}

func deadline(t *testing.T, transport string) {
	t.Setenv("LIGHTPATH_TRANSPORT", transport)
	t.Setenv("LIGHTPATH_TIMEOUT", "10m")
	w := shimtest.NewWorld(t, 2)
	out, errs := shimtest.SumWith(w, func(int) calls.Options { return calls.Options{Deadline: time.Hour} })
	if errs[0] != nil || errs[1] != nil || out[0] != 3 {
		t.Fatal(out, errs)
	}
	var in, alone float32
	err := shimtest.Concurrently(t, 1, func(int) error {
		return shimtest.ReduceWith(w.Comms[1], &in, &alone, calls.Options{Deadline: 20 * time.Millisecond})
	})[0]
	shimtest.WantError(t, err, exec.ErrDeadline, "rank 1", "deadline", "waiting for")
	if result.Of(err) != result.Timeout {
		t.Errorf("result %v", result.Of(err))
	}
	select {
	case <-w.Comms[0].FailedChan():
	case <-time.After(30 * time.Second):
		t.Error("the other rank does not learn of it")
	}
}

// TestDeadlineOnCircuits: the same while the leader waits for the others.
func TestDeadlineOnCircuits(t *testing.T) {
	shimtest.UseEmulator(t, 2, 1, nil)
	w := shimtest.NewWorld(t, 2)
	var in, out float32
	err := shimtest.ReduceWith(w.Comms[0], &in, &out, calls.Options{Deadline: 20 * time.Millisecond})
	shimtest.WantError(t, err, exec.ErrDeadline, "rank 0", "no ticket")
}

// TestPlaneMaskOnCircuits checks that the plan uses only the requested planes, and that the next call may use the
// others, with any maps.
func TestPlaneMaskOnCircuits(t *testing.T) {
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	server := shimtest.UseEmulator(t, 4, 3, nil)
	w := shimtest.NewWorld(t, 4)
	rng := rand.New(rand.NewPCG(9, 9))
	for i, mask := range []uint64{0b010, 0, 0b101, 0b010, 0b111, 0} {
		before := shimtest.FramesByPlane(t, server)
		k := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Int32, Count: 4096,
			Options: calls.Options{Planes: mask}}
		if err := k.Run(w, rng); err != nil {
			t.Fatalf("call %d, planes %#b: %v", i, mask, err)
		}
		for j, n := range shimtest.FramesByPlane(t, server) {
			if want := mask == 0 || mask>>j&1 != 0; (n > before[j]) != want {
				t.Errorf("call %d, planes %#b: plane %d carried %d frames", i, mask, j, n-before[j])
			}
		}
	}
	shimtest.NoLosses(t, server)
}

// TestNamedPlan: a call runs the plan that it names, and no other.
func TestNamedPlan(t *testing.T) {
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLANNER", "static")
	t.Setenv("LIGHTPATH_PLAN_TOLERANCE", "0")
	t.Setenv("LIGHTPATH_PLAN_DIR", t.TempDir())
	shimtest.UseEmulator(t, 4, 2, nil)
	planOf := func(planner string) *plans.Plan {
		t.Setenv("LIGHTPATH_PLANNER", planner)
		w := shimtest.NewWorld(t, 4)
		if _, errs := shimtest.SumWith(w, func(int) calls.Options { return calls.Options{} }); errs[0] != nil {
			t.Fatal(errs)
		}
		return shimtest.LastPlan(t, w)
	}
	swot, static := planOf("swot"), planOf("static")
	if swot.Digest == static.Digest {
		t.Fatal("one plan of two planners")
	}
	w := shimtest.NewWorld(t, 4) // whose planner is static
	for _, want := range []*plans.Plan{swot, static, swot} {
		name := prefixOf(t, want.Digest[:12])
		_, errs := shimtest.SumWith(w, func(int) calls.Options { return calls.Options{Plan: name} })
		shimtest.NoErrors(t, errs)
		if got := shimtest.LastPlan(t, w); got.Digest != want.Digest {
			t.Errorf("ran %.12s of %s, want %.12s", got.Digest, got.Planner, want.Digest)
		}
	}
	_, errs := shimtest.SumWith(w, func(int) calls.Options { return calls.Options{Plan: prefixOf(t, "0123456789ab")} })
	shimtest.WantErrors(t, errs, errdefs.ErrInvalidUsage, "plan 0123456789ab", "known: ", swot.Digest[:12])
}

func prefixOf(t *testing.T, digits string) (p calls.DigestPrefix) {
	t.Helper()
	for i, d := range digits {
		v := uint64(d - '0')
		if d > '9' {
			v = uint64(d-'a') + 10
		}
		p.Bits |= v << (60 - 4*i)
		p.Digits++
	}
	if p.String() != digits {
		t.Fatalf("%q is written %q", digits, p)
	}
	return p
}
