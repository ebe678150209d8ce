package shim

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
)

// direct is what a communicator has on its device where its ranks exchange through the memory of their devices: see
// "Ranks whose devices reach each other" in ARCHITECTURE.md. Guarded by onDevice.mu, but for the fields of the watcher.
type direct struct {
	c        *comm.Core
	driver   device.Peers
	ctx      device.Context
	n, me    int
	page     *directPage // nil for one rank
	reading  sync.Mutex  // held by who gives it back, and by who reads it and does not hold that up
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
	ops     []directOp
	msgs    []directMessage

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

// directOp is a collective of a launch.
type directOp struct {
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

// directAlgorithm is the name under which the log and traces know it.
const directAlgorithm = "device-memory"

// onPeers reports whether calls of a kind go through the memory of devices, whatever buffers they have.
func onPeers(c *calls.Call, scripted bool) bool {
	if onDeviceOf(c.Comm) == nil || c.Kind.OneSided() || c.Options.Planes != 0 || c.Options.Plan.Digits != 0 {
		return false
	}
	d := onDeviceOf(c.Comm)
	return d.direct != nil || d.gdr != nil && (!d.gdr.circuits || scripted)
}

// directGroup is the state of one group, pooled.
type directGroup struct {
	calls []calls.Call // of communicators on the direct path
	rest  []calls.Call
	comms []*comm.Core
	puts  []*comm.Core // those of them that have something to put on streams
	rooms []hostRoom
	waits []*comm.Core // whose calls have no stream
}

var directGroups = sync.Pool{New: func() any { return new(directGroup) }}

func (g *directGroup) reset() {
	clear(g.calls)
	clear(g.rest)
	clear(g.comms)
	clear(g.puts)
	clear(g.rooms)
	clear(g.waits)
	g.calls, g.rest, g.comms, g.puts, g.rooms, g.waits = g.calls[:0], g.rest[:0], g.comms[:0], g.puts[:0], g.rooms[:0], g.waits[:0]
}

// hasPeers reports whether one of the calls goes through the memory of devices.
// Hot path of communicators without a device.
func hasPeers(calls []calls.Call, scripted bool) bool {
	for i := range calls {
		if onPeers(&calls[i], scripted) {
			return true
		}
	}
	return false
}

// runOnPeers puts the calls that go through the memory of devices on their streams, and runs the others. Calls whose
// buffers are all host memory, and that have no stream, have ended when it returns.
func runOnPeers(calls []calls.Call, scripted bool) error {
	g := directGroups.Get().(*directGroup)
	err := g.run(calls, scripted)
	for i := range g.rooms {
		g.rooms[i].finish(err)
	}
	g.reset()
	directGroups.Put(g)
	return err
}

func (g *directGroup) run(calls []calls.Call, scripted bool) error {
	for i := range calls {
		call := &calls[i]
		if !onPeers(call, scripted) {
			g.rest = append(g.rest, *call)
			continue
		}
		g.calls = append(g.calls, *call)
		if !slices.Contains(g.comms, call.Comm) {
			g.comms = append(g.comms, call.Comm)
		}
	}
	// All ranks put their launches on streams in one order, since one stream may serve several communicators.
	slices.SortFunc(g.comms, byID)
	for _, c := range g.comms {
		if err := g.settle(c); err != nil {
			return err
		}
	}
	if err := g.put(); err != nil {
		return err
	}
	if len(g.rest) > 0 {
		if err := runHere(g.rest); err != nil {
			return err
		}
	}
	for _, c := range g.waits {
		drainStreams(c)
		failIfPeerFailed(c)
		if err := c.AsyncError(); err != nil {
			return err
		}
	}
	return nil
}

// byID orders communicators alike on all ranks.
func byID(a, b *comm.Core) int {
	switch {
	case a.ID < b.ID || a.ID == b.ID && a.Rank < b.Rank:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// settle finds out how the group's calls of one communicator are made.
func (g *directGroup) settle(c *comm.Core) error {
	here, err := g.onHost(c)
	if err != nil {
		return err
	}
	if here && c.Ranks == 1 {
		for i := range g.calls {
			if g.calls[i].Comm == c {
				g.rest = append(g.rest, g.calls[i])
			}
		}
		return nil
	}
	g.puts = append(g.puts, c)
	if !here {
		return nil
	}
	g.waits = append(g.waits, c)
	return g.stage(c)
}

// onHost reports whether a communicator's calls have host memory alone, and no stream.
func (g *directGroup) onHost(c *comm.Core) (bool, error) {
	for i := range g.calls {
		call := &g.calls[i]
		if call.Comm != c {
			continue
		}
		if call.Stream != 0 {
			return false, nil
		}
		send, recv := call.Extents()
		for _, b := range [2]struct {
			name string
			at   unsafe.Pointer
			size int64
		}{{"sendbuff", call.Send, send}, {"recvbuff", call.Recv, recv}} {
			place, err := locate(call, b.name, b.at, b.size)
			if err != nil || place.Kind >= device.Managed {
				return false, err
			}
		}
	}
	return true, nil
}

// hostRoom is page-locked memory in the place of a buffer of the host's.
type hostRoom struct {
	room memory.Pinned
	to   unsafe.Pointer // nil: it is a send buffer
	size int64
}

// finish hands a result over. Where there is none, streams may still come to the memory, which nobody is given then.
func (r *hostRoom) finish(err error) {
	if err != nil {
		return
	}
	if r.to != nil {
		copy(memory.Bytes(r.to, r.size), memory.Bytes(r.room.At, r.size))
	}
	memory.Unpin(r.room)
}

// stage has a communicator's calls work on page-locked memory: devices need that, and nobody waits for a copy on the way.
func (g *directGroup) stage(c *comm.Core) error {
	if err := device.Active().(device.Peers).EnterContext(onDeviceOf(c).ctx); err != nil {
		return err
	}
	defer device.Active().Leave()
	for i := range g.calls {
		call := &g.calls[i]
		if call.Comm != c || call.Count == 0 {
			continue
		}
		send, recv := call.Extents()
		if err := g.stageOne(&call.Send, send, true); err != nil {
			return err
		}
		if err := g.stageOne(&call.Recv, recv, false); err != nil {
			return err
		}
		if err := call.Resolve(); err != nil {
			return err
		}
	}
	return nil
}

func (g *directGroup) stageOne(at *unsafe.Pointer, size int64, isSend bool) error {
	if size == 0 {
		return nil
	}
	r, err := memory.Pin(int(size))
	if err != nil {
		return err
	}
	room := hostRoom{room: r, size: size}
	if isSend {
		copy(memory.Bytes(r.At, size), memory.Bytes(*at, size))
	} else {
		room.to = *at
	}
	*at = r.At
	g.rooms = append(g.rooms, room)
	return nil
}

// ranks of a mask, in order.
type rankSet uint32

func (s rankSet) has(r int) bool { return s>>r&1 != 0 }

// without returns s but for one rank.
func (s rankSet) without(r int) rankSet { return s &^ (1 << r) }

func one(r int) rankSet { return 1 << r }

func (x *direct) everyone() rankSet { return 1<<x.n - 1 }

// each calls f for all ranks of s.
func (s rankSet) each(f func(r int)) {
	for ; s != 0; s &= s - 1 {
		f(bits.TrailingZeros32(uint32(s)))
	}
}

// slotAt is where a rank's slot is.
func (x *direct) slotAt(rank, slot int) unsafe.Pointer {
	return unsafe.Add(x.exchange[rank], int64(slot)*x.slotBytes)
}

// scratch is memory of this rank's, as large as a slot.
func (x *direct) scratch() unsafe.Pointer { return unsafe.Add(x.exchange[x.me], numSlots*x.slotBytes) }

// pairAt is where a rank's slot for another one is.
func (x *direct) pairAt(owner, reader, slot int) unsafe.Pointer {
	return unsafe.Add(x.exchange[owner], (numSlots+1)*x.slotBytes+int64(reader*numSlots+slot)*x.pairBytes)
}

// slotAlign is what slots begin at multiples of.
const slotAlign = 4096

// divide cuts exchange memory of so many bytes into slots.
func (x *direct) divide(size int64) error {
	x.slotBytes = size / 4 &^ (slotAlign - 1)
	x.pairBytes = (size/4 - slotAlign) / int64(numSlots*x.n) &^ (slotAlign - 1) // behind them is what the rank lends
	if x.pairBytes == 0 {
		return fmt.Errorf("shim: LIGHTPATH_DEVICE_EXCHANGE=%d is too small for %d ranks: %w", size, x.n, errdefs.ErrInvalidUsage)
	}
	return nil
}
