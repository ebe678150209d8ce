package protocols

import (
	"fmt"
	"slices"
	"time"

	"lightpath/plans/circuit"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/ticket"
)

// ground is the world around ranks: the small one of the explorer, or the large one of [Run].
type ground interface {
	// agreed is called for each post of a rank.
	agreed(h *host, p *agree)
	// send puts data of a group on a circuit. It returns a function that tells whether the data has arrived.
	send(plane, from, to int, g *group) (arrived func() bool)
	// later does f in this step, after the step's own work.
	later(f func())
	// timer sets the idle timer of a group, or stops it if d is 0.
	timer(g *group, d time.Duration)
	// waited is called for each grant, with the time since the request.
	waited(g *group, d time.Duration)
	// failed is called for the first failure of a group, and ended for each operation that a rank has ended.
	failed(g *group, why error)
	ended(m *member)
	// ticket is called for each ticket that a rank begins to use.
	ticket(m *member, g *circuits.Ticket)
	now(h *host) time.Time
	group(holder uint64) *group // nil: it has ended
	violate(invariant, format string, args ...any)
}

// queue holds messages on their way to one actor, in order.
type queue[T any] struct {
	waiting []T
	sent    func() // called after each send; nil: the world looks at waiting
}

func (q *queue[T]) send(m T) {
	q.waiting = append(q.waiting, m)
	if q.sent != nil {
		q.sent()
	}
}

// next removes the oldest message.
func (q *queue[T]) next() T {
	m := q.waiting[0]
	q.waiting = q.waiting[1:]
	return m
}

// view is a communicator's view of planes from a host.
type view struct {
	h      *host
	holder uint64
}

// State implements [circuits.View] and [arbiter.View].
func (v view) State(plane int) (uint32, circuit.Permutation, error) {
	n := &v.h.planes[plane]
	switch {
	case v.h.gone != nil:
		return n.epoch, n.m, v.h.gone
	case n.fault != nil:
		return n.epoch, n.m, n.fault
	}
	return n.epoch, n.m, v.h.refused[refusal{plane, v.holder}]
}

// Waiting implements [arbiter.View].
func (view) Waiting(int) string { return "" }

// member is a rank of a communicator. Each operation moves its planes to a ring, sends data over it, and moves
// them to darkness. It does not wait for the last move.
type member struct {
	g       *group
	rank    int
	host    *host
	machine *circuits.Machine

	toLeader, toRank queue[control.Message] // on their way

	stage   stage
	offered offered // the last ticket ahead
	asked   circuits.Operation
	ended   int       // operations
	since   time.Time // of the stage
	moves   circuits.ListedMaps
	lanes   []lane
	used    []int // operations on circuits, by plane
	got     []int // data received, by plane
}

// offered is for which call a ticket went out ahead.
type offered struct {
	seq uint64
	sig uint32
}

type stage uint8

const (
	idle stage = iota
	asking
	settling
	moving
)

func (s stage) String() string { return [...]string{"idle", "asking", "settling", "moving"}[s] }

// lane is an operation's progress on a plane.
type lane struct {
	at      int // its map
	data    int // the map that carries data
	sent    bool
	arrived func() bool // whether the data that this rank has sent is there
	ended   bool
}

func (m *member) enter(s stage) {
	m.stage = s
	m.since = m.host.ground.now(m.host)
}

// end ends an operation.
func (m *member) end() {
	m.ended++
	m.enter(idle)
	m.g.ground.ended(m)
}

// ask requests the next operation.
func (m *member) ask() {
	o := m.g.operation(m.ended)
	m.asked = circuits.Operation{Kind: control.MsgWant, Seq: o.seq, Shape: &o.shape}
	m.enter(asking)
	grant, declined, seq, err := m.machine.Begin(m.since, &m.asked)
	if declined {
		m.answer(circuits.AnswerRecall(seq, false))
	}
	switch {
	case err != nil:
		m.g.fail(err)
	case grant != nil:
		m.begin(grant)
	default:
		m.toLeader.send(sealed(m.machine.Ask(m.since, &m.asked), m.rank))
	}
}

// answer tells the leader what has become of a ticket that went out ahead.
func (m *member) answer(q control.Message) { m.toLeader.send(sealed(q, m.rank)) }

// begin begins the operation with its ticket.
func (m *member) begin(g *circuits.Ticket) {
	m.g.ground.ticket(m, g)
	if g.OnPackets() {
		m.machine.Ended()
		m.end()
		return
	}
	m.enter(settling)
	m.look()
}

// offer handles a ticket that has come ahead. It returns the grant if the rank waits for it.
func (m *member) offer(q *control.Message, sig uint32) (g *circuits.Ticket, err error) {
	m.offered = offered{q.Seq, sig}
	wake, declined := m.machine.Offer(q.Seq, sig, q.Body)
	if wake {
		g, declined, err = m.machine.Claim(m.host.ground.now(m.host))
	}
	if declined {
		m.answer(circuits.AnswerRecall(q.Seq, false))
	}
	return g, err
}

// tick lets time-outs pass.
func (m *member) tick() {
	now, timeout := m.host.ground.now(m.host), m.g.cfg.timeout
	switch {
	case m.host.gone != nil:
		m.g.fail(m.host.gone)
	case m.stage == asking:
		if err := m.machine.Overdue(now, &m.asked); err != nil {
			m.g.fail(err)
		}
	case m.stage == moving && now.Sub(m.since) > timeout:
		m.g.fail(fmt.Errorf("rank %d: operation %d: %w", m.rank, m.asked.Seq, errdefs.ErrTimeout))
	default:
		m.look()
	}
}

// take handles a message of the leader.
func (m *member) take(q *control.Message) {
	switch q.Kind {
	case control.MsgTicket:
		var g *circuits.Ticket
		var err error
		if sig, ahead := ticket.IsAhead(q.Body); ahead {
			g, err = m.offer(q, sig)
		} else {
			g, err = m.machine.Take(m.host.ground.now(m.host), q.Body)
		}
		if err != nil {
			m.g.fail(err)
		} else if g != nil {
			m.begin(g)
		}
	case control.MsgRecall:
		m.answer(circuits.AnswerRecall(q.Seq, m.machine.Recall(q.Seq)))
	case control.MsgPrepare:
		if r, ok := m.machine.ReadMove(q.Body); ok {
			m.host.post(agree{plane: r.Plane, epoch: r.Epoch, holder: m.g.cfg.id, target: r.Target})
		}
	}
}

// look continues the operation as far as the planes allow.
func (m *member) look() {
	if m.g.failed != nil {
		return
	}
	if m.stage == settling {
		settled, err := m.machine.Settle(m.host.ground.now(m.host))
		if err != nil {
			m.g.fail(err)
		}
		if !settled {
			return
		}
		m.bind()
	}
	if m.stage != moving {
		return
	}
	ended := true
	for j := range m.machine.Ticket().Use.Each() {
		for !m.lanes[j].ended && m.g.failed == nil && m.advance(j) {
		}
		ended = ended && m.lanes[j].ended
	}
	if ended && m.g.failed == nil {
		m.toLeader.send(sealed(m.machine.Done(m.moves), m.rank))
		m.end()
	}
}

// bind plans the moves of an operation.
func (m *member) bind() {
	n := len(m.g.members)
	ring, dark := circuit.Shift(n, 1), circuit.AllDark(n)
	m.enter(moving)
	m.moves = make(circuits.ListedMaps, len(m.lanes))
	keep := m.g.keeps(m.ended)
	for j := range m.lanes {
		now := m.machine.Standing()[j].Maps
		list := []circuit.Permutation{now}
		if !now.Equal(dark) && !now.Equal(ring) {
			list = append(list, dark)
		}
		if !now.Equal(ring) {
			list = append(list, ring)
		}
		m.lanes[j] = lane{data: len(list) - 1}
		if !keep {
			list = append(list, dark)
		}
		m.moves[j] = list
	}
	for j := range m.machine.Ticket().Use.Each() {
		m.used[j]++
	}
	if err := m.machine.CheckMoves(m.moves); err != nil {
		m.g.fail(err)
	}
}

func (m *member) post(plane, move int) {
	m.host.post(agree{plane: plane, epoch: m.machine.Base()[plane] + uint32(move) - 1, holder: m.g.cfg.id,
		target: m.machine.Ports(m.moves[plane][move])})
}

// advance continues on a plane, and reports whether there may be more to do.
func (m *member) advance(j int) bool {
	l, list := &m.lanes[j], m.moves[j]
	if l.at == len(list)-1 && l.at > l.data {
		l.ended = true
		return false
	}
	epoch, _, err := view{m.host, m.g.cfg.id}.State(j)
	if err == nil {
		err = m.machine.CheckEpoch(j, epoch)
	}
	if err != nil {
		m.g.fail(err)
		return false
	}
	if int32(epoch-m.machine.Base()[j]) < int32(l.at) {
		return false
	}
	if l.at == l.data {
		if !l.sent {
			l.sent = true
			l.arrived = m.g.ground.send(j, m.host.port, m.g.cfg.ports[list[l.at][m.rank]], m.g)
		}
		if m.got[j] < m.used[j] || !l.arrived() {
			return false
		}
	}
	if l.at == len(list)-1 {
		l.ended = true
		return false
	}
	if list[l.at][m.rank] != list[l.at+1][m.rank] {
		m.post(j, l.at+1)
	}
	l.at++
	return true
}

// sealed returns a copy of a message whose body its sender uses again.
func sealed(m control.Message, from int) control.Message {
	m.From, m.Body = uint16(from), slices.Clone(m.Body)
	return m
}
