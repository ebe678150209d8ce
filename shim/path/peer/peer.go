package peer

import (
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
	"lightpath/shim/recorder"
	"lightpath/shim/stream"
)

// Path is the state of a communicator whose ranks exchange data through device memory (docs/design/peer-memory.md).
// Device.Mu guards it, except the fields of the watcher.
type Path struct {
	c      *comm.Core
	dev    *stream.Device
	driver device.Peers
	own    device.Stream // for calls without a stream
	n, me  int
	joint  bool // all ranks share a device

	page     *tokenPage // nil for one rank
	reading  sync.Mutex // held to unmap the page, and to read it where nothing else delays the unmapping
	exchange exchange

	queue     queue
	launch    launch
	lanes     []lane  // sends by peer, then receives by peer
	tracks    []track // of the launch's stream, then of the side streams
	sides     stream.Sides
	slots     slots
	counts    counts
	published published
	opened    opened
	news      *news

	entry    dispatch.Entry
	graph    *recorder.Graph // of the latest capture
	torn     bool            // the last launch was enqueued only in part, and breakOff has failed
	captured atomic.Bool     // a launch is in a graph
	watcher  watcher
	grace    grace // only the watcher uses it
}

// launch is what one Put enqueues.
type launch struct {
	number   uint32 // of the last launch
	stream   device.Stream
	capture  device.Capture
	streams  []device.Stream
	ops      []operation
	msgs     []message
	inFlight []uint64              // flight records
	moves    recorder.MessageCount // messages
}

// operation is a collective of a launch.
type operation struct {
	call   *calls.Call
	sendID uint64 // of the allocations
	recvID uint64
	bounce bool   // kernels cannot write the receive buffer
	plain  bool   // the send buffer is ordinary host memory
	number uint64 // of the call

	look               rankSet // peers that may lend buffers in this call
	lentSend, lentRecv *region // regions that this rank lends, nil if none
}

// algorithm is the name of this path in the log and in traces.
const algorithm = "device-memory"

var (
	slot     = comm.NewSlot[Path]()
	newsSlot = comm.NewSlot[news]()
)

// news tells the watcher that a rank has registered or withdrawn memory.
type news struct{ changed chan struct{} }

// tell makes the watcher look at the regions of all ranks. A watcher also does so when it starts.
func (n *news) tell() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// Handle installs the handler by which ranks learn of regions of their peers. The communicator may have no device.
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

// close stops the watcher, and waits for its end for at most comm.Linger.
func (x *Path) close() {
	if x == nil {
		return
	}
	x.watcher.end()
	select {
	case <-x.watcher.over:
	case <-time.After(comm.Linger): // a peer holds up a stream; the watcher goes on in the background
	}
}

// Register lets peers reach memory of the device. It returns a function that withdraws the memory, nil if there is
// nothing to withdraw. The communicator may have no path.
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

// rankSet is a bit mask of ranks.
type rankSet uint32

func (s rankSet) has(r int) bool { return s>>r&1 != 0 }

func (s rankSet) without(r int) rankSet { return s &^ (1 << r) }

func one(r int) rankSet { return 1 << r }

func (x *Path) everyone() rankSet { return 1<<x.n - 1 }

// each calls f for all ranks of s, in ascending order.
func (s rankSet) each(f func(r int)) {
	for ; s != 0; s &= s - 1 {
		f(bits.TrailingZeros32(uint32(s)))
	}
}

// slotAt returns the address of a rank's slot in a round of the call that is being enqueued.
func (x *Path) slotAt(rank, round int) unsafe.Pointer {
	return x.exchange.slot(rank, x.slots.slot(round))
}
