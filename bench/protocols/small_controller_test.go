package protocols

import (
	"fmt"
	"reflect"
	"slices"

	"lightpath/bench/protocols/explore"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// takeover starts a controller with a higher token. The controller reads the journal, and waits for the ranks.
func (w *small) takeover() error {
	w.token++
	cfg := controller.Config{
		Name: fmt.Sprint("controller ", w.token), Ports: w.cfg.ports, Planes: make([]controller.PlaneConfig, w.cfg.planes),
		Device: smallDevice{w}, Journal: smallJournal{w}, Token: w.token,
	}
	if w.token > 1 {
		for j := range w.records {
			cfg.Recovered = append(cfg.Recovered, w.records[j].Next())
		}
	}
	core, err := controller.NewManual(cfg, func() int64 { return w.clock })
	if err != nil {
		return err
	}
	w.core = core
	if w.token == 1 {
		for j := range w.records {
			w.records[j].Baseline(controller.Recovered{Map: w.cfg.start})
		}
	}
	for _, h := range w.hosts {
		h.up.send(h.hello())
	}
	return nil
}

// crash ends the controller in charge. Messages from and to it are lost. An order to a device may still arrive before
// the next takeover.
func (w *small) crash() {
	w.crashed = true
	w.writes, w.settled = nil, nil
	for _, h := range w.hosts {
		h.up.waiting, h.down.waiting, h.ready = nil, nil, false
	}
	orders := make([]*controller.Move, len(w.planes))
	for j := range w.planes {
		orders[j] = w.planes[j].order
	}
	w.core.Close()
	w.core = nil
	for j := range w.planes {
		w.planes[j].order = orders[j]
	}
}

// smallJournal is the journal of the controller in charge.
type smallJournal struct{ w *small }

// Intend implements [controller.Journal].
func (j smallJournal) Intend(i controller.Intent, done func(error)) {
	j.w.writes = append(j.w.writes, smallWrite{intent: &i, done: done})
}

// Record implements [controller.Journal]. Events that change no plane need no order among the writes of planes.
func (j smallJournal) Record(e controller.Event, done func(error)) {
	if e.Plane >= 0 || done != nil {
		j.w.writes = append(j.w.writes, smallWrite{event: &e, done: done})
	}
}

// journal makes the oldest write durable.
func (w *small) journal() {
	x := w.writes[0]
	w.writes = w.writes[1:]
	switch {
	case x.intent != nil:
		w.records[x.intent.Plane].Intend(*x.intent)
	case x.event.Plane >= 0:
		w.records[x.event.Plane].Apply(x.event)
	}
	if x.done != nil {
		x.done(nil)
	}
}

// smallDevice is the controller's access to the planes.
type smallDevice struct{ w *small }

// Switch implements [controller.Device].
func (d smallDevice) Switch(plane int, m controller.Move) error {
	d.w.planes[plane].order = &m
	return nil
}

// Map implements [controller.Device].
func (d smallDevice) Map(plane int) (circuit.Permutation, error) {
	pl := &d.w.planes[plane]
	if pl.target != nil || pl.order != nil && pl.order.Token == d.w.token {
		return nil, controller.ErrMoving
	}
	pl.order = nil // of an earlier controller: the device has seen a higher token
	return pl.light, nil
}

// OnSettled implements [controller.Timed].
func (d smallDevice) OnSettled(f func(plane int)) { d.w.settled = f }

// begin makes a device move. No data may be on a circuit that changes, and the communicators whose circuits change must
// have agreed.
func (w *small) begin(plane int) {
	pl := &w.planes[plane]
	m := pl.order
	pl.order = nil
	if m.Token < pl.token || !pl.light.Equal(m.From) {
		w.violate("old order", "plane %d: an order of controller %d from %v, light %v", plane, m.Token, m.From, pl.light)
		return
	}
	if why := w.disagreed(plane, m); why != "" {
		w.violate("no agreement", "plane %d moves at epoch %d from %v to %v: %s", plane, m.Epoch, m.From, m.To, why)
	}
	pl.token, pl.target = m.Token, m.To
	pl.light = pl.light.Clone()
	for port, to := range pl.light {
		if to == m.To[port] {
			continue
		}
		pl.light[port] = circuit.Dark
		if f := &pl.frames[port]; f.on && !f.ended {
			w.violate("frame on a moving circuit", "plane %d moves at epoch %d while data of port %d is on its circuit",
				plane, m.Epoch, port)
		}
	}
}

// disagreed returns what a move lacks; "": nothing. A communicator that holds the plane has agreed if circuits between
// its ranks change. Each new circuit is inside a communicator that has agreed, and each one that ends has an end there.
func (w *small) disagreed(plane int, m *controller.Move) string {
	i := w.records[plane].Intent
	if i == nil || !i.To.Equal(m.To) {
		return "the journal has no such intent"
	}
	moved := make([]*group, w.cfg.ports) // by port: the communicator that has agreed
	for _, g := range w.groups {
		from, to := g.site.Places.Restrict(nil, m.From), g.site.Places.Restrict(nil, m.To)
		if !w.agrees(g, i, from, to) {
			if g.holds(plane) && !from.Equal(to) {
				return fmt.Sprintf("communicator %d has not agreed", g.cfg.id)
			}
			continue
		}
		for _, port := range g.cfg.ports {
			moved[port] = g
		}
		*w.cfg.beside = *w.cfg.beside || g.holds(plane) && slices.ContainsFunc(w.groups, func(o *group) bool {
			return o.holds(plane) && o.beside(g)
		})
	}
	for port, to := range m.To {
		switch from := m.From[port]; {
		case to != from && to != circuit.Dark && (moved[port] == nil || moved[port] != moved[to]),
			to != from && from != circuit.Dark && moved[port] == nil && moved[from] == nil:
			return fmt.Sprintf("no communicator has agreed for port %d", port)
		}
	}
	return ""
}

// agrees reports whether a communicator has agreed to the part of an intent between its ranks: it waits for planes with
// these circuits, or all ranks have posted whose circuits change.
func (w *small) agrees(g *group, i *controller.Intent, from, to circuit.Permutation) bool {
	if asks := g.members[0].host.wants[g.cfg.id]; asks.Circuits != nil && to.Equal(asks.Circuits[i.Plane]) {
		return true
	}
	for r, port := range g.cfg.ports {
		epoch := i.Epoch
		if i.Epochs != nil {
			epoch = i.Epochs[port] - 1
		}
		if from[r] != to[r] && !w.posted[smallPost{g.cfg.id, port, i.Plane, epoch, to.Digest()}] {
			return false
		}
	}
	return !from.Equal(to)
}

// serve makes the controller handle a message of a host.
func (w *small) serve(h *host, m any) {
	var err error
	at := &w.at[h.port]
	switch m := m.(type) {
	case hello:
		sink := &smallSink{w: w, h: h}
		*at, err = w.core.Attach(sink, controller.AttachOptions{Port: h.port, Held: m.held, Known: m.known})
		h.down.send(welcome{held: m.held, states: sink.early, token: w.token})
		sink.early, sink.ready = nil, true
	case agree:
		err = (*at).Post(m.plane, m.epoch, m.holder, m.target)
	case acquire:
		err = (*at).Acquire(m.id, m.Lease)
	case release:
		err = (*at).Release(m.mask, m.holder)
	}
	if err != nil {
		w.violate("refused", "port %d: %+v: %v", h.port, m, err)
	}
}

// smallSink sends the core's news to a host. The first ones are part of the welcome.
type smallSink struct {
	w     *small
	h     *host
	early []news
	ready bool
}

// Changed implements [controller.Sink].
func (s *smallSink) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	n := news{plane: plane, epoch: epochs[s.h.port], m: m, fault: fault}
	s.w.published(s.h, &n)
	if !s.ready {
		s.early = append(s.early, n)
		return
	}
	s.h.down.send(n)
}

// Refused implements [controller.Sink].
func (s *smallSink) Refused(plane int, holder uint64, why error) {
	s.h.down.send(refused{refusal{plane, holder}, why})
}

// Granted implements [controller.Sink].
func (s *smallSink) Granted(id, mask uint64, err error) { s.h.down.send(grant{id, mask, err}) }

// Wanted implements [controller.Sink].
func (s *smallSink) Wanted(holder, mask uint64) { s.h.down.send(wanted{holder, mask}) }

// Closed implements [controller.Sink].
func (*smallSink) Closed(error) {}

// published notes the map that a controller publishes for an epoch of a port. This epoch never has another circuit of
// the port, except that one out of its lease may end, and never other circuits between the ports of its lease.
func (w *small) published(h *host, n *news) {
	k := smallEpoch{n.plane, h.port, n.epoch}
	known := w.epochs[k]
	switch {
	case n.fault != nil:
		return
	case known == nil:
		known = n.m.Clone() // without circuits that do not matter: they would be further states
		for p := range known {
			if !slices.ContainsFunc(h.groups, func(g *group) bool { return g.at(p) != nil }) {
				known[p] = circuit.Dark
			}
		}
		w.epochs[k] = known
		return
	}
	other := n.m[h.port] != known[h.port] && (n.m[h.port] != circuit.Dark || !h.leadsOut(known[h.port]))
	for _, g := range h.groups {
		p := g.site.Places
		other = other || g.holds(n.plane) && !p.Restrict(nil, n.m).Equal(p.Restrict(nil, known))
	}
	if other {
		w.violate("two maps of one epoch", "plane %d: port %d: epoch %d has map %v, and later %v", n.plane, h.port, n.epoch,
			known, n.m)
	}
}

// send puts data of a group on a circuit.
func (w *small) send(plane, from, to int, g *group) (arrived func() bool) {
	pl := &w.planes[plane]
	if f := &pl.frames[from]; f.on && !f.ended {
		w.violate("lost data", "plane %d port %d: data before the earlier data has arrived", plane, from)
	}
	pl.frames[from] = smallFrame{on: true, group: int(g.cfg.id) - 1, to: to}
	if pl.light[from] != to {
		w.violate("lost data", "plane %d: data of port %d for port %d: its circuit leads to %d",
			plane, from, to, pl.light[from])
	}
	return func() bool { return pl.frames[from].ended }
}

// arrive delivers a frame.
func (w *small) arrive(plane, from int) {
	f := &w.planes[plane].frames[from]
	f.ended = true
	for _, m := range w.groups[f.group].members {
		if m.host.port == f.to {
			m.got[plane]++ // it may not have its ticket yet
		}
	}
	for _, m := range w.groups[f.group].members {
		m.look()
	}
}

// Fingerprint implements [explore.Space]. It covers the whole state of the product's machines, without what does not
// change in a run and memory that is only reused.
func (w *small) Fingerprint() uint64 {
	var core reflect.Value
	if w.core != nil {
		core = reflect.ValueOf(w.core).Elem().FieldByName("machine")
	}
	return w.print.Of(core, reflect.ValueOf(w).Elem())
}

// newSmallPrint returns the fingerprinter of small worlds.
func newSmallPrint() *explore.Fingerprinter {
	return explore.NewFingerprinter("controller.Config", "controller.Core", "planning.Site", "time.Location",
		"protocols.smallConfig", "protocols.smallComm", "protocols.groupConfig", "small.steps", "small.print",
		"Machine.actions", "Machine.clock", "Machine.request", "Machine.ranks", "Machine.ports", "barrier.spare")
}

var _ explore.Space = (*small)(nil)
