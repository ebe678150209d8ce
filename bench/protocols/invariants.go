package protocols

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lightpath/bench/protocols/trace"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
	"lightpath/shim/arbiter"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/ticket"
)

// The invariants. docs/assurance.md says which promises they check. A violation's text begins with the name.
const (
	movingCircuit = "frame on a moving circuit" // no circuit moves while data is on it
	darkSuccess   = "success in the dark"       // a plane in service has the light of its map
	oldWriter     = "old writer"                // no controller changes a switch after its successor has
	twoMaps       = "two maps of one epoch"     // one epoch of a port has one map of the ports of its communicator
	epochBack     = "epoch goes back"           // the epochs of a port in service only rise
	twoHolders    = "two holders"               // communicators hold a plane together only if they have no port in common
	notGranted    = "planes not granted"        // a rank uses a ticket for its own operation, on planes that it holds
	twoPlans      = "two plans"                 // all ranks of an operation get one ticket
	returnsItself = "returns by itself"         // a disabled or failed plane waits for an operator
	adopts        = "adopts a map"              // no controller accepts circuits that it was not asked for
	acknowledged  = "acknowledged is lost"      // the next controller knows what an operator was told
	unanswered    = "post without an answer"    // each post leads to a move, a refusal or a failure
	waitsForever  = "waits for ever"            // every operation ends; after all faults all are served
	unfair        = "unfair"                    // no communicator waits longer than others may hold planes
	failsOnItsOwn = "fails without a fault"     // an operation fails only because of a fault
	panics        = "panic"                     // no code panics or fails without a reason
)

// violate ends the run with a violation, unless it has one.
func (w *world) violate(invariant, format string, args ...any) {
	if w.result.Violation != nil {
		return
	}
	w.result.Violation = fmt.Errorf("%s: "+format, append([]any{invariant}, args...)...)
	w.line(trace.Violation, "", "", "%v", w.result.Violation)
}

// InvariantOf returns the name of the invariant that a violation is of, "" for none.
func InvariantOf(violation error) string {
	if violation == nil {
		return ""
	}
	name, _, _ := strings.Cut(violation.Error(), ":")
	return name
}

// leaves checks a frame when it leaves and when it arrives: light goes to its receiver, unless a fault has just removed
// the light. An operator may set a plane while a rank is out of touch. Then the next frame of that rank is lost.
func (t *truth) leaves(from int, f *frame) {
	if to := t.lit()[from]; to != f.to {
		if f.lost = true; !t.disturbed && !t.setUnknownTo(from) {
			t.w.violate(darkSuccess, "plane %d: data of port %d for port %d: the light goes to %d", t.plane, from, f.to, to)
		}
	}
}

// setUnknownTo reports whether an operator has set the plane while a port's rank stood still or had no controller, and
// the rank has not heard of it.
func (t *truth) setUnknownTo(port int) bool {
	p := t.w.ports[port]
	stood := p.node.paused
	away := !p.host.ready || stood.from < t.setAt && t.setAt < stood.to
	return t.setAt != 0 && away && p.host.planes[t.plane].epoch <= t.setEpoch
}

// taken checks a change when a switch begins it. No newer controller has changed the switch, and no data is on a
// circuit that the change removes.
func (t *truth) taken(token uint64, remove, _ []circuit.Pair) {
	t.set, t.changed = nil, t.w.clock
	if by := t.writer.token; by < t.newest && !t.w.store.lost {
		t.w.violate(oldWriter, "plane %d: controller with token %d changes circuits after the one with token %d", t.plane, by,
			t.newest)
	}
	t.newest = max(t.newest, t.writer.token)
	for _, c := range remove {
		if f := t.frames[c.From]; f != nil && f.g.failed == nil && !f.lost {
			t.w.violate(movingCircuit, "plane %d: token %d removes the circuit of port %d, which has data of holder %d",
				t.plane, token, c.From, f.g.cfg.id)
		}
	}
}

// published checks a controller's news of a plane.
func (t *truth) published(p *process, before, n *news) {
	w := t.w
	if w.cfg.Lines {
		w.line(trace.Internal, p.node.name, "", "%s", describe(*n))
	}
	out, fault := n.ofPlane()
	_, failed := before.ofPlane()
	if fault != nil {
		if failed == nil {
			t.ordered = t.asked > 0
		}
		return
	}
	if w.store.leader != p.rule {
		return // ranks leave it
	}
	excused := t.disturbed
	if failed == nil && before.m != nil && !slices.Equal(n.epochs, before.epochs) { // a move has ended and was verified
		excused = t.changed-t.disturbedAt < int64(time.Second)
		t.countBeside(before, n)
		if !slices.ContainsFunc(t.intents, func(i intent) bool { return slices.Equal(i.epochs, n.epochs) }) {
			w.violate(adopts, "plane %d: moves to epochs %d, which are those of no intent", t.plane, n.epochs)
		}
	}
	if lit := t.lit(); !excused && !litFor(n.m, lit, func(port int) bool { return out[port] != "" }) {
		w.violate(darkSuccess, "plane %d: in service at epochs %d with map %v, the light goes %v, ports out: %v", t.plane,
			n.epochs, n.m, lit, out)
	}
	if t.good != nil && isBehind(n.epochs, t.good.epochs) {
		t.good = nil // the journal lacks a move: ranks that know its epoch take the plane out of service
		return
	}
	if t.good != nil && !t.isWanted(n.m) && !w.store.lost {
		w.violate(adopts, "plane %d: in service at epochs %d with map %v, after %d with %v", t.plane, n.epochs, n.m,
			t.good.epochs, t.good.m)
	}
	t.good = n
	missed := controller.CauseOf(failed) == controller.CauseNotAsWanted && out != nil // it returns without these ports
	if failed != nil && !t.ordered && ofDevice(failed) && !missed {
		w.violate(returnsItself, "plane %d: in service again at epoch %d, without an operator, after: %v", t.plane, n.epoch,
			failed)
	}
}

// isBehind reports whether a port has an earlier epoch than before.
func isBehind(epochs, before []uint32) bool {
	for p, epoch := range before {
		if int32(epochs[p]-epoch) < 0 {
			return true
		}
	}
	return false
}

// countBeside counts a move for a communicator that holds the plane together with another one.
func (t *truth) countBeside(before, n *news) {
	moved, holders := false, 0
	for _, g := range t.w.groups {
		if !g.holds(t.plane) {
			continue
		}
		holders++
		from, to := g.site.Places.Restrict(nil, before.m), g.site.Places.Restrict(nil, n.m)
		moved = moved || !from.Equal(to)
	}
	if moved && holders > 1 {
		t.w.result.Beside++
	}
}

// ofPlane returns the fault of the plane as an observer gets it, or the ports for which it is out of service.
func (n *news) ofPlane() (out map[int]string, fault error) {
	if b, some := errors.AsType[*controller.BadPorts](n.fault); some {
		return b.Why, nil
	}
	return nil, n.fault
}

// litFor reports whether light goes as a map says, except on circuits from or to ports that are out of service.
func litFor(m, lit circuit.Permutation, out func(port int) bool) bool {
	for p, to := range m {
		if excused := out(p) || to != circuit.Dark && out(to); to != lit[p] && !excused {
			return false
		}
	}
	return true
}

// told checks the news that a rank gets of a plane in service. If a rank knows a newer epoch than the controller, it
// says so, and the plane goes out of service. So a rank need not know the news of the other ranks.
func (w *world) told(h *host, n *news) {
	was := &h.planes[n.plane]
	if n.fault != nil || w.store.lost {
		return
	}
	switch {
	case int32(n.epoch-was.epoch) < 0:
		w.violate(epochBack, "port %d: plane %d in service at epoch %d after epoch %d", h.port, n.plane, n.epoch, was.epoch)
	case n.epoch == was.epoch && n.epoch > 0 && was.fault == nil && !w.planes[n.plane].isOneMap(h, was.m, n):
		w.violate(twoMaps, "port %d: plane %d: epoch %d has map %v, and later %v", h.port, n.plane, n.epoch, was.m, n.m)
	}
}

// isOneMap reports whether news of an epoch that a rank knows has the same circuit of its port, and the same circuits
// between the ranks of an operation under way. A circuit out of a communicator may have gone dark.
func (t *truth) isOneMap(h *host, was circuit.Permutation, n *news) bool {
	port := func(m circuit.Permutation) circuit.Permutation { return m[h.port : h.port+1] }
	wentDark := n.m[h.port] == circuit.Dark && h.leadsOut(was[h.port])
	if !wentDark && !t.onTheWay(h.port, was, n, port) {
		return false
	}
	for _, g := range h.groups {
		ranks := func(m circuit.Permutation) circuit.Permutation { return g.site.Places.Restrict(nil, m) }
		m := g.at(h.port)
		if m.stage == moving && m.machine.Ticket().Use.Has(t.plane) && !t.onTheWay(h.port, was, n, ranks) {
			return false
		}
	}
	return true
}

// leadsOut reports whether a circuit of the host's port to another one is not inside all its communicators.
func (h *host) leadsOut(to int) bool {
	return len(h.groups) == 0 || slices.ContainsFunc(h.groups, func(g *group) bool { return g.at(to) == nil })
}

// onTheWay reports whether a part of a map is that of the port's epoch, or already has some circuits of the port's next
// move. A controller that takes over during a move continues the move.
func (t *truth) onTheWay(port int, was circuit.Permutation, n *news,
	part func(m circuit.Permutation) circuit.Permutation,
) bool {
	from, now := part(was), part(n.m)
	return from.Equal(now) || slices.ContainsFunc(t.intents, func(i intent) bool {
		to := part(i.to)
		for k := range now {
			if now[k] != from[k] && now[k] != to[k] && now[k] != circuit.Dark {
				return false
			}
		}
		return int32(i.epochs[port]-n.epoch) > 0
	})
}

// isWanted reports whether a map consists of circuits of the last map in service and of moves that had not ended then.
func (t *truth) isWanted(m circuit.Permutation) bool {
	for port, to := range m {
		if to != t.good.m[port] && !slices.ContainsFunc(t.intents, func(i intent) bool {
			asks := to == i.to[port] || to == circuit.Dark && i.to[port] != t.good.m[port]
			return asks && isBehind(t.good.epochs, i.epochs)
		}) {
			return false
		}
	}
	return true
}

// resting checks a plane in service that does not move: its light is that of its map.
func (t *truth) resting(pl *controller.PlaneSnapshot) {
	if pl.State != controller.Resident || pl.Reason != "" || t.disturbed {
		return
	}
	out := func(port int) bool {
		return slices.ContainsFunc(pl.Out, func(o controller.PortOut) bool { return o.Port == port })
	}
	if lit := t.lit(); !litFor(pl.Map, lit, out) {
		t.w.violate(darkSuccess, "plane %d: rests at epoch %d with map %v, the light goes %v, ports out: %v", t.plane,
			pl.Epoch, pl.Map, lit, pl.Out)
	}
}

// ofDevice reports whether a device has caused a failure. A plane that failed with its ranks returns after them.
func ofDevice(fault error) bool {
	switch controller.CauseOf(fault) {
	case controller.CauseDrift, controller.CauseNotAsWanted, controller.CauseUnresponsive:
		return true
	}
	return false
}

// tookOver checks that a new controller knows all that operators were told.
func (w *world) tookOver(p *process) {
	shot, err := p.core.Snapshot()
	if err != nil || w.store.lost || w.store.leader != p.rule { // ranks leave a controller that has been replaced
		return
	}
	for j, t := range w.planes {
		pl := &shot.Planes[j]
		desired := pl.Map
		if pl.Desired != nil {
			desired = pl.Desired
		}
		switch {
		case t.disabled && pl.State != controller.Down:
			w.violate(acknowledged, "plane %d: disabled by an operator, and %s after a takeover", j, pl.State)
		case t.set != nil && pl.Reason == "" && !desired.Equal(t.set):
			w.violate(acknowledged, "plane %d: set to %v by an operator, and %v after a takeover", j, t.set, desired)
		}
	}
}

// granted checks a grant: no plane is disabled, and the controller has told each rank one map of its epoch.
func (w *world) granted(x *session, id, mask uint64) {
	if w.store.leader != x.p.rule {
		return
	}
	for j, t := range w.planes {
		if mask>>j&1 == 0 {
			continue
		}
		if t.disabled && !w.store.lost {
			w.violate(returnsItself, "plane %d: disabled by an operator, and granted to request %d of port %d", j, id, x.port)
		}
		t.oneMap(x, id)
	}
}

// oneMap checks that the ranks of the communicator that gets a plane know the circuits between them if they know the
// epoch.
func (t *truth) oneMap(leader *session, id uint64) {
	for _, g := range t.w.groups {
		if h := g.members[0].host; h.port != leader.port || h.wants[g.cfg.id].id != id {
			continue
		}
		for _, port := range g.cfg.ports {
			x := leader.p.sessions[port]
			if x == nil {
				continue
			}
			was, m := g.site.Places.Restrict(nil, x.begun[t.plane]), g.site.Places.Restrict(nil, x.mail[t.plane].m)
			if !was.Equal(m) {
				t.w.violate(twoMaps, "port %d: plane %d is granted to holder %d at epoch %d with map %v, which was %v", port,
					t.plane, g.cfg.id, x.mail[t.plane].epoch, m, was)
			}
		}
	}
}

// misuse returns why a rank may not use a ticket: it is for another operation, or its planes are not granted to the
// communicator any more; "": it may.
func (m *member) misuse(g *circuits.Ticket) string {
	held := m.g.machine.Held()
	switch {
	case g.Seq != m.asked.Seq:
		return fmt.Sprintf("the ticket of operation %d for operation %d", g.Seq, m.asked.Seq)
	case g.CameAhead() && m.offered != offered{g.Seq, m.asked.Shape.Signature()}:
		return fmt.Sprintf("the ticket of %+v, which went out ahead, for operation %d", m.offered, m.asked.Seq)
	case g.Use&^held != 0:
		return fmt.Sprintf("the ticket of operation %d is for planes %#x, of which %#x are held", g.Seq, uint64(g.Use),
			uint64(held))
	}
	return ""
}

// ticket implements [ground]: all ranks of an operation get one ticket, its communicator holds the planes, and no other
// with a port in common does.
func (w *world) ticket(m *member, t *circuits.Ticket) {
	g := m.g
	same := t.Ticket
	same.Flags &^= ticket.Ahead // a rank may get the ticket again, when it asks
	body := ticket.Append(nil, &same)
	if g.ticketSeq != m.asked.Seq {
		g.ticketSeq, g.ticketBody = m.asked.Seq, body
	}
	if t.CameAhead() {
		w.result.Ahead++
	}
	if why := m.misuse(t); why != "" {
		w.violate(notGranted, "holder %d: rank %d: %s", g.cfg.id, m.rank, why)
	}
	if !bytes.Equal(g.ticketBody, body) {
		w.violate(twoPlans, "holder %d: rank %d has another ticket for operation %d", g.cfg.id, m.rank, m.asked.Seq)
	}
	inCharge := func(g *group) bool { // others have lost their planes, and will be told so
		h, p := g.members[0].host, w.leader()
		c := w.ports[h.port].c
		return p != nil && h.ready && h.token == p.rule.token && c != nil && !c.over
	}
	for _, o := range w.groups {
		both := o.machine.Held() & g.machine.Held()
		if o != g && both != 0 && !g.beside(o) && inCharge(o) && inCharge(g) {
			w.violate(twoHolders, "holders %d and %d have planes %#x", g.cfg.id, o.cfg.id, uint64(both))
		}
	}
}

// operationTime is more than an operation takes, with slow ranks, switches and messages.
const operationTime = 2 * time.Second

// waited implements [ground]: each other communicator keeps planes for MaxHold and one operation at most.
func (w *world) waited(g *group, d time.Duration) {
	others := time.Duration(len(w.groups) - 1)
	if limit := others*(arbiter.MaxHold+operationTime) + operationTime; d > limit && !w.fault.recent() {
		w.violate(unfair, "holder %d has waited for planes for %v, %d others may have held them", g.cfg.id, d, others)
	}
}

// mayFail checks the failure of a communicator: there was a fault.
func (w *world) mayFail(g *group, why error) {
	if w.fault.recent() {
		return
	}
	if errors.Is(why, errdefs.ErrTimeout) {
		w.violate(waitsForever, "holder %d: %v", g.cfg.id, why)
	}
	w.violate(failsOnItsOwn, "holder %d: %v", g.cfg.id, why)
}

// answers checks that the posts of a rank have been answered in time.
func (w *world) answers(h *host) {
	for i := range h.posts {
		if p := &h.posts[i]; h.ready && h.gone == nil && w.now(h).Sub(p.since) > 2*operationTimeout && !w.fault.recent() {
			w.violate(unanswered, "port %d: %s", h.port, describe(*p))
		}
	}
}

// served checks, after all faults have ended, that all jobs are served soon, and all planes are in service.
func (w *world) served() (all bool) {
	if w.healing == 0 || w.clock-w.checked < int64(time.Second) {
		return false
	}
	w.checked = w.clock
	missing := ""
	for _, j := range w.jobs {
		if j.served < servedOperations {
			missing = j.name
		}
	}
	if p := w.leader(); p == nil {
		missing = "a controller in charge"
	} else if shot, err := p.core.Snapshot(); err == nil {
		for j, pl := range shot.Planes {
			if pl.State == controller.Down || pl.Reason != "" || pl.Out != nil {
				missing = fmt.Sprintf("plane %d (%s%v)", j, pl.Reason, pl.Out)
			}
		}
	}
	if missing != "" && w.clock-w.healing > int64(healTime) {
		w.violate(waitsForever, "all faults have ended %v ago, without service: %s", healTime, missing)
	}
	return missing == ""
}
