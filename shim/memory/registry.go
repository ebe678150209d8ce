package memory

import (
	"fmt"
	"sync"
	"unsafe"

	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
)

// Registration is a buffer or window that is registered with a communicator.
type Registration struct {
	Comm   *comm.Core
	Buffer unsafe.Pointer
	Size   uintptr
	Window bool
	Number int // of a window, among those of its communicator at this rank
	// Withdraw asks the path that uses the memory to stop; it fails while a call uses it. Nil: no path uses it.
	Withdraw func() error
	// Release has devices forget the memory. Nil: no device knows it.
	Release func() error
}

// registry holds the registrations of this process by handle. A handle is never used again, so stale and foreign
// handles are recognized. Handles are odd, unlike the address of any structure.
var registry = struct {
	mu   sync.Mutex
	last uint64
	of   map[uint64]Registration
}{last: 1<<64 - 1, of: map[uint64]Registration{}}

// Enter adds a registration and returns its handle, which is valid until [Leave], or until the communicator ends.
func Enter(r Registration) uint64 {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	registry.last += 2
	registry.of[registry.last] = r
	return registry.last
}

// Lookup returns a registration of a communicator.
func Lookup(c *comm.Core, handle uint64, window bool) (Registration, error) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return find(c, handle, window)
}

// Leave removes a registration and returns it.
func Leave(c *comm.Core, handle uint64, window bool) (Registration, error) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	r, err := find(c, handle, window)
	if err == nil {
		delete(registry.of, handle)
	}
	return r, err
}

func find(c *comm.Core, handle uint64, window bool) (Registration, error) {
	what := "handle"
	if window {
		what = "window"
	}
	refuse := func(why string) error {
		return fmt.Errorf("shim: %s %#x %s: %w", what, handle, why, errdefs.ErrInvalidArgument)
	}
	r, ok := registry.of[handle]
	switch {
	case !ok:
		return r, refuse("is not registered")
	case r.Comm != c:
		return r, refuse("was registered with another communicator")
	case r.Window != window:
		return r, fmt.Errorf("shim: %#x is not a %s: %w", handle, what, errdefs.ErrInvalidArgument)
	}
	return r, nil
}

// LeaveAll removes the registrations of a communicator that ends. Endpoints deregister the memory from their devices
// when they close.
func LeaveAll(c *comm.Core) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for h, r := range registry.of {
		if r.Comm == c {
			delete(registry.of, h)
		}
	}
}

// refuseRegistered returns an error if some memory is registered.
func refuseRegistered(base, size uintptr) error {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	var c *comm.Core
	n := 0
	for _, r := range registry.of {
		if p := uintptr(r.Buffer); p < base+size && base < p+r.Size {
			c = r.Comm
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("shim: memory at %#x is registered %d times, with rank %d of communicator %#x among others: "+
		"deregister it first: %w", base, n, c.Rank, c.ID, errdefs.ErrInvalidUsage)
}
