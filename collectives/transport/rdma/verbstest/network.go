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

// Network is an RDMA network; it implements [rdma.Verbs].
type Network struct {
	mu       sync.Mutex
	work     *sync.Cond
	rng      *rand.Rand
	devices  []*device
	qps      map[uint32]*qp
	active   []*qp // queue pairs with incomplete requests
	nextQP   uint32
	nextKey  uint32
	regions  map[uint32]*region // by local and by remote key
	stopped  bool
	held     bool
	late     uint32 // queue pair whose requests are not acknowledged, 0 for none
	misused  error  // the first misuse of verbs
	drop     func(src, dst uint32, sent uint64) bool
	corrupt  int // number of writes to corrupt
	truncate bool
	size     uint32 // bytes that receives report if truncate is set
	moved    Moved
}

// Moved counts the bytes of all writes that were not inlined, by the kind of their source and destination memory.
type Moved struct {
	FromHost, FromBuf, ToHost, ToBuf int64
}

// Moved returns the counts since New.
func (n *Network) Moved() Moved {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.moved
}

// New returns a network without devices. It starts a goroutine, which Close ends.
func New(seed uint64) *Network {
	n := &Network{
		rng: rand.New(rand.NewPCG(seed, 1)), qps: map[uint32]*qp{}, regions: map[uint32]*region{},
		nextQP: 0x11, nextKey: 0x1000,
	}
	n.work = sync.NewCond(&n.mu)
	go n.run()
	return n
}

// Close ends the network. It returns the first misuse, or an error for queue pairs and regions that are still open.
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
	if n.misused != nil {
		return n.misused
	}
	if len(n.qps) > 0 || len(n.regions) > 0 {
		return fmt.Errorf("verbstest: %d queue pairs and %d keys are still open", len(n.qps), len(n.regions))
	}
	return nil
}

// Idle reports whether all queue pairs and regions are closed.
func (n *Network) Idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.qps) == 0 && len(n.regions) == 0
}

// Hold stops all traffic until Hold(false).
func (n *Network) Hold(hold bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = hold
	n.work.Broadcast()
}

// HoldAcks holds the acknowledgements of a queue pair's requests or, without acknowledgements, the requests themselves
// after they have left the port. HoldAcks(0) ends it.
func (n *Network) HoldAcks(qpn uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = qpn
	n.work.Broadcast()
}

// Drop loses the requests for which f returns true; nil loses none. sent is the number of the request on its queue
// pair, from 0. The network calls f while it is locked.
func (n *Network) Drop(f func(src, dst uint32, sent uint64) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop = f
}

// Corrupt changes a byte in each of the next writes with payload.
func (n *Network) Corrupt(writes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.corrupt = writes
}

// Truncate makes all receives report size bytes.
func (n *Network) Truncate(size uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.truncate, n.size = true, size
}

// Fail makes a queue pair fail with a status.
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

// misuse returns an error for a misuse of verbs and stores the first one for Close. The caller holds mu.
func (n *Network) misuse(format string, args ...any) error {
	err := fmt.Errorf("verbstest: "+format, args...)
	if n.misused == nil {
		n.misused = err
	}
	return err
}

// run processes requests of random queue pairs until Close.
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
			n.stepUnacknowledged(q)
			continue
		}
		// A request is carried first and acknowledged later, possibly after other requests were carried.
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

// yield sometimes unlocks the network for other goroutines.
func (n *Network) yield() {
	if n.rng.IntN(8) == 0 {
		n.mu.Unlock()
		n.mu.Lock()
	}
}

// stepUnacknowledged lets a request of q leave its port, or arrive at the peer.
func (n *Network) stepUnacknowledged(q *qp) {
	leaves := q.done < q.posted && q.done-q.carried < uint64(q.o.Sends)
	held := q.number == n.late || q.carried == q.done
	switch {
	case leaves && (held || n.rng.IntN(2) == 0):
		q.leave()
	case !held:
		q.arrive()
	case len(n.active) == 1:
		n.work.Wait()
		return
	}
	n.yield()
}

// activate adds q to the active queue pairs if it has incomplete requests. The caller holds mu.
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

// Add adds a device with one active Ethernet port at the address 10.0.0.x.
func (n *Network) Add(name string) rdma.Device {
	n.mu.Lock()
	defer n.mu.Unlock()
	port := rdma.PortInfo{Active: true, State: "ACTIVE", MTU: 4096, Ethernet: true, GIDs: 2}
	d := &device{n: n, name: name, port: port}
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

	crossbar *Crossbar // nil: the device reaches all others
	at       int       // port of the crossbar
	events   []rdma.Event
	eventFD  int
	stopped  <-chan struct{} // see Stop
	dead     bool            // see Kill
	noBuf    error           // see RefuseBuf
}

// Stop blocks every poll of the device's completion queues until the channel is closed. It simulates a stopped process
// whose device still acknowledges requests.
func Stop(d rdma.Device, until <-chan struct{}) {
	own := d.(*device)
	own.n.mu.Lock()
	defer own.n.mu.Unlock()
	own.stopped = until
}

// Kill simulates a killed process or a host without power: the device sends and acknowledges nothing. Every poll of its
// completion queues blocks until the channel is closed; then the test may close its objects.
func Kill(d rdma.Device, until <-chan struct{}) {
	own := d.(*device)
	own.n.mu.Lock()
	defer own.n.mu.Unlock()
	own.stopped, own.dead = until, true
}

// SetPort sets the description and the table of a device's port.
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
	base          uint64 // address of mem[0]
	local, remote uint32 // keys
	written       bool
	mapped        []byte // mapping of a dma-buf
}

func (d *device) Register(mem []byte, written bool) (rdma.Region, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	if len(mem) == 0 {
		return nil, errors.New("register: empty memory")
	}
	r := &region{n: d.n, mem: mem, base: uint64(uintptr(unsafe.Pointer(&mem[0]))), written: written}
	r.add()
	return r, nil
}

// add assigns keys to a region. The caller holds mu.
func (r *region) add() {
	r.local, r.remote = r.n.nextKey, r.n.nextKey+1
	r.n.nextKey += 2
	r.n.regions[r.local], r.n.regions[r.remote] = r, r
}

// RegisterBuf implements [rdma.Device]. It accepts any file that can be mapped.
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

// RefuseBuf makes RegisterBuf of a device return err; nil ends it.
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
