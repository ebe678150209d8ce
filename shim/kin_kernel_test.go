package shim

import "testing"

// TestKinOnKernelPlanes: parent and child share the interfaces of their ports.
func TestKinOnKernelPlanes(t *testing.T) {
	kernelFabric(t, 4, 2, 5e8)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	w := newWorld(t, 4)
	w.must(sums)
	f, errs := w.bears(func(c *Comm) Origin { return Origin{Parent: c, How: BySplit, Color: c.Rank % 2} })
	none(t, errs)
	f.must(sums)
	w.must(sums)
	f.must(sums)
	for _, c := range f.children {
		if onCircuits(c) == 0 {
			t.Errorf("comm %#x rank %d never used a circuit", c.ID, c.Rank)
		}
	}
}
