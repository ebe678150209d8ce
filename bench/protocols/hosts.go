package protocols

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/arbiter"
	"lightpath/shim/circuits"
	"lightpath/shim/planeset"
)

// host is the process of a port: its connection to the controller, which its communicators share. It does what
// rpc.Client does: after a takeover it claims its leases and repeats posts and requests.
type host struct {
	ground  ground
	port    int
	ready   bool   // welcomed by the controller in charge
	token   uint64 // of the last controller that welcomed it
	planes  []news
	refused map[refusal]error
	held    map[uint64]uint64  // planes by holder
	wants   map[uint64]acquire // requests without an answer, by holder
	asked   uint64             // number of the last request
	posts   []agree            // not known to have happened
	groups  []*group           // with a rank here
	order   *circuits.Port     // that they share
	gone    error              // it has lost its place at the controller, for good
	up      queue[any]         // messages to the controller
	down    queue[any]         // messages from it
}

// Messages between hosts and controllers.
type (
	hello struct {
		held    []ocsctl.Lease
		known   []uint32 // epochs of the port, by plane
		session uint64   // at the controller with the last token; 0: none
	}
	welcome struct {
		held    []ocsctl.Lease
		states  []news // by plane
		token   uint64
		session uint64
		resumed bool // at the same controller
	}
	news struct {
		plane  int
		epoch  uint32 // of the port; for an observer, the newest one
		m      circuit.Permutation
		fault  error
		epochs []uint32 // by port, only for an observer
	}
	refusal struct {
		plane  int
		holder uint64
	}
	refused struct {
		refusal
		why error
	}
	agree struct {
		plane  int
		epoch  uint32
		holder uint64
		target circuit.Permutation
		since  time.Time
	}
	acquire struct {
		id uint64
		ocsctl.Lease
	}
	release struct{ holder, mask uint64 }
	wanted  struct{ holder, mask uint64 }
	grant   struct {
		id, mask uint64 // of the request
		err      error
	}
)

func newHost(w ground, port, ports, planes int) *host {
	h := &host{ground: w, port: port, planes: make([]news, planes), held: map[uint64]uint64{},
		wants: map[uint64]acquire{}, refused: map[refusal]error{}, order: circuits.NewPort(0)}
	for j := range h.planes {
		h.planes[j].m = circuit.AllDark(ports)
	}
	return h
}

// hello returns the first message to a controller.
func (h *host) hello() hello {
	m := hello{}
	for _, holder := range slices.Sorted(maps.Keys(h.held)) {
		l := ocsctl.Lease{Holder: holder, Mask: h.held[holder]}
		if g := h.ground.group(holder); g != nil {
			l.Ports = g.cfg.ports
		}
		m.held = append(m.held, l)
	}
	for j := range h.planes {
		m.known = append(m.known, h.planes[j].epoch)
	}
	return m
}

// take handles a message of the controller.
func (h *host) take(m any) {
	switch m := m.(type) {
	case news:
		h.planes[m.plane] = m
		h.forget()
	case welcome:
		h.welcome(m)
	case refused:
		if h.refused[m.refusal] == nil {
			h.refused[m.refusal] = m.why
		}
	case grant:
		h.granted(m)
	case wanted:
		if g := h.ground.group(m.holder); g != nil {
			g.step(arbiter.Event{Kind: arbiter.Wanted, Planes: planeset.Set(m.mask)})
		}
	}
	h.look()
}

// look continues the ranks of this host as far as the planes allow.
func (h *host) look() {
	for _, g := range h.groups {
		if g.members[0].host == h {
			g.look()
		}
		for _, m := range g.members {
			if m.host == h {
				m.look()
			}
		}
	}
}

func (h *host) granted(m grant) {
	for holder, q := range h.wants {
		if q.id != m.id {
			continue
		}
		delete(h.wants, holder)
		if m.err == nil {
			h.held[holder] |= m.mask
		}
		if g := h.ground.group(holder); g != nil {
			h.ground.waited(g, h.ground.now(h).Sub(g.wanted))
			g.step(arbiter.Event{Kind: arbiter.Granted, Planes: planeset.Set(m.mask), Err: m.err})
		}
		return
	}
}

// welcome gives back planes that were released meanwhile, and repeats posts and requests at another controller. A post
// that happened must have led to the port's circuit.
func (h *host) welcome(m welcome) {
	same := m.token == h.token
	h.ready, h.token = true, m.token
	has := map[uint64]uint64{}
	for _, l := range m.held {
		has[l.Holder] |= l.Mask
	}
	for holder, mask := range h.held {
		if mask&^has[holder] != 0 || same && !m.resumed {
			h.lose(fmt.Errorf("planes %#x of holder %d are lost: %w", mask, holder, ocsctl.ErrControlLost))
			return
		}
	}
	if same && !m.resumed && len(h.posts) > 0 {
		h.lose(fmt.Errorf("the controller has given port %d up: %w", h.port, ocsctl.ErrControlLost))
		return
	}
	for _, holder := range slices.Sorted(maps.Keys(has)) {
		if mask := has[holder] &^ h.wants[holder].Mask &^ h.held[holder]; mask != 0 {
			h.up.send(release{holder, mask})
		}
	}
	if !same { // the same controller has judged posts itself
		h.verify(&m)
	}
	for _, n := range m.states {
		h.planes[n.plane] = n
	}
	h.forget()
	for _, p := range h.posts {
		h.up.send(p)
	}
	for _, holder := range slices.Sorted(maps.Keys(h.wants)) {
		h.up.send(h.wants[holder])
	}
}

// verify refuses posts for past epochs of a controller that has taken over, unless they have happened: the port's
// circuit is that of the last one.
func (h *host) verify(m *welcome) {
	for _, v := range m.states {
		var past []agree
		for _, p := range h.posts {
			if p.plane == v.plane && p.epoch < v.epoch {
				past = append(past, p)
			}
		}
		if len(past) == 0 || v.m[h.port] == past[len(past)-1].target[h.port] {
			continue
		}
		for _, p := range past {
			h.refused[refusal{p.plane, p.holder}] = fmt.Errorf("another controller has plane %d at epoch %d: %w",
				p.plane, v.epoch, ocsctl.ErrUnknownMap)
		}
	}
}

// lose ends the host's place at the controller.
func (h *host) lose(why error) {
	if h.gone == nil {
		h.gone = why
	}
}

// forget drops the posts that have happened.
func (h *host) forget() {
	h.posts = slices.DeleteFunc(h.posts, func(p agree) bool {
		at := &h.planes[p.plane]
		return p.epoch < at.epoch || at.fault != nil
	})
}

// tell sends a message to the controller. Without one, a later welcome repeats it.
func (h *host) tell(m any) {
	if h.ready {
		h.up.send(m)
	}
}

// post agrees to a move.
func (h *host) post(p agree) {
	p.target, p.since = p.target.Clone(), h.ground.now(h)
	h.ground.agreed(h, &p)
	h.posts = append(h.posts, p)
	h.tell(p)
}
