// Package verbstest is [rdma.Verbs] in memory: devices on one network whose worker carries
// requests in random order between queue pairs, acknowledges them late, and breaks what it is
// told to. It checks what real devices cannot: queues that overflow, memory that changes before
// a request is complete, keys and bounds.
//
// Layer: inside collectives/transport/rdma, for tests only. Steady-state calls allocate nothing.
package verbstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/rdma"
)

// Network joins devices.
type Network struct {
	mu      sync.Mutex
	work    *sync.Cond
	rng     *rand.Rand
	devices []*device
	qps     map[uint32]*qp
	active  []*qp // those with requests that are not complete
	nextQP  uint32
	nextKey uint32
	regions map[uint32]*region // by key; a local and a remote one each have their own
	stopped bool
	held    bool
	late    uint32 // queue pair whose requests are not acknowledged, 0 for none
	wrong   error  // what a user of verbs must not do, the first
	drop    func(src, dst uint32, sent uint64) bool
	corrupt int // writes left whose bytes are changed on the way
	cut     bool
	size    uint32 // that receives report if cut
	moved   Moved
}

// Moved is how many bytes writes have carried, inlined ones aside, by the memory that they were read from and written to.
type Moved struct {
	FromHost, FromBuf, ToHost, ToBuf int64
}

// Moved returns what the network has carried.
func (n *Network) Moved() Moved {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.moved
}

// New returns a network without devices. Close ends it.
func New(seed uint64) *Network {
	n := &Network{
		rng: rand.New(rand.NewPCG(seed, 1)), qps: map[uint32]*qp{}, regions: map[uint32]*region{}, nextQP: 0x11, nextKey: 0x1000,
	}
	n.work = sync.NewCond(&n.mu)
	go n.run()
	return n
}

// Close ends the network and returns the first thing that was done wrong with it, things left
// open included.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stopped {
		for _, d := range n.devices {
			_ = unix.Close(d.eventFD)
		}
	}
	n.stopped = true
	n.work.Broadcast()
	if n.wrong != nil {
		return n.wrong
	}
	if len(n.qps) > 0 || len(n.regions) > 0 {
		return fmt.Errorf("verbstest: %d queue pairs and %d keys are left", len(n.qps), len(n.regions))
	}
	return nil
}

// Idle reports whether no queue pair and no registered memory is left, as Close demands.
func (n *Network) Idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.qps) == 0 && len(n.regions) == 0
}

// Hold stops the network from carrying anything until it is let go on.
func (n *Network) Hold(hold bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = hold
	n.work.Broadcast()
}

// HoldAcks keeps back what tells a queue pair that its requests have arrived, or, where nothing
// does, what has left it on the way; 0 ends that.
func (n *Network) HoldAcks(qpn uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = qpn
	n.work.Broadcast()
}

// Drop has requests lost for good for which f, called with the network locked, says so: sent
// counts those of the queue pair from 0. Nil: none.
func (n *Network) Drop(f func(src, dst uint32, sent uint64) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop = f
}

// Corrupt changes a byte in each of the next so many writes that bring any.
func (n *Network) Corrupt(writes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.corrupt = writes
}

// Truncate has receives report that their writes brought so many bytes.
func (n *Network) Truncate(size uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut, n.size = true, size
}

// Fail ends a queue pair as a device does.
func (n *Network) Fail(qpn uint32, s rdma.Status, vendor uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.qps[qpn]
	if q == nil {
		return fmt.Errorf("verbstest: no QP %#x", qpn)
	}
	q.vendor = vendor
	q.fail(s)
	return nil
}

// misuse keeps the first thing done wrong. The caller holds mu.
func (n *Network) misuse(format string, args ...any) error {
	err := fmt.Errorf("verbstest: "+format, args...)
	if n.wrong == nil {
		n.wrong = err
	}
	return err
}

// run carries requests.
func (n *Network) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.stopped {
		if len(n.active) == 0 || n.held {
			n.work.Wait()
			continue
		}
		q := n.active[n.rng.IntN(len(n.active))]
		if q.o.Unacknowledged {
			q.n.fly(q)
			continue
		}
		// A request is carried, and later, after others maybe, acknowledged.
		late := q.number == n.late
		switch {
		case q.carried < q.posted && (late || q.done == q.carried || n.rng.IntN(3) > 0):
			q.carry()
		case !late:
			q.acknowledge()
		case len(n.active) == 1:
			n.work.Wait()
			continue
		}
		n.yield()
	}
}

// yield lets others have the lock, now and then.
func (n *Network) yield() {
	if n.rng.IntN(8) == 0 {
		n.mu.Unlock()
		n.mu.Lock()
	}
}

// fly has a request without acknowledgement leave its port, or one that has arrive.
func (n *Network) fly(q *qp) {
	leaves := q.done < q.posted && q.done-q.carried < uint64(q.o.Sends)
	held := q.number == n.late || q.carried == q.done
	switch {
	case leaves && (held || n.rng.IntN(2) == 0):
		q.depart()
	case !held:
		q.arrive()
	case len(n.active) == 1:
		n.work.Wait()
		return
	}
	n.yield()
}

// activate has the worker look at q. The caller holds mu.
func (n *Network) activate(q *qp) {
	if !q.queued && (q.done < q.posted || q.carried < q.posted) {
		q.queued = true
		n.active = append(n.active, q)
	}
	n.work.Signal()
}

func (n *Network) deactivate(q *qp) {
	if q.queued {
		q.queued = false
		i := slices.Index(n.active, q)
		last := len(n.active) - 1
		n.active[i] = n.active[last]
		n.active = n.active[:last]
	}
}

// Open implements [rdma.Verbs].
func (n *Network) Open(name string) (rdma.Device, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.devices {
		if d.name == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no device %q", name)
}

// Names implements [rdma.Verbs].
func (n *Network) Names() ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := []string{}
	for _, d := range n.devices {
		names = append(names, d.name)
	}
	return names, nil
}

// Add adds a device with one active Ethernet port, whose address is 10.0.0.x.
func (n *Network) Add(name string) rdma.Device {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &device{n: n, name: name, port: rdma.PortInfo{Active: true, State: "ACTIVE", MTU: 4096, Ethernet: true, GIDs: 2}}
	var err error
	if d.eventFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = n.misuse("device %s: %v", name, err)
	}
	last := byte(len(n.devices) + 1)
	d.gids = []rdma.Entry{
		{GID: rdma.GID{0xfe, 0x80, 15: last}, Type: rdma.RoCEv2},
		{GID: rdma.GID{10: 0xff, 11: 0xff, 12: 10, 15: last}, Type: rdma.RoCEv2},
	}
	n.devices = append(n.devices, d)
	return d
}

// device is an [rdma.Device].
type device struct {
	n    *Network
	name string
	port rdma.PortInfo
	gids []rdma.Entry

	crossbar *Crossbar // nil: it reaches all others
	at       int       // its port there
	events   []rdma.Event
	eventFD  int
	stopped  <-chan struct{} // see Stop
	dead     bool            // see Kill
	noBuf    error           // why it takes no dma-buf
}

// Stop has whoever polls a device's completion queues wait until the channel is closed: a process that is stopped,
// while its device goes on and acknowledges what comes.
func Stop(d rdma.Device, until <-chan struct{}) {
	own := d.(*device)
	own.n.mu.Lock()
	defer own.n.mu.Unlock()
	own.stopped = until
}

// Kill has a device end as that of a process which is killed, or of a host that loses power: from now on it sends nothing, acknowledges nothing and
// says nothing, and nobody closes what is open there. Whoever polls its completion queues waits until the channel is closed, and may then close it all.
func Kill(d rdma.Device, until <-chan struct{}) {
	own := d.(*device)
	own.n.mu.Lock()
	defer own.n.mu.Unlock()
	own.stopped, own.dead = until, true
}

// SetPort changes what port 1 of a device of this package says of itself.
func SetPort(d rdma.Device, info rdma.PortInfo, gids ...rdma.Entry) {
	own := d.(*device)
	own.n.mu.Lock()
	defer own.n.mu.Unlock()
	info.GIDs = len(gids)
	own.port, own.gids = info, gids
}

func (d *device) Port(port int) (rdma.PortInfo, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	if port != 1 {
		return rdma.PortInfo{}, fmt.Errorf("%s has no port %d", d.name, port)
	}
	return d.port, nil
}

func (d *device) GID(port, index int) (rdma.Entry, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	if port != 1 || index < 0 || index >= len(d.gids) {
		return rdma.Entry{}, fmt.Errorf("%s: port %d has no GID %d", d.name, port, index)
	}
	return d.gids[index], nil
}

func (d *device) Close() error { return nil }

// region is registered memory under one of its keys.
type region struct {
	n             *Network
	mem           []byte
	base          uint64 // its address
	local, remote uint32
	written       bool
	mapped        []byte // of a dma-buf
}

func (d *device) Register(mem []byte, written bool) (rdma.Region, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	if len(mem) == 0 {
		return nil, errors.New("register: no memory")
	}
	r := &region{n: d.n, mem: mem, base: uint64(uintptr(unsafe.Pointer(&mem[0]))), written: written}
	r.add()
	return r, nil
}

// add gives a region its keys. The caller holds mu.
func (r *region) add() {
	r.local, r.remote = r.n.nextKey, r.n.nextKey+1
	r.n.nextKey += 2
	r.n.regions[r.local], r.n.regions[r.remote] = r, r
}

// RegisterBuf implements [rdma.Device]: what can be mapped is a dma-buf.
func (d *device) RegisterBuf(fd int, offset uint64, size int, at uint64) (rdma.Region, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	page := uint64(os.Getpagesize())
	switch {
	case d.noBuf != nil:
		return nil, fmt.Errorf("%s: register a dma-buf: %w", d.name, d.noBuf)
	case size <= 0 || at%page != offset%page:
		return nil, d.n.misuse("%s: dma-buf of %d bytes at %#x, offset %#x", d.name, size, at, offset)
	}
	mapped, err := unix.Mmap(fd, 0, int(offset)+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: register a dma-buf: %w", d.name, err)
	}
	r := &region{n: d.n, mem: mapped[offset:], base: at, written: true, mapped: mapped}
	r.add()
	return r, nil
}

// RefuseBuf has a device take no dma-buf, with an error, until it is nil.
func RefuseBuf(d rdma.Device, err error) {
	own := d.(*device)
	own.n.mu.Lock()
	defer own.n.mu.Unlock()
	own.noBuf = err
}

func (r *region) Keys() (local, remote uint32) { return r.local, r.remote }

func (r *region) Close() error {
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	delete(r.n.regions, r.local)
	delete(r.n.regions, r.remote)
	if r.mapped != nil {
		err := unix.Munmap(r.mapped)
		r.mapped, r.mem = nil, nil
		return err
	}
	return nil
}
