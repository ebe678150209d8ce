package shim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/sharedmem"
	"lightpath/collectives/transport"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
)

// Region is memory from ncclMemAlloc: one mapping. It begins at offset 0 of its file, which
// other processes of the host can map too while the region lives.
type Region struct {
	Base uintptr
	Size uintptr
	FD   int // of this process; -1: the memory cannot be shared
	// Number is AddMemory's: no other region of this process ever has it.
	Number uint64
}

func (r *Region) holds(p, n uintptr) bool { return p >= r.Base && n <= r.Size && p-r.Base <= r.Size-n }

// regions are the Regions of this process, by Base. Readers take a snapshot and no lock.
var regions struct {
	mu   sync.Mutex
	last uint64 // number
	at   atomic.Pointer[[]Region]
}

// AddMemory makes a region known.
func AddMemory(r Region) {
	regions.mu.Lock()
	defer regions.mu.Unlock()
	regions.last++
	r.Number = regions.last
	all := slices.Clone(snapshot())
	i, _ := slices.BinarySearchFunc(all, r.Base, byBase)
	all = slices.Insert(all, i, r)
	regions.at.Store(&all)
}

// RemoveMemory forgets the region that begins at base, before it is freed. It fails while some of
// it is registered; nothing happens for memory that is not known.
func RemoveMemory(base uintptr) error {
	regions.mu.Lock()
	defer regions.mu.Unlock()
	all := snapshot()
	i, ok := slices.BinarySearchFunc(all, base, byBase)
	if !ok {
		return nil
	}
	if err := registrations.none(&all[i]); err != nil {
		return err
	}
	sharedmem.Forget(all[i].Number)
	all = slices.Delete(slices.Clone(all), i, i+1)
	regions.at.Store(&all)
	return nil
}

func snapshot() []Region {
	if p := regions.at.Load(); p != nil {
		return *p
	}
	return nil
}

func byBase(r Region, base uintptr) int { return cmp.Compare(r.Base, base) }

// FindMemory returns the region that holds all n bytes at p, and where in it they begin. The
// region is valid as long as the caller of a collective must leave its buffers alone. Hot
// path: it neither locks nor allocates.
func FindMemory(p unsafe.Pointer, n int64) (r Region, offset int64, ok bool) {
	all, at := snapshot(), uintptr(p)
	i, exact := slices.BinarySearchFunc(all, at, byBase)
	if !exact {
		i--
	}
	if n < 0 || i < 0 || !all[i].holds(at, uintptr(n)) {
		return Region{}, 0, false
	}
	return all[i], int64(at - all[i].Base), true
}

// registration is a buffer that a communicator has been told of.
type registration struct {
	comm   *Comm
	buff   unsafe.Pointer
	size   uintptr
	window bool
	flags  int32
	// release has the devices forget it; nil where they never knew.
	release func() error
	number  int     // of a window, among those of its communicator at this rank
	lent    *region // device memory that other ranks use where it is; nil where they do not
}

// registry is the registrations of this process by handle. A handle is a number that is never
// used again, so a stale or foreign one is known as that, and odd, as no address of a structure is. Safe for concurrent use.
type registry struct {
	mu   sync.Mutex
	last uint64
	of   map[uint64]registration
}

var registrations = registry{last: 1<<64 - 1}

// Register tells the communicator of a buffer, as ncclCommRegister, or of a window. The handle
// is good until it is deregistered or the communicator ends. Both are local: no rank waits. Device memory
// may be registered like any other; nobody can put to a window of it.
func Register(c *Comm, buff unsafe.Pointer, size uintptr, window bool, flags int32) (uint64, error) {
	if err := c.Usable(); err != nil {
		return 0, err
	}
	if uintptr(buff)+size < uintptr(buff) {
		return 0, fmt.Errorf("shim: %d bytes at %#x end beyond the address space: %w", size, uintptr(buff), errdefs.ErrInvalidArgument)
	}
	reg := registration{comm: c, buff: buff, size: size, window: window, flags: flags}
	onDevice := isDeviceMemory(buff)
	switch {
	case !onDevice: // else it is sent out of staging memory
		reg.release = tellDevices(c, buff, size)
	case onDeviceOf(c) != nil && onDeviceOf(c).direct != nil:
		reg.lent = onDeviceOf(c).direct.register(buff, size)
	default:
		reg.release = tellPorts(c, buff, size)
	}
	r := &registrations
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[uint64]registration{}
	}
	r.last += 2
	if window {
		reg.number = sidedOf(c).addWindow(buff, int64(size), onDevice)
	}
	r.of[r.last] = reg
	return r.last, nil
}

// tellDevices has those of the communicator's endpoints know the memory that can send from where it
// is. Where one cannot, its sends are copied as ever, and that is no error.
func tellDevices(c *Comm, buff unsafe.Pointer, size uintptr) func() error {
	ends := []transport.Endpoint{hostOf(c).packet}
	if opticalOf(c) != nil {
		ends = append(ends, opticalOf(c).end)
	}
	var releases []func() error
	for _, e := range ends {
		r, able := e.(transport.Registrar)
		if !able || size == 0 {
			continue
		}
		release, err := r.Register(buff, size)
		if err != nil {
			c.Log.Info(log.Net, "memory at %p is sent by way of copies: %v", buff, err)
			continue
		}
		releases = append(releases, release)
	}
	if releases == nil {
		return nil
	}
	return func() (err error) {
		for _, release := range releases {
			err = errors.Join(err, release())
		}
		return err
	}
}

// windowOf returns a window that was registered with the communicator.
func windowOf(c *Comm, handle uint64) (registration, error) {
	return registrations.find(c, handle, true, false)
}

// Registered returns the buffer of a registration, and with end deregisters it.
func Registered(c *Comm, handle uint64, window, end bool) (unsafe.Pointer, error) {
	reg, err := registrations.find(c, handle, window, false)
	if err != nil {
		return nil, err
	}
	if end && reg.lent != nil {
		if err := onDeviceOf(c).direct.withdraw(reg.lent); err != nil {
			return nil, err
		}
	}
	if end {
		if reg, err = registrations.find(c, handle, window, true); err != nil {
			return nil, err
		}
	}
	if end && window {
		sidedOf(c).dropWindow(reg.number)
	}
	if end && reg.release != nil {
		err = reg.release()
	}
	return reg.buff, err
}

// find returns a registration, and with end forgets it.
func (r *registry) find(c *Comm, handle uint64, window, end bool) (registration, error) {
	what := "handle"
	if window {
		what = "window"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	reg, ok := r.of[handle]
	switch {
	case !ok:
		return reg, fmt.Errorf("shim: %s %#x is not registered: %w", what, handle, errdefs.ErrInvalidArgument)
	case reg.comm != c:
		return reg, fmt.Errorf("shim: %s %#x was registered with another communicator: %w", what, handle, errdefs.ErrInvalidArgument)
	case reg.window != window:
		return reg, fmt.Errorf("shim: %#x is not a %s: %w", handle, what, errdefs.ErrInvalidArgument)
	}
	if end {
		delete(r.of, handle)
	}
	return reg, nil
}

// drop forgets what was registered with a communicator that ends. Its devices forget it with their
// endpoints.
func (r *registry) drop(c *Comm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h, reg := range r.of {
		if reg.comm == c {
			delete(r.of, h)
		}
	}
}

// none refuses a region of which something is registered.
func (r *registry) none(m *Region) error {
	if c, n := r.within(m); n > 0 {
		return fmt.Errorf("shim: memory at %#x is registered %d times, with rank %d of communicator %#x among others: deregister it first: %w",
			m.Base, n, c.Rank, c.ID, errdefs.ErrInvalidUsage)
	}
	return nil
}

// within counts the registrations of a region, and returns a communicator of one.
func (r *registry) within(m *Region) (c *Comm, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reg := range r.of {
		if p := uintptr(reg.buff); p < m.Base+m.Size && m.Base < p+reg.size {
			c = reg.comm
			n++
		}
	}
	return c, n
}
