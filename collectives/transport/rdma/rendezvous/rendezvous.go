// Package rendezvous moves whole messages between registered memory of ranks over RDMA ports, without a CPU that
// touches them: memory of devices above all, which is registered as a dma-buf.
//
// Layer: inside collectives/transport/rdma, whose verbs it uses. It knows nothing of devices, streams and calls:
// package shim does.
//
// # Messages
//
// The messages of two ranks on a plane are numbered, one direction apart from the other, and both ends have them in one
// order. The receiver of message k *offers* the memory where it may arrive: a write of a few bytes into a slot at the
// sender, with address, key, size and tag. The sender compares them with its own message k, and only then writes,
// straight to where the offer says, with the message's number as immediate. So nothing is written where nobody waits
// for it, and what differs is an error before a byte is under way. A receiver offers [window] messages ahead: offer k +
// window comes after message k, which is the flow control. No offer overwrites one that has not been used, and no write
// waits for a receive.
//
// A message sent is complete when the device says that all of it is acknowledged, one received when its immediate is
// there: an RDMA write is in the peer's memory before its immediate is seen. That holds for the CPU. What a device must
// do besides to see it is package shim's part.
//
// Queue pairs are reliable: the way back carries acknowledgements and offers.
package rendezvous

import (
	"errors"
	"fmt"
	"unsafe"

	"lightpath/collectives/transport/rdma"
)

const (
	// window is how many messages a receiver offers memory for before the first has come.
	window = 16
	// signalEvery is how many requests to a signal.
	signalEvery = window / 2
	// sendRoom is how many requests may be under way: offers, and writes, of which a message may have several.
	sendRoom = 4 * window
	// recvRoom: as many offers and messages as may be on their way, and those that are not posted again yet.
	recvRoom = 2*window + repost
	repost   = window / 2
	// largest is the most bytes of one write.
	largest = 1 << 30
)

// Options describe a rank. All ranks of a communicator give the same, but for Rank and Planes, of which they have
// equally many.
type Options struct {
	Rank, Ranks int
	Planes      []rdma.PlaneOptions
	// Circuits: what the planes have are circuits, which are moved when both ends' messages are over. Nothing of them
	// may be on its way then, so one that is received is over only when the offer of its memory is acknowledged, too.
	Circuits bool
	// Timeout and Retries say when a peer is lost, TrafficClass and ServiceLevel are the packets' priority: see
	// [rdma.Path].
	Timeout, Retries           uint8
	TrafficClass, ServiceLevel uint8
}

// Addrs is what other ranks must know of one, by plane; the bootstrap carries it.
type Addrs []rdma.PlaneAddr

// Listen makes a rank's queue pairs, and says where they are. Until it is connected nothing can be done with the
// endpoint but to close it, and to register memory.
func Listen(o Options) (_ *Endpoint, _ Addrs, err error) {
	if o.Ranks < 2 || o.Ranks > 1<<15 || o.Rank < 0 || o.Rank >= o.Ranks || len(o.Planes) == 0 {
		return nil, nil, fmt.Errorf("rendezvous: rank %d of %d on %d planes", o.Rank, o.Ranks, len(o.Planes))
	}
	e, err := newEndpoint(&o)
	if err != nil {
		return nil, nil, err
	}
	addrs := make(Addrs, len(o.Planes))
	for id := range o.Planes {
		p := &e.planes[id]
		if addrs[id], err = p.open(&o); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("rendezvous: rank %d, plane %d: %w", o.Rank, id, err), e.Close())
		}
	}
	if err := e.watch(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("rendezvous: rank %d: %w", o.Rank, err), e.Close())
	}
	return e, addrs, nil
}

// Connect connects the queue pairs to those of the other ranks. It talks to nobody, but no rank may send before all
// have connected.
func (e *Endpoint) Connect(all []Addrs) error {
	o := &e.o
	if len(all) != o.Ranks {
		return fmt.Errorf("rendezvous: addresses of %d ranks, want %d", len(all), o.Ranks)
	}
	for id := range e.planes {
		p := &e.planes[id]
		mine := &all[o.Rank][id]
		for r := range all {
			if r == o.Rank {
				continue
			}
			if len(all[r]) != len(e.planes) || len(all[r][id].QPs) != o.Ranks || all[r][id].Ethernet != mine.Ethernet {
				return fmt.Errorf("rendezvous: plane %d: ranks %d and %d have ends that do not fit together", id, r, o.Rank)
			}
			if err := p.connect(&all[r][id], mine, r, o); err != nil {
				return fmt.Errorf("rendezvous: rank %d, plane %d: connect QP %#x to rank %d: %w", o.Rank, id, p.pairs[r].qp.Number(), r, err)
			}
		}
	}
	return nil
}

// plane is a rank's end of one plane.
type plane struct {
	e      *Endpoint
	id     int
	pairs  []pair
	cq     rdma.CQ
	armed  bool // an event of cq is awaited
	device int  // of the endpoint
	port   int
	note   string // what is known of the port
	// memory holds offers: as they come, by rank, then as they are written.
	memory  []byte
	regions [2]rdma.Region
	key     uint32 // of those that are written
	busy    []*pair
	wc      [32]rdma.Completion
	wr      [1]rdma.SendRequest
}

// open makes queue pairs and the memory of offers.
func (p *plane) open(o *Options) (a rdma.PlaneAddr, err error) {
	po := &o.Planes[p.id]
	if a, err = po.Address(); err != nil {
		return a, err
	}
	half := o.Ranks * window * offerSize
	if p.memory, err = rdma.MapMemory(2 * half); err != nil {
		return a, err
	}
	if err = rdma.RegisterHalves(po.Device, p.memory, &p.regions); err != nil {
		return a, err
	}
	_, a.Key = p.regions[0].Keys()
	p.key, _ = p.regions[1].Keys()
	a.Base = address(p.memory)
	if p.cq, err = po.Device.NewCQ((o.Ranks - 1) * (sendRoom + recvRoom)); err != nil {
		return a, fmt.Errorf("completion queue: %w", err)
	}
	a.QPs = make([]uint32, o.Ranks)
	p.pairs = make([]pair, o.Ranks)
	p.busy = make([]*pair, 0, o.Ranks)
	for r := range p.pairs {
		q := &p.pairs[r]
		q.plane, q.peer = p, r
		if r == o.Rank {
			continue
		}
		ring := window * offerSize
		q.come, q.written = p.memory[r*ring:][:ring], p.memory[half+r*ring:][:ring]
		q.qp, err = po.Device.NewQP(rdma.QPOptions{CQ: p.cq, Port: po.Port, Sends: sendRoom, Recvs: recvRoom, Inline: offerSize})
		if err == nil {
			err = q.qp.PostRecv(uint64(r)<<rankShift|recvBit, recvRoom)
		}
		if err != nil {
			return a, fmt.Errorf("queue pair to rank %d: %w", r, err)
		}
		a.QPs[r] = q.qp.Number()
	}
	return a, nil
}

// connect connects the queue pair to rank r, whose end of the plane is at a.
func (p *plane) connect(a, mine *rdma.PlaneAddr, r int, o *Options) error {
	q, po := &p.pairs[r], &o.Planes[p.id]
	q.remote, q.remoteKey = a.Base+uint64(o.Rank*window*offerSize), a.Key
	return q.qp.Connect(&rdma.Path{
		Port: po.Port, GIDIndex: po.GIDIndex, Ethernet: a.Ethernet,
		PeerGID: a.GID.As16(), PeerLID: a.LID, PeerQPN: a.QPs[o.Rank], PeerPSN: a.PSN, PSN: mine.PSN, MTU: min(a.MTU, mine.MTU),
		TrafficClass: o.TrafficClass, ServiceLevel: o.ServiceLevel, Timeout: o.Timeout, Retries: o.Retries,
	})
}

// close gives everything back.
func (p *plane) close() (err error) {
	for r := range p.pairs {
		if q := &p.pairs[r]; q.qp != nil {
			err = errors.Join(err, q.qp.Close())
			q.qp = nil
		}
	}
	err = errors.Join(err, rdma.CloseQueue(&p.cq, &p.regions))
	if p.memory != nil {
		rdma.UnmapMemory(p.memory)
		p.memory = nil
	}
	return err
}

func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
