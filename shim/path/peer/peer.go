// Package peer runs calls on streams of devices that reach each other's memory: kernels and copies exchange through it, and
// streams of all ranks wait for each other with tokens in a page that they share.
//
// Layer: a path, above stream. No CPU takes part in a call after the launch, except to watch it.
package peer

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/device"
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
	"lightpath/shim/stream"
)

// Path is the state of a communicator whose ranks exchange through the memory of their devices
// (docs/design/peer-memory.md). Device.Mu guards it, except the fields of the watcher.
type Path struct {
	c        *comm.Core
	dev      *stream.Device
	news     *news
	driver   device.Peers
	ctx      device.Context
	n, me    int
	page     *tokenPage // nil for one rank
	reading  sync.Mutex // held by who gives it back, and by who reads it and does not hold that up
	exchange []unsafe.Pointer
	imported uint64 // ranks whose exchange memory has to be closed

	slotBytes int64 // of a slot of collectives
	pairBytes int64 // of a slot between two ranks

	own    device.Stream // of calls without a stream
	lanes  []lane        // by peer, of what goes there, and then of what comes from there
	number uint32        // of the last launch

	// Of the launch that is being put on streams:
	stream  device.Stream
	capture device.Capture
	words   []device.Word // not on the stream yet
	kernel  device.Reduction
	streams []device.Stream
	ops     []operation
	msgs    []message

	calls    uint64 // collectives called
	hash     uint32 // of them all
	sent     []uint64
	wanted   []uint64
	entry    dispatch.Entry
	inFlight []uint64              // flight records of the launch
	moves    recorder.MessageCount // its messages
	graph    *recorder.Graph       // of the capture that came last

	regions []*region        // that this rank has registered, and those of the library's
	tried   map[uintptr]bool // where the library's memory is that has become one, or cannot
	serial  uint64           // of the last
	opened  []openRegion     // of all ranks, maxRegions each; the watcher's
	looks   rankSet          // ranks that may lend buffers: this one has opened something of theirs
	lent    atomic.Bool      // something has been

	torn     bool        // the last launch is on its streams in part, and they will not say that they have left it
	captured atomic.Bool // some launch is in a graph
	watcher  watcher
	grace    grace // the watcher's
}

// operation is a collective of a launch.
type operation struct {
	call       *calls.Call
	send, recv unsafe.Pointer
	inPlace    bool
	bounce     bool   // recv is memory that no kernel writes
	plain      bool   // so is send
	number     uint64 // of the call

	look               rankSet // who may lend buffers in this call
	lentSend, lentRecv *region // by this rank, nil for none
	spoken             uint32  // slots for which it has said so
}

// algorithm is the name under which the log and traces know it.
const algorithm = "device-memory"

var (
	slot     = comm.NewSlot[Path]()
	newsSlot = comm.NewSlot[news]()
)

// news tells the watcher that ranks have registered memory, or withdrawn some.
type news struct{ changed chan struct{} }

// changed has the watcher look at what is registered. A watcher that starts does so first of all.
func (n *news) tell() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// Handle has ranks look at what others have registered. The communicator may have a device, or none.
func Handle(c *comm.Core) {
	n := &news{make(chan struct{}, 1)}
	newsSlot.Set(c, n)
	c.Handle(control.MsgRegions, func(m *control.Message) {
		if c.Rank == 0 {
			c.Star.Broadcast(m, int(m.From))
		}
		n.tell()
	})
	c.AddHooks(comm.Hooks{Check: func() { failIfPeerFailed(c) }, Closed: func() { slot.Of(c).close() }})
}

// close ends the watcher, and waits for it.
func (x *Path) close() {
	if x == nil {
		return
	}
	x.watcher.end()
	select {
	case <-x.watcher.over:
	case <-time.After(comm.Linger): // a stream that others hold up; it goes on in the background
	}
}

// Register has other ranks reach memory of the device. It returns what withdraws the memory, nil if it is exchanged by way of
// copies. x may be nil.
func Register(c *comm.Core, at unsafe.Pointer, size uintptr) (withdraw func() error) {
	x := slot.Of(c)
	if x == nil {
		return nil
	}
	r := x.register(at, size)
	if r == nil {
		return nil
	}
	return func() error { return x.withdraw(r) }
}

// ranks of a mask, in order.
type rankSet uint32

func (s rankSet) has(r int) bool { return s>>r&1 != 0 }

// without returns s but for one rank.
func (s rankSet) without(r int) rankSet { return s &^ (1 << r) }

func one(r int) rankSet { return 1 << r }

func (x *Path) everyone() rankSet { return 1<<x.n - 1 }

// each calls f for all ranks of s.
func (s rankSet) each(f func(r int)) {
	for ; s != 0; s &= s - 1 {
		f(bits.TrailingZeros32(uint32(s)))
	}
}

// slotAt is where a rank's slot is.
func (x *Path) slotAt(rank, slot int) unsafe.Pointer {
	return unsafe.Add(x.exchange[rank], int64(slot)*x.slotBytes)
}

// scratch is memory of this rank's, as large as a slot.
func (x *Path) scratch() unsafe.Pointer { return unsafe.Add(x.exchange[x.me], numSlots*x.slotBytes) }

// pairAt is where a rank's slot for another one is.
func (x *Path) pairAt(owner, reader, slot int) unsafe.Pointer {
	return unsafe.Add(x.exchange[owner], (numSlots+1)*x.slotBytes+int64(reader*numSlots+slot)*x.pairBytes)
}

// slotAlign is what slots begin at multiples of.
const slotAlign = 4096

// divide cuts exchange memory of so many bytes into slots.
func (x *Path) divide(size int64) error {
	x.slotBytes = size / 4 &^ (slotAlign - 1)
	x.pairBytes = (size/4 - slotAlign) / int64(numSlots*x.n) &^ (slotAlign - 1) // behind them is what the rank lends
	if x.pairBytes == 0 {
		return fmt.Errorf("shim: LIGHTPATH_DEVICE_EXCHANGE=%d is too small for %d ranks: %w", size, x.n, errdefs.ErrInvalidUsage)
	}
	return nil
}
