package shim

import (
	"testing"
	"unsafe"

	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
)

// TestRegistrations: a handle is good for its communicator, kind and time, and memory outlives its
// registrations.
func TestRegistrations(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	a, b := newWorld(t, 1).comms[0], newWorld(t, 1).comms[0]
	const base = uintptr(0xfffe) << 48
	memory.Add(memory.Region{Base: base, Size: 4096, FD: -1})
	reg := func(c *Comm, window bool) uint64 {
		h, err := Register(c, fake(base+1000), 10, window, 0)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	plain, window, others := reg(a, false), reg(a, true), reg(b, false)
	if p, err := Registered(a, window, true, false); err != nil || uintptr(p) != base+1000 {
		t.Error(p, err)
	}
	check := func(err error, says string) {
		t.Helper()
		wantError(t, err, errdefs.ErrInvalidArgument, says)
	}
	_, err := Registered(a, window, false, true)
	check(err, "not a handle")
	_, err = Registered(a, plain, true, true)
	check(err, "not a window")
	_, err = Registered(a, others, false, true)
	check(err, "another communicator")
	_, err = Register(a, fake(^uintptr(0)), 2, false, 0)
	check(err, "address space")
	wantError(t, memory.Remove(base), errdefs.ErrInvalidUsage, "registered 3 times")
	for _, h := range []uint64{plain, window} {
		if _, err := Registered(a, h, h == window, true); err != nil {
			t.Error(err)
		}
	}
	_, err = Registered(a, plain, false, true)
	check(err, "not registered")
	wantError(t, memory.Remove(base), errdefs.ErrInvalidUsage, "registered 1 times")
	if err := b.Destroy(); err != nil { // which gives back what it holds
		t.Fatal(err)
	}
	if err := memory.Remove(base); err != nil {
		t.Error(err)
	}
}

// fake is an address that nobody looks at.
func fake(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
