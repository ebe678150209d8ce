package devicetest

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/shim/device"
)

// Driver is a [device.Driver] whose streams are goroutines. The CPU cannot touch its device memory: a program that uses
// such a pointer on the CPU crashes. Page-locked memory is Go's, so the race detector checks it. Like a real driver, it
// refuses operations outside Enter and Leave, operations on destroyed streams, and waits that cross captures. After the
// first use of streams and graphs it allocates nothing.
type Driver struct {
	handler device.Handler
	devices int

	mu      sync.RWMutex
	blocks  []block // by address
	ids     uint64  // of blocks
	locked  int64   // bytes of Alloc
	most    int64
	inside  map[int]int // devices that threads have entered, by thread
	failing string
	failure error
	after   int
	before  func(Op)
	touch   func(device.Stream, unsafe.Pointer)

	streams streams
}

// block is an allocation.
type block struct {
	at    uintptr
	alias []byte // where the driver reaches it
	place device.Place
	seen  []byte   // the program's mapping; nil if alias is that mapping
	fd    *os.File // of a device's memory
}

// New returns a driver with a number of devices, whose streams report their progress to handler.
func New(handler device.Handler, devices int) *Driver {
	d := &Driver{handler: handler, devices: devices, inside: map[int]int{}}
	d.streams.d = d
	d.streams.changed.L = &d.streams.mu
	return d
}

// Fail makes a method fail with an error wrapping [device.ErrDriver], after a number of calls that succeed. Fail("")
// ends this.
func (d *Driver) Fail(method string, after int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing, d.after = method, after
	d.failure = fmt.Errorf("%s: refused by the test: %w", method, device.ErrDriver)
}

// Before makes each stream call f before an operation. Before(nil) ends this. f may wait.
func (d *Driver) Before(f func(Op)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = f
}

// Touching makes the kernels of each stream call f before they read or write memory, with the address. Touching(nil)
// ends this. f may wait.
func (d *Driver) Touching(f func(s device.Stream, at unsafe.Pointer)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.touch = f
}

// Locked returns the present and the largest number of bytes of page-locked memory.
func (d *Driver) Locked() (now, most int64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.locked, d.most
}

// Inside returns how many threads have entered and not left.
func (d *Driver) Inside() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.inside)
}

func (d *Driver) refuse(method string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failing != method {
		return nil
	}
	if d.after--; d.after >= 0 {
		return nil
	}
	return d.failure
}

// entered returns an error if the thread is not between Enter and Leave.
func (d *Driver) entered(method string) error {
	if err := d.refuse(method); err != nil {
		return err
	}
	d.mu.RLock()
	_, ok := d.inside[unix.Gettid()]
	d.mu.RUnlock()
	if !ok {
		return fmt.Errorf("%s: no context is current: %w", method, device.ErrDriver)
	}
	return nil
}

// current returns the device that the thread has entered.
func (d *Driver) current() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.inside[unix.Gettid()]
}

// Current implements [device.Driver]: no thread has a context, but the program uses devices.
func (d *Driver) Current() (int, bool, error) { return -1, true, d.refuse("Current") }

// Locate implements [device.Driver].
func (d *Driver) Locate(p unsafe.Pointer) (device.Place, error) {
	if err := d.refuse("Locate"); err != nil {
		return device.Place{}, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if b := d.find(uintptr(p)); b != nil {
		return b.place, nil
	}
	return device.Place{}, nil
}

// find returns the block that holds an address, nil for none. mu is held.
func (d *Driver) find(p uintptr) *block {
	lo, hi := 0, len(d.blocks)
	for lo < hi {
		mid := (lo + hi) / 2
		switch b := &d.blocks[mid]; {
		case p < b.at:
			hi = mid
		case p >= b.at+uintptr(len(b.alias)):
			lo = mid + 1
		default:
			return b
		}
	}
	return nil
}

// wordsAt is the difference between the address of registered memory for devices and for the CPU.
const wordsAt = 1 << 50

// Bytes returns memory of any kind as bytes that the CPU can use, nil if it is not within one allocation.
func (d *Driver) Bytes(p unsafe.Pointer, size int) []byte { return d.bytes(uintptr(p), size) }

func (d *Driver) bytes(p uintptr, size int) []byte {
	d.mu.RLock()
	defer d.mu.RUnlock()
	b := d.find(p)
	if b == nil { // the program's own
		if p >= wordsAt {
			p -= wordsAt
		}
		return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), size)
	}
	at := int(p - b.at)
	if at+size > len(b.alias) {
		return nil
	}
	return b.alias[at : at+size : at+size]
}

// Enter implements [device.Driver]; it does not nest.
func (d *Driver) Enter(s device.Stream) (int, error) {
	if err := d.refuse("Enter"); err != nil {
		return 0, err
	}
	on, err := d.streams.device(s)
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread()
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, twice := d.inside[unix.Gettid()]; twice {
		panic("devicetest: Enter within Enter")
	}
	d.inside[unix.Gettid()] = on
	return on, nil
}

// Leave implements [device.Driver].
func (d *Driver) Leave() {
	d.mu.Lock()
	delete(d.inside, unix.Gettid())
	d.mu.Unlock()
	runtime.UnlockOSThread()
}

// Alloc implements [device.Driver].
func (d *Driver) Alloc(size int) (unsafe.Pointer, error) {
	if err := d.entered("Alloc"); err != nil {
		return nil, err
	}
	room := make([]byte, size+64)
	room = room[-uintptr(unsafe.Pointer(&room[0]))&63:][:size]
	d.add(block{alias: room, place: device.Place{Kind: device.Pinned}})
	d.mu.Lock()
	d.locked += int64(size)
	d.most = max(d.most, d.locked)
	d.mu.Unlock()
	return unsafe.Pointer(&room[0]), nil
}

// Managed returns memory that the CPU and a device share.
func (d *Driver) Managed(dev, size int) unsafe.Pointer {
	room := make([]byte, size)
	return d.add(block{alias: room, place: device.Place{Kind: device.Managed, Device: dev}})
}

// Memory returns memory of a device. The CPU crashes if it touches this memory.
func (d *Driver) Memory(dev, size int) unsafe.Pointer {
	page := os.Getpagesize()
	room := (size + page - 1) / page * page
	f, err := file(room)
	b := block{place: device.Place{Kind: device.Memory, Device: dev}, fd: f}
	if err == nil {
		b.alias, err = unix.Mmap(int(f.Fd()), 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		b.seen, err = unix.Mmap(int(f.Fd()), 0, room, unix.PROT_NONE, unix.MAP_SHARED)
	}
	if err != nil {
		panic(err)
	}
	b.alias = b.alias[:size]
	return d.add(b)
}

func (d *Driver) add(b block) unsafe.Pointer {
	at := unsafe.Pointer(unsafe.SliceData(b.alias))
	if b.seen != nil {
		at = unsafe.Pointer(unsafe.SliceData(b.seen))
	}
	b.at = uintptr(at)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids++
	b.place.ID = d.ids
	d.blocks = append(d.blocks, b)
	sort.Slice(d.blocks, func(i, j int) bool { return d.blocks[i].at < d.blocks[j].at })
	return at
}

// Free implements [device.Driver]; it frees memory of all kinds.
func (d *Driver) Free(p unsafe.Pointer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.find(uintptr(p))
	if b == nil || b.at != uintptr(p) {
		return fmt.Errorf("Free: %p: %w", p, device.ErrDriver)
	}
	freed := *b
	switch {
	case freed.seen != nil:
		_ = unix.Munmap(freed.seen)
		_ = unix.Munmap(freed.alias[:cap(freed.alias)])
		freed.fd.Close()
	case freed.place.Kind == device.Pinned:
		d.locked -= int64(len(freed.alias))
	}
	i := sort.Search(len(d.blocks), func(i int) bool { return d.blocks[i].at >= freed.at })
	d.blocks = append(d.blocks[:i], d.blocks[i+1:]...)
	return nil
}

// AllocExchange implements [device.Driver].
func (d *Driver) AllocExchange(size int) (unsafe.Pointer, error) {
	if err := d.entered("AllocExchange"); err != nil {
		return nil, err
	}
	return d.Memory(d.current(), size), nil
}

// FreeExchange implements [device.Driver].
func (d *Driver) FreeExchange(p unsafe.Pointer) error { return d.Free(p) }

// LoadCopies implements [device.Driver]: there is nothing to load.
func (d *Driver) LoadCopies() error { return d.entered("LoadCopies") }

// LoadKernels implements [device.Driver]: there are none to load.
func (d *Driver) LoadKernels() error { return d.entered("LoadKernels") }
