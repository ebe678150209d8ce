package netplugin

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/messages"
)

// Messenger moves messages between registered memory of ranks, and implements [messages.Endpoint]. The rings of its
// endpoint carry offers. The bytes of messages have connections of their own, without a copy by a CPU.
type Messenger struct {
	messages.Progress
	e       *Endpoint
	most    int    // bytes of a message of the plugin
	flush   bool   // received bytes are visible to the device only after a flush
	flows   []flow // by plane and rank: first from the rank, then to it
	active  int    // messages that have begun and are not complete
	err     error  // of a flow; sticky
	regions []*region
}

var _ messages.Endpoint = (*Messenger)(nil)

// flow is a connection of the plugin, and its messages that have begun and are not complete.
type flow struct {
	m           *Messenger
	plane, peer int
	sends       bool
	conn        Conn // nil: not connected, or of the rank itself
	items       messages.Queue[item]
	number      uint64 // of the first message
	// offered counts the messages with offers, posted the messages of which all parts are posted.
	offered, posted int
	cut             int64 // bytes that are posted of the message after these
	moved           int64 // bytes of the first message that have moved
	// Parts are numbered from 0, and part i uses request i mod slots.
	requests    [slots]Request
	sizes       [slots]int
	first, next uint64 // the first part that is not complete, and the next one
	flushing    bool   // the first part has arrived and is being flushed
}

// item is a message.
type item struct {
	at     unsafe.Pointer
	bytes  int64
	memory Memory
	tag    uint32
	group  *messages.Group
}

func newMessenger(e *Endpoint, most int, flush bool) *Messenger {
	m := &Messenger{e: e, most: most, flush: flush}
	for plane := range e.planes {
		for peer := range e.ranks {
			from := flow{m: m, plane: plane, peer: peer}
			to := from
			to.sends = true
			m.flows = append(m.flows, from, to)
		}
	}
	return m
}

// flow returns the number of the messages from a rank or to it.
func (m *Messenger) flow(plane, peer int, sends bool) int {
	i := 2 * (plane*m.e.ranks + peer)
	if sends {
		i++
	}
	return i
}

// region is memory that is registered with all connections.
type region struct {
	messages.Span
	m        *Messenger
	memories []Memory // by flow
}

// Register implements [messages.Endpoint]. It holds the lock for one connection at a time.
func (m *Messenger) Register(fd int, offset uint64, at unsafe.Pointer, size int) (messages.Region, error) {
	r := &region{Span: messages.SpanOf(at, size), m: m}
	m.e.mu.Lock()
	m.regions = append(m.regions, r)
	m.e.mu.Unlock()
	for i := range m.flows {
		if err := r.register(&m.flows[i], fd, offset, at, size); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

func (r *region) register(f *flow, fd int, offset uint64, at unsafe.Pointer, size int) (err error) {
	r.m.e.mu.Lock()
	defer r.m.e.mu.Unlock()
	if r.m.e.sleeper.Closed() {
		return transport.ErrClosed
	}
	var known Memory
	if f.conn != nil {
		if known, err = f.conn.RegisterDevice(at, size, fd, offset); err != nil {
			return f.error(fmt.Errorf("register %d bytes of a GPU: %w", size, err))
		}
	}
	r.memories = append(r.memories, known)
	return nil
}

// Close implements [messages.Region].
func (r *region) Close() (err error) {
	for more := true; more; {
		r.m.e.mu.Lock()
		if more = len(r.memories) > 0; more {
			err = errors.Join(err, r.deregister())
		} else if i := slices.Index(r.m.regions, r); i >= 0 {
			r.m.regions = slices.Delete(r.m.regions, i, i+1)
		}
		r.m.e.mu.Unlock()
	}
	return err
}

// deregister deregisters the memory from the last connection that still has it. The caller holds e.mu.
func (r *region) deregister() (err error) {
	last := len(r.memories) - 1
	if f := &r.m.flows[last]; f.conn != nil {
		err = f.error(f.conn.Deregister(r.memories[last]))
	}
	r.memories = r.memories[:last]
	return err
}

// Begin implements [messages.Endpoint]. Hot path: no allocation, no logging.
func (m *Messenger) Begin(g *messages.Group) error {
	if err := g.Check(m.e.rank, m.e.ranks, len(m.e.planes)); err != nil {
		return err
	}
	m.Begun(g)
	for i := range g.Transfers {
		t := &g.Transfers[i]
		n := m.flow(t.Plane, t.Peer, t.Send)
		it := item{at: t.At, bytes: t.Bytes, tag: t.Tag, group: g}
		if t.Bytes > 0 {
			it.memory = t.Region.(*region).memories[n]
		}
		m.flows[n].items.Push(it)
	}
	m.active += len(g.Transfers)
	m.Done(g)
	return nil
}

// Poll implements [messages.Endpoint]. Hot path: no allocation, no logging.
func (m *Messenger) Poll() ([]*messages.Group, error) {
	m.progress()
	if m.err != nil {
		return nil, m.err
	}
	return m.Completed(), nil
}

// progress moves all messages. It reports whether bytes have moved or a flow has failed.
// Hot path: no allocation, no logging.
func (m *Messenger) progress() bool {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	if m.e.sleeper.Closed() {
		m.err = transport.ErrClosed
	}
	before := m.Steps
	for i := range m.flows {
		if m.err != nil {
			return true
		}
		if f := &m.flows[i]; f.items.Len() > 0 {
			m.err = f.error(f.advance())
		}
	}
	return m.Steps != before
}

// advance moves the messages of a flow.
func (f *flow) advance() (err error) {
	if f.sends {
		err = f.match()
	} else {
		err = f.offer()
	}
	if err == nil {
		err = f.post()
	}
	if err == nil {
		err = f.take()
	}
	return err
}

// offer tells the sender of the messages that this rank waits for.
func (f *flow) offer() error {
	tx := &f.m.e.planes[f.plane].peers[f.peer].tx
	for f.offered < f.items.Len() && tx.room() > 0 {
		it := f.items.At(f.offered)
		o := messages.Offer{Tag: it.tag, Number: f.number + uint64(f.offered), Bytes: uint64(it.bytes)}
		o.Encode(tx.add(messages.OfferSize))
		f.offered++
	}
	tx.progress()
	return tx.err
}

// match takes the offers of the receiver, and compares them with the messages to it.
func (f *flow) match() error {
	p := f.m.e.planes[f.plane]
	q := &p.peers[f.peer]
	for f.offered < f.items.Len() && p.progressFrom(q) {
		it, o := f.items.At(f.offered), messages.Offer{}
		err := o.Match(q.rx.message(), f.peer, f.number+uint64(f.offered), it.tag, uint64(it.bytes))
		if errors.Is(err, messages.ErrOffer) {
			err = fmt.Errorf("%w: %w", transport.ErrCorrupt, err)
		}
		if err != nil {
			return err
		}
		q.rx.released++
		f.offered++
	}
	if f.offered == f.items.Len() {
		return nil
	}
	if q.rx.err != nil {
		return q.rx.err
	}
	return p.left(q)
}

// post posts the parts of messages with offers.
func (f *flow) post() error {
	for f.posted < f.offered && f.next-f.first < slots {
		it := f.items.At(f.posted)
		if n := int(min(it.bytes-f.cut, int64(f.m.most))); n > 0 {
			var r Request
			var err error
			if at := unsafe.Add(it.at, f.cut); f.sends {
				r, err = f.conn.Send(at, n, it.memory)
			} else {
				r, err = f.conn.Receive(at, n, it.memory)
			}
			if err != nil || r == 0 {
				return err
			}
			f.requests[f.next%slots], f.sizes[f.next%slots] = r, n
			f.next++
			f.cut += int64(n)
		}
		if f.cut == it.bytes {
			f.posted, f.cut = f.posted+1, 0
		}
	}
	return nil
}

// take takes the parts that have moved. Received parts count when the device can see them. A message without bytes that
// is not complete comes first: the parts belong to the messages behind it.
func (f *flow) take() error {
	for f.complete(); f.first < f.next && f.items.At(0).bytes > 0; f.complete() {
		i := f.first % slots
		size, done, err := f.conn.Test(f.requests[i])
		switch {
		case err != nil || !done:
			return err
		case f.sends || f.flushing:
		case size != f.sizes[i]:
			return fmt.Errorf("%w: %d bytes of message %d, want %d", transport.ErrCorrupt, size, f.number, f.sizes[i])
		case f.m.flush:
			it := f.items.At(0)
			r, err := f.conn.Flush(unsafe.Add(it.at, f.moved), size, it.memory)
			if err != nil {
				return err
			}
			if r != 0 {
				f.requests[i], f.flushing = r, true
				continue
			}
		}
		f.flushing = false
		f.moved += int64(f.sizes[i])
		f.first++
		f.m.Steps++
	}
	return nil
}

// complete ends the first messages if all their bytes have moved. A message without bytes ends at the receiver when its
// offer has left.
func (f *flow) complete() {
	for f.posted > 0 {
		it, tx := f.items.At(0), &f.m.e.planes[f.plane].peers[f.peer].tx
		if f.moved < it.bytes || it.bytes == 0 && !f.sends && tx.done != tx.built {
			return
		}
		if f.sends {
			f.m.Sent += it.bytes
		}
		f.m.Done(it.group)
		f.m.Steps++
		f.m.active--
		f.items.Pop()
		f.number, f.offered, f.posted, f.moved = f.number+1, f.offered-1, f.posted-1, 0
	}
}

// error adds ranks and plane to an error.
func (f *flow) error(err error) error {
	if err == nil {
		return nil
	}
	way := "from"
	if f.sends {
		way = "to"
	}
	return flowError(f.m.e.rank, f.plane, 0, way, f.peer, err)
}

// Waiting implements [messages.Endpoint].
func (m *Messenger) Waiting() (w messages.Wait, ok bool) {
	for i := range m.flows {
		f := &m.flows[i]
		if f.items.Len() == 0 || ok && f.offered == 0 {
			continue // a message that has begun to move comes first
		}
		w = messages.Wait{Plane: f.plane, Peer: f.peer, Send: f.sends, Number: f.number, Bytes: f.items.At(0).bytes,
			Offered: f.sends && f.offered > 0}
		if ok = true; f.offered > 0 {
			break
		}
	}
	return w, ok
}

// Arm implements [messages.Endpoint].
func (m *Messenger) Arm() uint32 { return m.e.sleeper.Arm() }

// Wait implements [messages.Endpoint]. While there are messages, it polls the plugin.
func (m *Messenger) Wait(armed uint32, d time.Duration) {
	if m.active == 0 {
		m.e.sleeper.Wait(armed, d)
		return
	}
	m.e.wait(armed, d, m.progress)
}

// Wake implements [messages.Endpoint].
func (m *Messenger) Wake() { m.e.Wake() }

// Close implements [messages.Endpoint]. It waits for the peers like [Endpoint.Close].
func (m *Messenger) Close() error { return m.e.Close() }

// close deregisters all memory and closes the connections. The caller holds e.mu.
func (m *Messenger) close() (err error) {
	for _, r := range m.regions {
		for len(r.memories) > 0 {
			err = errors.Join(err, r.deregister())
		}
	}
	m.regions = nil
	for i := range m.flows {
		if f := &m.flows[i]; f.conn != nil {
			err = errors.Join(err, f.error(f.conn.Close()))
			f.conn = nil
		}
	}
	return err
}
