package circuits_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/path/optical"
	"lightpath/shim/planeset"
	"lightpath/shim/result"
	"lightpath/shim/shimtest"
)

// TestPlanesInTheKernel runs every collective over circuits that are real, direct and forwarded by
// the kernel: every byte right, no frame lost.
func TestPlanesInTheKernel(t *testing.T) {
	for _, name := range []string{"swot", "harvest"} {
		t.Run(name, func(t *testing.T) {
			_, lost := shimtest.UseKernelPlanes(t, 4, 2, 5e8)
			t.Setenv("LIGHTPATH_PLANNER", name)
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
			w := shimtest.NewWorld(t, 4)
			rng := rand.New(rand.NewPCG(6, 6))
			for _, count := range []int{1, 4001} {
				w.RunAll(t, rng, count)
			}
			if n := len(optical.Of(w.Comms[0]).Packet); n > 0 {
				t.Errorf("%d shapes ran on packet planes", n)
			}
			if problems := lost(); len(problems) > 0 {
				t.Errorf("%q", problems)
			}
		})
	}
}

// TestSkippedDrainInTheKernel: ranks that ask for a switch with frames on the wire lose them. The
// call fails on every rank, and says what was lost where.
func TestSkippedDrainInTheKernel(t *testing.T) { shimtest.RetryUntilLost(t, skippedDrainInTheKernel) }

func skippedDrainInTheKernel(t *testing.T) bool {
	_, lost := shimtest.UseKernelPlanes(t, 4, 1, 2e7) // so that frames are on the wire for long
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_FAULT", "skip-drain:0:1") // after the move to where the plan begins
	w := shimtest.NewWorld(t, 4)
	errs := w.Each(func(c *shim.Comm) error {
		return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1<<18))})
	})
	if len(lost()) == 0 {
		shimtest.NoErrors(t, errs)
		return false
	}
	for r, err := range errs {
		shimtest.WantError(t, err, transport.ErrDark, "rank ", "plane 0", "dark")
		if result.Of(err) != result.SystemError {
			t.Errorf("rank %d: result %d", r, result.Of(err))
		}
	}
	return true
}

// TestPlaneDisabledInTheKernel: collectives go on over the planes that are left, and use the other
// again when it is back; no frame is lost over it.
func TestPlaneDisabledInTheKernel(t *testing.T) {
	core, lost := shimtest.UseKernelPlanes(t, 4, 2, 5e8)
	t.Setenv("LIGHTPATH_PLANNER", "harvest")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	w := shimtest.NewWorld(t, 4)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, use := range []planeset.Set{0b11, 0b01, 0, 0b10, 0b11} {
		for j := range 2 {
			var err error
			if use.Has(j) {
				err = core.Enable(j, "ops")
			} else {
				err = core.Disable(j, "cleaning", "ops")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		issued := circuits.Of(w.Comms[2]).Machine.Ticket()
		if !shimtest.Eventually(func() bool { w.RunAll(t, rng, 501); return issued.Use == use }) {
			t.Errorf("planes %#b are in use, want %#b", issued.Use, use)
		}
	}
	if problems := lost(); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
}

// TestCablePulled pulls the cable of one rank on one plane. Every rank's error begins with it, although ranks wait for
// other ranks and on the other plane, too.
func TestCablePulled(t *testing.T) {
	shimtest.UseKernelPlanes(t, 4, 2, 5e8)
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w := shimtest.NewWorld(t, 4)
	call := func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1<<16))}) }
	w.Must(call)
	w.SetTimeout(500 * time.Millisecond)
	shimtest.PullCable(t, 2, 1)
	if !shimtest.Eventually(func() bool { return len(w.Comms[2].Faults(0)) > 0 }) {
		t.Fatal("rank 2 does not see that the carrier is lost")
	}
	for r, err := range w.Each(call) {
		if err == nil || !strings.HasPrefix(err.Error(), "shim: plane 1 of rank 2 (") || !strings.Contains(err.Error(),
			"interface p1 has no carrier; ") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
