package membership_test

import (
	"testing"

	"lightpath/shim"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

// TestKinOnKernelPlanes: parent and child share the interfaces of their ports.
func TestKinOnKernelPlanes(t *testing.T) {
	shimtest.UseKernelPlanes(t, 4, 2, 5e8)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	w := shimtest.NewWorld(t, 4)
	w.Must(shimtest.CheckSums)
	f, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.BySplit, Color: c.Rank % 2}
	})
	shimtest.NoErrors(t, errs)
	f.Must(shimtest.CheckSums)
	w.Must(shimtest.CheckSums)
	f.Must(shimtest.CheckSums)
	for _, c := range f.Children {
		if shimtest.ProgramsOnCircuits(c) == 0 {
			t.Errorf("comm %#x rank %d never used a circuit", c.ID, c.Rank)
		}
	}
}
