package verbstest

import (
	"errors"
	"hash/maphash"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/rdma"
)

// maxInline is the limit of inlined requests in bytes.
const maxInline = 256

// cq is an [rdma.CQ].
type cq struct {
	n     *Network
	d     *device
	fd    int
	armed bool
	ring  []entry
	head  uint64
	tail  uint64
	count [8]byte // read from fd
}

// entry is a completion and the number of requests of its queue pair that it frees.
type entry struct {
	c     rdma.Completion
	q     *qp
	frees int
}

func (d *device) NewCQ(entries int) (rdma.CQ, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &cq{n: d.n, d: d, fd: fd, ring: make([]entry, entries)}, nil
}

// one is written to an eventfd for each event.
var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// push adds a completion. The caller holds mu.
func (c *cq) push(e entry) {
	if c.tail-c.head == uint64(len(c.ring)) {
		_ = c.n.misuse("completion queue of %d entries overflows", len(c.ring))
		return
	}
	c.ring[c.tail%uint64(len(c.ring))] = e
	c.tail++
	if c.armed {
		c.armed = false
		_, _ = unix.Write(c.fd, one)
	}
}

func (c *cq) Poll(into []rdma.Completion) (int, error) {
	c.n.mu.Lock()
	if until := c.d.stopped; until != nil {
		c.n.mu.Unlock()
		<-until
		c.n.mu.Lock()
	}
	defer c.n.mu.Unlock()
	i := 0
	for ; i < len(into) && c.head < c.tail; i++ {
		e := &c.ring[c.head%uint64(len(c.ring))]
		c.head++
		into[i] = e.c
		e.q.outstanding -= e.frees
	}
	return i, nil
}

func (c *cq) Arm() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.armed = true
	return nil
}

func (c *cq) FD() int { return c.fd }

func (c *cq) Quiet() (bool, error) {
	n, err := unix.Read(c.fd, c.count[:])
	if errors.Is(err, unix.EAGAIN) {
		return false, nil
	}
	return n > 0, err
}

func (c *cq) Close() error { return unix.Close(c.fd) }

// qp is an [rdma.QP].
type qp struct {
	n      *Network
	d      *device
	o      rdma.QPOptions
	number uint32
	peer   uint32
	ready  bool // state RTS
	failed bool
	vendor uint32
	queued bool // in n.active

	sends                 []send
	posted, carried, done uint64 // numbers of requests
	silent                int    // requests completed without a signal since the last completion
	outstanding           int    // requests whose completion the user has not polled
	recvs                 int
	recvID                uint64
}

// send is a posted request.
type send struct {
	r      rdma.SendRequest
	inline [maxInline]byte
	sum    uint64 // hash of the bytes carried
	flight []byte // bytes that have left the port and have not arrived
}

var seed = maphash.MakeSeed()

func (d *device) NewQP(o rdma.QPOptions) (rdma.QP, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	// Without acknowledgements, as many completed requests may still be on the wire.
	room := o.Sends
	if o.Unacknowledged {
		room *= 2
	}
	q := &qp{n: d.n, d: d, o: o, number: d.n.nextQP, sends: make([]send, room)}
	d.n.nextQP++
	d.n.qps[q.number] = q
	return q, nil
}

func (q *qp) Number() uint32 { return q.number }
func (q *qp) MaxInline() int { return maxInline }

func (q *qp) Connect(p *rdma.Path) error {
	q.n.mu.Lock()
	defer q.n.mu.Unlock()
	if q.ready {
		return q.n.misuse("QP %#x is connected already", q.number)
	}
	q.peer, q.ready = p.PeerQPN, true
	return nil
}

func (q *qp) PostRecv(id uint64, n int) error {
	q.n.mu.Lock()
	defer q.n.mu.Unlock()
	if q.recvs+n > q.o.Recvs {
		return q.n.misuse("QP %#x: %d receives, at most %d", q.number, q.recvs+n, q.o.Recvs)
	}
	q.recvs, q.recvID = q.recvs+n, id
	return nil
}

func (q *qp) PostSend(r []rdma.SendRequest) (int, error) {
	q.n.mu.Lock()
	defer q.n.mu.Unlock()
	if !q.ready {
		return 0, q.n.misuse("QP %#x is not connected", q.number)
	}
	for i := range r {
		if q.outstanding == q.o.Sends {
			return i, q.n.misuse("QP %#x: more than %d requests", q.number, q.o.Sends)
		}
		q.outstanding++
		s := &q.sends[q.posted%uint64(len(q.sends))]
		s.r = r[i]
		if r[i].Flags&rdma.SendInline != 0 {
			if r[i].Length > maxInline {
				return i, q.n.misuse("QP %#x: %d bytes inline", q.number, r[i].Length)
			}
			if r[i].DataLength > 0 {
				return i, q.n.misuse("QP %#x: two pieces inline", q.number)
			}
			copy(s.inline[:], q.n.at(r[i].LKey, r[i].Local, r[i].Length, false))
		}
		q.posted++
		if q.failed {
			q.carried = q.posted
			q.complete(rdma.FlushErr)
		}
	}
	q.n.activate(q)
	return len(r), nil
}

func (q *qp) Close() error {
	q.n.mu.Lock()
	defer q.n.mu.Unlock()
	q.n.deactivate(q)
	delete(q.n.qps, q.number)
	return nil
}

// at returns registered memory, or nil if the key does not permit the access.
func (n *Network) at(key uint32, addr uint64, size uint32, remote bool) []byte {
	r := n.regions[key]
	if r == nil || remote != (key == r.remote) || remote && !r.written {
		return nil
	}
	from := addr - r.base
	if from > uint64(len(r.mem)) || uint64(size) > uint64(len(r.mem))-from {
		return nil
	}
	return r.mem[from:][:size]
}

// size returns the size of the payload in bytes.
func (s *send) size() uint32 { return s.r.Length + s.r.DataLength }

// pieces returns the payload of a request, and whether its memory is registered.
func (q *qp) pieces(s *send) (p [2][]byte, ok bool) {
	if s.r.Flags&rdma.SendInline != 0 {
		p[0] = s.inline[:s.r.Length]
		return p, true
	}
	p[0] = q.n.at(s.r.LKey, s.r.Local, s.r.Length, false)
	p[1] = q.n.at(s.r.DataKey, s.r.Data, s.r.DataLength, false)
	return p, uint32(len(p[0])+len(p[1])) == s.size()
}

// sum returns a hash of the pieces.
func sum(p [2][]byte) uint64 { return maphash.Bytes(seed, p[0]) ^ maphash.Bytes(seed, p[1])*3 }

// reaches reports whether the next request arrives at the peer.
func (q *qp) reaches(to *qp) bool {
	return to != nil && to.ready && !to.failed && q.d.reaches(to.d) &&
		(q.n.drop == nil || !q.n.drop(q.number, q.peer, q.carried))
}

// leave lets the next request leave the port, which completes it without acknowledgements. The caller holds mu.
func (q *qp) leave() {
	s := &q.sends[q.done%uint64(len(q.sends))]
	from, ok := q.pieces(s)
	if !ok {
		_ = q.n.misuse("QP %#x: local memory of a request is not registered", q.number)
		q.fail(4)
		return
	}
	if size := int(s.size()); size > cap(s.flight) {
		for i := range q.sends { // grow all buffers at once, so that the steady state does not allocate
			q.sends[i].flight = append(make([]byte, 0, size), q.sends[i].flight...)
		}
	}
	s.flight = append(append(s.flight[:0], from[0]...), from[1]...)
	q.complete(rdma.Success)
}

// arrive delivers a request that has left the port, or loses it. The caller holds mu.
func (q *qp) arrive() {
	s := &q.sends[q.carried%uint64(len(q.sends))]
	to := q.n.qps[q.peer]
	if q.reaches(to) {
		q.deliver(s, to, [2][]byte{s.flight})
	} else {
		q.lose()
		q.carried++
		if to != nil { // the first packets may still arrive
			copy(q.n.at(s.r.RKey, s.r.Remote, s.size(), true), s.flight[:len(s.flight)/2])
		}
	}
	if q.carried == q.posted {
		q.n.deactivate(q)
	}
}

// lose counts a lost request.
func (q *qp) lose() {
	if q.d.crossbar != nil {
		q.d.crossbar.lost++
	}
}

// carry delivers the next request, or fails the queue pair. The caller holds mu.
func (q *qp) carry() {
	s := &q.sends[q.carried%uint64(len(q.sends))]
	to := q.n.qps[q.peer]
	lost := !q.reaches(to) || !to.d.reaches(q.d) // the request or its acknowledgement
	from, ok := q.pieces(s)
	s.sum = sum(from)
	switch {
	case !ok:
		_ = q.n.misuse("QP %#x: local memory of a request is not registered", q.number)
		q.fail(4)
	case lost:
		q.lose()
		q.fail(rdma.RetryExc)
	default:
		q.deliver(s, to, from)
	}
}

// deliver writes the payload into the peer's memory and completes a receive.
func (q *qp) deliver(s *send, to *qp, from [2][]byte) {
	if s.size() > 0 {
		mem := q.n.at(s.r.RKey, s.r.Remote, s.size(), true)
		if mem == nil {
			_ = q.n.misuse("QP %#x: write outside the peer's memory", q.number)
			q.reject(rdma.AccessErr)
			return
		}
		copy(mem[copy(mem, from[0]):], from[1])
		q.n.count(s)
		if q.n.corrupt > 0 {
			q.n.corrupt--
			mem[len(mem)/2] ^= 0x10
		}
	}
	if s.r.Flags&rdma.SendImmediate != 0 {
		if to.recvs == 0 {
			_ = q.n.misuse("QP %#x: no receive is posted", to.number)
			q.reject(rdma.RNRExc)
			return
		}
		to.recvs--
		size := s.size()
		if q.n.truncate {
			size = q.n.size
		}
		c := rdma.Completion{ID: to.recvID, Bytes: size, Imm: s.r.Imm, QPN: to.number}
		to.o.CQ.(*cq).push(entry{c, to, 0})
	}
	q.carried++
}

// count adds a request to n.moved.
func (n *Network) count(s *send) {
	if s.r.Flags&rdma.SendInline != 0 {
		return
	}
	for _, piece := range [2]struct{ key, size uint32 }{{s.r.LKey, s.r.Length}, {s.r.DataKey, s.r.DataLength}} {
		if r := n.regions[piece.key]; r != nil && r.mapped != nil {
			n.moved.FromBuf += int64(piece.size)
		} else {
			n.moved.FromHost += int64(piece.size)
		}
	}
	if n.regions[s.r.RKey].mapped != nil {
		n.moved.ToBuf += int64(s.size())
	} else {
		n.moved.ToHost += int64(s.size())
	}
}

// reject handles a request that the peer cannot accept. Without acknowledgements the sender does not notice.
func (q *qp) reject(s rdma.Status) {
	if q.o.Unacknowledged {
		q.carried++
		return
	}
	q.fail(s)
}

// acknowledge completes the oldest carried request, whose memory must not have changed because the device could have
// retransmitted it until now.
func (q *qp) acknowledge() {
	s := &q.sends[q.done%uint64(len(q.sends))]
	if to := q.n.qps[q.peer]; q.d.crossbar != nil && to != nil && !to.d.reaches(q.d) {
		q.lose() // the acknowledgement is lost, and retransmissions as well
		q.fail(rdma.RetryExc)
		return
	}
	if from, _ := q.pieces(s); sum(from) != s.sum {
		_ = q.n.misuse("QP %#x: memory of a request has changed before it was complete", q.number)
	}
	q.complete(rdma.Success)
	if q.done == q.posted {
		q.n.deactivate(q)
	}
}

// complete completes the oldest request.
func (q *qp) complete(status rdma.Status) {
	s := &q.sends[q.done%uint64(len(q.sends))]
	q.done++
	q.silent++
	if s.r.Flags&rdma.SendSignaled == 0 && status == rdma.Success {
		return
	}
	e := entry{rdma.Completion{ID: s.r.ID, Status: status, QPN: q.number}, q, q.silent}
	if status != rdma.Success {
		e.c.Vendor = q.vendor
	}
	q.silent = 0
	q.o.CQ.(*cq).push(e)
}

// fail puts the queue pair into the error state. The oldest request gets the status, and all others are flushed.
func (q *qp) fail(status rdma.Status) {
	q.failed = true
	q.n.deactivate(q)
	for q.done < q.posted {
		q.complete(status)
		status = rdma.FlushErr
	}
	q.carried = q.posted
	for ; q.recvs > 0; q.recvs-- {
		c := rdma.Completion{ID: q.recvID, Status: status, Vendor: q.vendor, QPN: q.number}
		q.o.CQ.(*cq).push(entry{c, q, 0})
		status = rdma.FlushErr
	}
}
