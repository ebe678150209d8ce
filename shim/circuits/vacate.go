package circuits

import (
	"encoding/json"
	"sync"
	"time"

	"lightpath/plans/circuit"
	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// A port outside a communicator may have a circuit to a member. It would have to agree to every switch of that
// circuit, but it does not know of the switches. If the communicator has a parent, its leader asks for the release of
// these circuits first. The leader holds the planes, so no other communicator sends on them. It asks the leader of the
// parent, to whose ranks the ports belong. The parent's leader makes these ranks post a map in which the circuits are
// dark.

// VacateRequest is sent to the parent's leader, and from there to each rank concerned.
type VacateRequest struct {
	Plane  int
	Epoch  uint32
	Holder uint64              // of the plane
	Target circuit.Permutation // of ports
	Ranks  []int               // ranks of the parent that must agree
}

// requests holds this rank's open requests. The zero value is ready.
type requests struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]chan bool
}

// HandleVacating makes the leader forward requests to release circuits, and makes ranks follow them.
func HandleVacating(c *comm.Core) {
	c.HandleAtLeader(control.MsgVacateAsk, func(m *control.Message) { go passOn(c, m) })
	c.Handle(control.MsgVacate, func(m *control.Message) {
		if p := Of(c); p != nil {
			p.vacate(m)
		}
	})
	c.Handle(control.MsgVacated, func(m *control.Message) {
		if p := Of(c); p != nil {
			p.requests.answer(m.Seq, m.Arg == 1)
		}
	})
}

// Vacate asks the nearest ancestor that has all these ports to make their circuits dark on a plane. It waits for the
// answer, and reports whether the ancestor's ranks have been told.
func (p *Planes) Vacate(plane int, epoch uint32, target circuit.Permutation, ports []int) bool {
	ancestor, body := p.VacateAsk(plane, epoch, target, ports)
	for a := p.parent; a != nil; a = a.parent {
		if a.Machine == ancestor {
			return a.ask(body)
		}
	}
	return false
}

// VacateAsk returns the nearest ancestor that has all these ports, and the request to its leader to make the ports'
// circuits dark on a plane. It returns nil if there is none.
func (m *Machine) VacateAsk(plane int, epoch uint32, target circuit.Permutation, ports []int) (*Machine, []byte) {
	for a := m.cfg.Parent; a != nil; a = a.cfg.Parent {
		if !a.cfg.Serving() {
			continue
		}
		r := VacateRequest{Plane: plane, Epoch: epoch, Holder: m.cfg.Holder, Target: target}
		for _, port := range ports {
			if rank := a.member[port]; rank >= 0 {
				r.Ranks = append(r.Ranks, rank)
			}
		}
		if len(r.Ranks) == len(ports) {
			body, _ := json.Marshal(&r) // these types have no errors
			return a, body
		}
	}
	return nil, nil
}

// ask sends a request to the leader of p's communicator and waits for its answer.
func (p *Planes) ask(body []byte) bool {
	q := &p.requests
	answered := make(chan bool, 1)
	q.mu.Lock()
	if q.open == nil {
		q.open = map[uint64]chan bool{}
	}
	q.last++
	seq := q.last
	q.open[seq] = answered
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		delete(q.open, seq)
		q.mu.Unlock()
	}()
	c := p.c
	if c.Star.ToLeader(&control.Message{Kind: control.MsgVacateAsk, Seq: seq, Body: body}) != nil {
		return false
	}
	timer := time.NewTimer(c.Cfg.Timeout)
	defer timer.Stop()
	select {
	case told := <-answered:
		return told
	case <-c.FailedChan():
	case <-c.Ended():
	case <-c.Star.EveryoneLeft():
	case <-timer.C:
	}
	return false
}

// answer delivers an answer to the goroutine that waits for it.
func (q *requests) answer(seq uint64, told bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if answered := q.open[seq]; answered != nil {
		delete(q.open, seq)
		answered <- told
	}
}

// passOn runs at the parent's leader. It tells the ranks, and answers whether it did.
func passOn(c *comm.Core, m *control.Message) {
	ranks, ok := VacateRanks(m.Body, c.Ranks, c.Star.HasLeft)
	answer := &control.Message{Kind: control.MsgVacated, Seq: m.Seq}
	if ok {
		for _, rank := range ranks {
			c.Star.To(rank, &control.Message{Kind: control.MsgVacate, Body: m.Body})
		}
		answer.Arg = 1
	}
	c.Star.To(int(m.From), answer)
}

// VacateRanks returns the ranks that the leader of a communicator of so many ranks passes a request on to, if all are
// connected. A post that other ranks do not follow would block the next holder of the plane.
func VacateRanks(body []byte, ranks int, left func(rank int) bool) (tell []int, ok bool) {
	var r VacateRequest
	ok = control.DecodeStrict(body, &r) == nil
	for _, rank := range r.Ranks {
		ok = ok && rank >= 0 && rank < ranks && !left(rank)
	}
	return r.Ranks, ok
}

// vacate runs at a rank, and follows a request.
func (p *Planes) vacate(m *control.Message) {
	if r, ok := p.VacatePost(m.Body); ok {
		// If the post fails, the plane has failed, and its holder sees that.
		_ = p.Controller.Post(r.Plane, r.Epoch, r.Holder, r.Target)
	}
}

// VacatePost returns the post by which this rank's port agrees to lose its circuit. No data is in flight on the
// circuit, since another communicator holds the plane. false: the request is not for this port. The requesting leader
// waits for the plane, and reports it.
func (m *Machine) VacatePost(body []byte) (r VacateRequest, ok bool) {
	ok = control.DecodeStrict(body, &r) == nil && r.Plane >= 0 && r.Plane < len(m.now) &&
		r.Target.Validate(len(m.member)) == nil && r.Target[m.cfg.Ports[m.cfg.Rank]] == circuit.Dark
	return r, ok
}

// Outside returns a map of ports without the circuits from outside ports to members. It also returns those outside
// ports.
func Outside(m circuit.Permutation, member []int) (target circuit.Permutation, ports []int) {
	for p, to := range m {
		if to == circuit.Dark || member[p] >= 0 || member[to] < 0 {
			continue
		}
		if target == nil {
			target = m.Clone()
		}
		target[p] = circuit.Dark
		ports = append(ports, p)
	}
	return target, ports
}
