package shim

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/exec"
	"lightpath/plans"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
	"lightpath/shim/session"
)

// reduceWith is an AllReduce of one float with options.
func reduceWith(c *Comm, in, out *float32, o calls.Options) error {
	return Run([]calls.Call{{
		Comm: c, Kind: calls.AllReduce, Type: datatype.Float32, Count: 1,
		Send: unsafe.Pointer(in), Recv: unsafe.Pointer(out), Options: o,
	}})
}

// sumWith runs one on all ranks, each with its rank + 1.
func sumWith(w *world, o func(rank int) calls.Options) ([]float32, []error) {
	out := make([]float32, len(w.comms))
	errs := w.each(func(c *Comm) error {
		in := float32(c.Rank + 1)
		return reduceWith(c, &in, &out[c.Rank], o(c.Rank))
	})
	return out, errs
}

// TestPlaneMask: a call stays on the packet planes that it is told.
func TestPlaneMask(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	t.Setenv("LIGHTPATH_PLANES", "3")
	w := newWorld(t, 3)
	out, errs := sumWith(w, func(int) calls.Options { return calls.Options{Planes: 0b101} })
	for r := range out {
		if errs[r] != nil || out[r] != 6 {
			t.Fatalf("rank %d: %v, %v", r, out[r], errs[r])
		}
	}
	for s, e := range session.Of(w.comms[0]).Programs.Programs {
		if s.Request.Planes != 0b101 || len(e.Prog.Lanes) != 3 {
			t.Errorf("%+v on %d lanes", s, len(e.Prog.Lanes))
		}
		for i := range e.Prog.Ops {
			if p := e.Prog.Ops[i].Plane; p == 1 {
				t.Errorf("operation %d is on plane 1", i)
			}
		}
	}
	// Larger calls, which are cut.
	k := collectiveCase{kind: calls.AllToAll, typ: datatype.Float64, count: 40000, options: calls.Options{Planes: 0b110}}
	if err := k.run(w, rand.New(rand.NewPCG(8, 8))); err != nil {
		t.Error(err)
	}
}

// TestOptionsDiffer: ranks that ask for different planes are told what both asked for.
func TestOptionsDiffer(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	t.Setenv("LIGHTPATH_PLANES", "2")
	t.Setenv("LIGHTPATH_TIMEOUT", "30s")
	w := newWorld(t, 2)
	_, errs := sumWith(w, func(r int) calls.Options { return calls.Options{Planes: uint64(1 + r)} })
	for _, err := range errs {
		wantError(t, err, errdefs.ErrMismatch, "rank 0 called", "planes 0x1)", "rank 1 called", "planes 0x2)")
	}
}

func TestBadOptions(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	c := newWorld(t, 1).comms[0]
	var in, out float32
	for says, o := range map[string]calls.Options{
		"planes 0x2": {Planes: 2}, "no planes with circuits": {Plan: calls.DigestPrefix{Bits: 1 << 60, Digits: 1}}, "17": {Plan: calls.DigestPrefix{Digits: 17}}, "deadline": {Deadline: -1},
	} {
		wantError(t, reduceWith(c, &in, &out, o), errdefs.ErrInvalidArgument, says)
	}
	err := Run([]calls.Call{{Comm: c, Kind: calls.Send, Type: datatype.Int8, Count: 1, Send: unsafe.Pointer(&in), Options: calls.Options{Planes: 1}}})
	wantError(t, err, errdefs.ErrInvalidArgument, "only collectives")
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
	w := newWorld(t, 2)
	out, errs := sumWith(w, func(int) calls.Options { return calls.Options{Deadline: time.Hour} })
	if errs[0] != nil || errs[1] != nil || out[0] != 3 {
		t.Fatal(out, errs)
	}
	var in, alone float32
	err := concurrently(t, 1, func(int) error {
		return reduceWith(w.comms[1], &in, &alone, calls.Options{Deadline: 20 * time.Millisecond})
	})[0]
	wantError(t, err, exec.ErrDeadline, "rank 1", "deadline", "waiting for")
	if result.Of(err) != result.Timeout {
		t.Errorf("result %v", result.Of(err))
	}
	select {
	case <-w.comms[0].FailedChan():
	case <-time.After(30 * time.Second):
		t.Error("the other rank does not learn of it")
	}
}

// TestDeadlineOnCircuits: the same while the leader waits for the others.
func TestDeadlineOnCircuits(t *testing.T) {
	lightFabric(t, 2, 1, nil)
	w := newWorld(t, 2)
	var in, out float32
	err := reduceWith(w.comms[0], &in, &out, calls.Options{Deadline: 20 * time.Millisecond})
	wantError(t, err, exec.ErrDeadline, "rank 0", "no ticket")
}

// TestPlaneMaskOnCircuits: the plan is one for the planes asked for, and those that the mask leaves
// out may be used by the next call, wherever they stand.
func TestPlaneMaskOnCircuits(t *testing.T) {
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	server := lightFabric(t, 4, 3, nil)
	w := newWorld(t, 4)
	rng := rand.New(rand.NewPCG(9, 9))
	for i, mask := range []uint64{0b010, 0, 0b101, 0b010, 0b111, 0} {
		before := carried(t, server)
		k := collectiveCase{kind: calls.AllReduce, typ: datatype.Int32, count: 4096, options: calls.Options{Planes: mask}}
		if err := k.run(w, rng); err != nil {
			t.Fatalf("call %d, planes %#b: %v", i, mask, err)
		}
		for j, n := range carried(t, server) {
			if want := mask == 0 || mask>>j&1 != 0; (n > before[j]) != want {
				t.Errorf("call %d, planes %#b: plane %d carried %d frames", i, mask, j, n-before[j])
			}
		}
	}
	noLosses(t, server)
}

// TestNamedPlan: a call runs the plan that it names, and no other.
func TestNamedPlan(t *testing.T) {
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLANNER", "static")
	t.Setenv("LIGHTPATH_PLAN_TOLERANCE", "0")
	t.Setenv("LIGHTPATH_PLAN_DIR", t.TempDir())
	lightFabric(t, 4, 2, nil)
	planOf := func(planner string) *plans.Plan {
		t.Setenv("LIGHTPATH_PLANNER", planner)
		w := newWorld(t, 4)
		if _, errs := sumWith(w, func(int) calls.Options { return calls.Options{} }); errs[0] != nil {
			t.Fatal(errs)
		}
		return lastPlan(t, w)
	}
	swot, static := planOf("swot"), planOf("static")
	if swot.Digest == static.Digest {
		t.Fatal("one plan of two planners")
	}
	w := newWorld(t, 4) // whose planner is static
	for _, want := range []*plans.Plan{swot, static, swot} {
		name := prefixOf(t, want.Digest[:12])
		_, errs := sumWith(w, func(int) calls.Options { return calls.Options{Plan: name} })
		for r, err := range errs {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		if got := lastPlan(t, w); got.Digest != want.Digest {
			t.Errorf("ran %.12s of %s, want %.12s", got.Digest, got.Planner, want.Digest)
		}
	}
	_, errs := sumWith(w, func(int) calls.Options { return calls.Options{Plan: prefixOf(t, "0123456789ab")} })
	for _, err := range errs {
		wantError(t, err, errdefs.ErrInvalidUsage, "plan 0123456789ab", "known: ", swot.Digest[:12])
	}
}

// lastPlan is the plan of the program that rank 0 used last.
func lastPlan(t *testing.T, w *world) *plans.Plan {
	t.Helper()
	var last *dispatch.Entry
	for _, e := range session.Of(w.comms[0]).Programs.Programs {
		if last == nil || e.Used > last.Used {
			last = e
		}
	}
	if last == nil || last.Plan == nil {
		t.Fatal("no program with a plan")
	}
	return last.Plan
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
