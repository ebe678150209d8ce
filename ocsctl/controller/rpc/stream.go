package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// stream is one connection of a session. Its handler's goroutine writes, another one reads.
type stream struct {
	grpc.BidiStreamingServer[ocspb.Up, ocspb.Down]
	ctx     context.Context
	session *session
	wake    chan struct{} // something to send
	hello   chan *ocspb.Hello
	ready   chan struct{} // closed: the session is there
	ended   chan ending
	done    chan struct{} // closed: the reader does not touch the session any more
	kicked  chan struct{} // closed: another stream has taken the session over

	// The writer's, reused from message to message.
	down    ocspb.Down
	changed []*ocspb.Changed
	sent    []circuit.Permutation // the map that the rank has, by plane
	stall   *time.Timer
	limit   time.Duration // of stall
}

// ending is why a stream is over.
type ending struct {
	err    error // nil: goodbye
	broken bool  // by the network, as far as one can see: the rank may come back
}

func newStream(s grpc.BidiStreamingServer[ocspb.Up, ocspb.Down], planes int, stall time.Duration) *stream {
	st := &stream{
		BidiStreamingServer: s, ctx: s.Context(), wake: make(chan struct{}, 1), hello: make(chan *ocspb.Hello, 1),
		ready: make(chan struct{}), ended: make(chan ending, 1), done: make(chan struct{}), kicked: make(chan struct{}),
		changed: make([]*ocspb.Changed, planes), sent: make([]circuit.Permutation, planes), limit: stall,
	}
	for j := range st.changed {
		st.changed[j] = new(ocspb.Changed)
	}
	st.stall = time.AfterFunc(time.Hour, func() { hangUp(st.ctx) })
	st.stall.Stop()
	return st
}

// read is the reader's goroutine: the Hello first, then whatever a session may ask for.
func (st *stream) read() {
	defer close(st.done)
	up, err := st.Recv()
	if err != nil {
		st.ended <- ending{err, true}
		return
	}
	hello := up.GetHello()
	if hello == nil {
		st.ended <- ending{err: fmt.Errorf("%s before hello: %w", kind(up), ErrProtocol)}
		return
	}
	st.hello <- hello
	select {
	case <-st.ready:
	case <-st.ctx.Done():
		return
	}
	for {
		if err := st.RecvMsg(up); err != nil {
			st.ended <- ending{err, true}
			return
		}
		if up.GetGoodbye() != nil {
			st.ended <- ending{}
			return
		}
		if err := st.session.apply(up); err != nil {
			st.ended <- ending{err: fmt.Errorf("port %d: %w", st.session.port, err)}
			return
		}
	}
}

// write sends what the session has until the stream ends.
func (st *stream) write() ending {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-st.wake:
		case <-beat.C:
		case e := <-st.ended:
			return e
		case <-st.kicked:
			return ending{err: fmt.Errorf("port %d: the rank has come back on another stream: %w", st.session.port, ErrProtocol)}
		case <-st.ctx.Done():
			return ending{st.ctx.Err(), true}
		}
		closed := st.collect()
		if err := st.put(&st.down); err != nil {
			return ending{err, true}
		}
		if closed != nil {
			return ending{err: closed}
		}
	}
}

// put sends one message; a rank that takes none for too long loses its connection.
func (st *stream) put(d *ocspb.Down) error {
	st.stall.Reset(st.limit)
	defer st.stall.Stop()
	return st.Send(d)
}

// collect puts into down what the rank does not know yet, and returns why this is the last
// message, if it is.
func (st *stream) collect() error {
	x, d := st.session, &st.down
	d.Changed, d.Refused, d.Granted, d.Wanted = d.Changed[:0], d.Refused[:0], d.Granted[:0], d.Wanted[:0]
	x.mu.Lock()
	defer x.mu.Unlock()
	for j := 0; x.dirty != 0 && j < len(x.planes); j++ {
		if x.dirty&(1<<j) == 0 {
			continue
		}
		x.dirty &^= 1 << j
		d.Changed = append(d.Changed, st.change(j, &x.planes[j]))
	}
	d.Refused = append(d.Refused, x.refused[x.refusedSent:]...)
	x.refusedSent = len(x.refused)
	d.Wanted = append(d.Wanted, x.wanted[x.wantedSent:]...)
	x.wantedSent = len(x.wanted)
	for i := 0; x.unsent != 0 && i < len(x.answered); i++ {
		if r := x.requests[x.answered[i]]; !r.sent {
			r.sent = true
			x.unsent--
			d.Granted = append(d.Granted, r.answer)
		}
	}
	return x.closed
}

// welcome answers a Hello; from here on the rank has the maps in it.
func (st *stream) welcome(snapshot *controller.Snapshot, resumed bool) *ocspb.Welcome {
	x := st.session
	o := &x.server.o
	w := &ocspb.Welcome{
		Protocol: ProtocolVersion, Version: o.Version, Name: o.Name, Token: snapshot.Token, Ports: uint32(o.Ports),
		DataPlane: o.DataPlane,
		Session:   x.id[:], Resumed: resumed, Held: leases(snapshot, x.port),
	}
	for _, p := range o.Planes {
		w.Planes = append(w.Planes, toPlaneInfo(p))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for j := range x.planes {
		p := &x.planes[j]
		w.State = append(w.State, &ocspb.Changed{Plane: uint32(j), Epoch: p.epoch, Map: toMap(p.maps),
			Fault: toFault(p.fault)})
		st.sent[j] = p.maps
	}
	x.dirty, x.refusedSent, x.wantedSent = 0, 0, 0
	return w
}

// change writes where a plane is: whole, or as the difference to what the rank has where that
// is shorter.
func (st *stream) change(plane int, p *planeMail) *ocspb.Changed {
	c := st.changed[plane]
	c.Plane, c.Epoch, c.Fault = uint32(plane), p.epoch, toFault(p.fault)
	c.Map, c.Port, c.To = c.Map[:0], c.Port[:0], c.To[:0]
	was := st.sent[plane]
	st.sent[plane] = p.maps
	if len(was) == len(p.maps) {
		for r, s := range p.maps {
			if was[r] != s {
				c.Port, c.To = append(c.Port, uint32(r)), append(c.To, int32(s))
			}
		}
		if 2*len(c.Port) <= len(p.maps) {
			return c
		}
		c.Port, c.To = c.Port[:0], c.To[:0]
	}
	for _, s := range p.maps {
		c.Map = append(c.Map, int32(s))
	}
	return c
}
