package rendezvous

import (
	"errors"
	"fmt"
	"unsafe"

	"lightpath/collectives/transport/internal/dma"
	"lightpath/collectives/transport/messages"
	"lightpath/collectives/transport/rdma"
)

const (
	offerSize = messages.OfferSize
	// window is the number of outstanding offers of a receiver.
	window = 16
	// Every signalEvery-th request is signalled.
	signalEvery = window / 2
	// sendDepth is the number of outstanding requests: offers and writes. A message may have several writes.
	sendDepth = 4 * window
	// recvDepth is the number of receives: for offers and messages in flight, and for receives that are not reposted
	// yet.
	recvDepth   = 2*window + repostBatch
	repostBatch = window / 2
	// maxWrite is the largest write in bytes.
	maxWrite = 1 << 30
)

// Options describe a rank. All fields except Rank and Planes are the same at all ranks of the communicator, and all
// ranks have the same number of planes.
type Options struct {
	Rank, Ranks int
	Planes      []rdma.PlaneOptions
	// Circuits is set for planes with circuits. They move after the messages have completed at both ranks, so no packet
	// may be in flight then. So a received message completes only after its offer is acknowledged.
	Circuits bool
	rdma.Service
}

// Addrs are a rank's addresses by plane, which the bootstrap distributes to all ranks.
type Addrs []rdma.PlaneAddr

// Listen creates a rank's queue pairs and returns their addresses. Before Connect, the caller may only register memory
// and close the endpoint.
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
	if err := e.openPoller(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("rendezvous: rank %d: %w", o.Rank, err), e.Close())
	}
	return e, addrs, nil
}

// Connect connects the queue pairs to those of the other ranks. It does not communicate, but no rank may send before
// all ranks have connected.
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
			if len(all[r]) != len(e.planes) {
				return fmt.Errorf("rendezvous: rank %d has %d planes, rank %d has %d", r, len(all[r]), o.Rank, len(e.planes))
			}
			if err := p.connect(&all[r][id], mine, r, o); err != nil {
				return fmt.Errorf("rendezvous: rank %d, plane %d: connect QP %#x to rank %d: %w",
					o.Rank, id, p.pairs[r].qp.Number(), r, err)
			}
		}
	}
	return nil
}

// plane is one plane of a rank.
type plane struct {
	e     *Endpoint
	id    int
	pairs []pair
	rdma.Queues
	armed  bool // CQ is armed and has caused no event since
	device int  // index in Endpoint.devices
	port   int
	note   string  // state of the port, if known
	busy   []*pair // pairs that the next poll advances
	wc     [32]rdma.Completion
	wr     [1]rdma.SendRequest
}

// open creates the queues and the memory for offers.
func (p *plane) open(o *Options) (rdma.PlaneAddr, error) {
	a, err := p.Open(&o.Planes[p.id], o.Rank, o.Ranks, window*offerSize,
		rdma.QPOptions{Sends: sendDepth, Recvs: recvDepth, Inline: offerSize})
	if err != nil {
		return a, err
	}
	p.pairs, p.busy = make([]pair, o.Ranks), make([]*pair, 0, o.Ranks)
	for r, qp := range p.QPs {
		q := &p.pairs[r]
		q.plane, q.peer, q.qp = p, r, qp
		q.peerOffers, q.ownOffers = p.Rings(r)
	}
	return a, nil
}

// connect connects the queue pair to rank r, whose address on the plane is a.
func (p *plane) connect(a, mine *rdma.PlaneAddr, r int, o *Options) error {
	q := &p.pairs[r]
	q.remote, q.remoteKey = a.Base+uint64(o.Rank*window*offerSize), a.Key
	return o.Planes[p.id].Connect(q.qp, o.Rank, mine, a, o.Service)
}

// close closes the queues and unmaps the memory.
func (p *plane) close() error {
	err := p.Close()
	if p.Memory != nil {
		dma.Unmap(p.Memory)
		p.Memory = nil
	}
	return err
}

func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
