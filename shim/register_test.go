package shim_test

import (
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/shimtest"
)

// TestRegistrations: a handle is good for its communicator, kind and time, and memory outlives its
// registrations.
func TestRegistrations(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	a, b := shimtest.NewWorld(t, 1).Comms[0], shimtest.NewWorld(t, 1).Comms[0]
	const base = uintptr(0xfffe) << 48
	memory.Add(memory.Region{Base: base, Size: 4096, FD: -1})
	reg := func(c *shim.Comm, window bool) uint64 {
		h, err := shim.Register(c, shimtest.FakeAddress(base+1000), 10, window, 0)
		require.NoError(t, err)
		return h
	}
	plain, window, others := reg(a, false), reg(a, true), reg(b, false)
	if p, err := shim.Registered(a, window, true, false); err != nil || uintptr(p) != base+1000 {
		t.Error(p, err)
	}
	check := func(err error, says string) {
		t.Helper()
		shimtest.WantError(t, err, errdefs.ErrInvalidArgument, says)
	}
	_, err := shim.Registered(a, window, false, true)
	check(err, "not a handle")
	_, err = shim.Registered(a, plain, true, true)
	check(err, "not a window")
	_, err = shim.Registered(a, others, false, true)
	check(err, "another communicator")
	_, err = shim.Register(a, shimtest.FakeAddress(^uintptr(0)), 2, false, 0)
	check(err, "address space")
	shimtest.WantError(t, memory.Remove(base), errdefs.ErrInvalidUsage, "registered 3 times")
	for _, h := range []uint64{plain, window} {
		if _, err := shim.Registered(a, h, h == window, true); err != nil {
			t.Error(err)
		}
	}
	_, err = shim.Registered(a, plain, false, true)
	check(err, "not registered")
	shimtest.WantError(t, memory.Remove(base), errdefs.ErrInvalidUsage, "registered 1 times")
	require.NoError(t, b.Destroy()) // which gives back what it holds
	if err := memory.Remove(base); err != nil {
		t.Error(err)
	}
}
