package protocols

import (
	"errors"
	"slices"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// session is a rank's place at a controller, with the news that the core has for the rank. It outlives a broken
// connection for a while, as in package rpc.
type session struct {
	p          *process
	id         uint64
	port       int
	at         controller.Attachment
	c          *connection           // nil: it is broken
	mail       []news                // by plane, the newest
	dirty      []bool                // has not been sent
	begun      []circuit.Permutation // by plane: the first map of the port's epoch
	refused    []refused
	told       int      // of refused
	wanted     []wanted // news for leases that the rank has
	toldWanted int
	asked      map[uint64]*grant // answers by request; nil: it waits
	fresh      []uint64          // requests whose answers have not been sent
	armed      bool              // a flush is planned
	over       bool
}

// linger is how long a session waits for its rank after the connection broke.
const linger = 2 * time.Second

var errStandsBy = errors.New("stands by")

// attach makes a session for a rank, or resumes the rank's session.
func (p *process) attach(c *connection, m hello) error {
	if p.core == nil {
		return errStandsBy
	}
	x, resumed := p.sessions[c.port.index], true
	if x == nil || m.session != x.id || m.session == 0 {
		if x != nil {
			x.end(false)
		}
		x, resumed = newSession(p, c.port.index), false
	}
	if x.c != nil {
		x.c.cut("the rank is back on another connection")
	}
	x.c = c
	c.session = x
	if !resumed {
		var err error
		if x.at, err = p.core.Attach(x, controller.AttachOptions{Port: x.port, Held: m.held, Known: m.known}); err != nil {
			x.over, x.c, c.session = true, nil, nil
			return err
		}
		p.sessions[x.port] = x
	}
	shot, err := p.core.Snapshot()
	if err != nil {
		return err
	}
	held := []ocsctl.Lease{}
	for _, l := range shot.Leases() {
		if l.Port == x.port {
			held = append(held, ocsctl.Lease{Holder: l.Holder, Mask: l.Mask})
		}
	}
	clear(x.dirty)
	c.tell(welcome{held: held, states: slices.Clone(x.mail), token: p.rule.token, session: x.id, resumed: resumed})
	x.flush()
	p.touch()
	return nil
}

func newSession(p *process, port int) *session {
	p.nextID++
	return &session{p: p, id: p.nextID, port: port, mail: make([]news, p.w.cfg.Planes),
		dirty: make([]bool, p.w.cfg.Planes), begun: make([]circuit.Permutation, p.w.cfg.Planes), asked: map[uint64]*grant{}}
}

// serve handles a message of the rank.
func (x *session) serve(m any) {
	if x.over || x.p.core == nil {
		return
	}
	var err error
	switch m := m.(type) {
	case agree:
		err = x.at.Post(m.plane, m.epoch, m.holder, m.target)
	case acquire:
		answer, again := x.asked[m.id]
		switch {
		case !again:
			x.asked[m.id] = nil
			err = x.at.Acquire(m.id, m.Lease)
		case answer != nil: // after a break
			x.fresh = append(x.fresh, m.id)
			x.wake()
		}
	case release:
		x.wanted = slices.DeleteFunc(x.wanted, func(o wanted) bool { return o.holder == m.holder })
		x.toldWanted = 0 // some go out twice
		err = x.at.Release(m.mask, m.holder)
	}
	if err != nil && !errors.Is(err, controller.ErrStopped) && !errors.Is(err, controller.ErrNotLeader) {
		x.p.w.violate(unanswered, "port %d: %s: %v", x.port, describe(m), err)
	}
	x.p.touch()
}

// Changed implements [controller.Sink].
func (x *session) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	if x.begun[plane] == nil || x.mail[plane].epoch != epochs[x.port] {
		x.begun[plane] = m
	}
	x.mail[plane], x.dirty[plane] = news{plane: plane, epoch: epochs[x.port], m: m, fault: fault}, true
	x.wake()
}

// Refused implements [controller.Sink].
func (x *session) Refused(plane int, holder uint64, why error) {
	for _, r := range x.refused {
		if r.plane == plane && r.holder == holder {
			return
		}
	}
	x.refused = append(x.refused, refused{refusal{plane, holder}, why})
	x.wake()
}

// Granted implements [controller.Sink].
func (x *session) Granted(id, mask uint64, err error) {
	if err == nil && !x.over {
		x.p.w.granted(x, id, mask)
	}
	x.asked[id] = &grant{id, mask, err}
	x.fresh = append(x.fresh, id)
	x.wake()
}

// Wanted implements [controller.Sink].
func (x *session) Wanted(holder, mask uint64) {
	x.wanted = append(x.wanted, wanted{holder, mask})
	x.wake()
}

// Closed implements [controller.Sink].
func (x *session) Closed(error) {
	x.over = true
	x.drop()
}

// coalesce are the times that a session waits for more news before it sends.
var coalesce = [4]time.Duration{0, 0, 20e3, 3e6}

// wake plans a flush.
func (x *session) wake() {
	if x.c == nil || x.armed || x.over {
		return
	}
	x.armed = true
	x.p.after(coalesce[x.p.w.choose.Choose(len(coalesce))], func() {
		if x.armed = false; !x.over {
			x.flush()
		}
	})
}

// flush sends the news that the rank has not got yet: changes before grants.
func (x *session) flush() {
	if x.c == nil {
		return
	}
	for j, d := range x.dirty {
		if d {
			x.dirty[j] = false
			x.c.tell(x.mail[j])
		}
	}
	for ; x.told < len(x.refused); x.told++ {
		x.c.tell(x.refused[x.told])
	}
	for ; x.toldWanted < len(x.wanted); x.toldWanted++ {
		x.c.tell(x.wanted[x.toldWanted])
	}
	for _, id := range x.fresh {
		x.c.tell(*x.asked[id])
	}
	x.fresh = x.fresh[:0]
}

// drop breaks the connection.
func (x *session) drop() {
	if c := x.c; c != nil {
		x.c = nil
		c.cut("the controller has closed it")
	}
}

// lose handles a connection that ended without a goodbye: the session waits for its rank.
func (x *session) lose() {
	x.c, x.told, x.toldWanted = nil, 0, 0 // refusals are sent again
	for j := range x.dirty {
		x.dirty[j] = true
	}
	x.p.after(linger, func() {
		if x.c == nil {
			x.end(false)
		}
	})
}

// end detaches the rank.
func (x *session) end(clean bool) {
	if x.over {
		return
	}
	x.over = true
	if x.p.sessions[x.port] == x {
		x.p.sessions[x.port] = nil
	}
	if x.c != nil {
		x.drop()
	}
	x.at.Detach(clean)
	x.p.touch()
}
