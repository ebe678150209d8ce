package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// BadPorts is a fault of some ports of a plane: the plane may serve the other ones.
type BadPorts struct {
	Why map[int]string // by port
	Err error          // of the plane; callers match it
}

func (b *BadPorts) Error() string { return b.Err.Error() }
func (b *BadPorts) Unwrap() error { return b.Err }

// why returns the fault of a port; "": it has none. b may be nil.
func (b *BadPorts) why(port int) string {
	if b == nil {
		return ""
	}
	return b.Why[port]
}

// badPort is a port whose circuits ranks must not use. Its circuits stay as they are, unless an operator moves them.
type badPort struct {
	why string
	// failedMove: the port returns only when an operator has had its circuits verified. Other ports return when the
	// device reports them as good.
	failedMove bool
}

// PortOut is a port that is out of service, on a plane that serves other ports.
type PortOut struct {
	Port int    `json:"port"`
	Why  string `json:"why"`
}

// out returns the ports of a plane that are out of service, in order: the bad ones, and the other ends of their
// circuits, since these circuits do not move.
func (pl *plane) out() []PortOut {
	if len(pl.bad) == 0 {
		return nil
	}
	if pl.outAt.Equal(pl.m) {
		return pl.outs
	}
	why := map[int]string{}
	for p, to := range pl.m {
		if to == circuit.Dark {
			continue
		}
		if _, bad := pl.bad[p]; bad {
			why[to] = fmt.Sprintf("its circuit comes from port %d", p)
		}
		if _, bad := pl.bad[to]; bad {
			why[p] = fmt.Sprintf("its circuit leads to port %d", to)
		}
	}
	for p, b := range pl.bad {
		why[p] = b.why
	}
	pl.outs, pl.outAt = nil, pl.m
	for _, p := range slices.Sorted(maps.Keys(why)) {
		pl.outs = append(pl.outs, PortOut{p, why[p]})
	}
	return pl.outs
}

// has reports whether a holder has one of these ports, so that the plane is out of service for it.
func (h *leaseHolder) has(out []PortOut) bool {
	return slices.ContainsFunc(out, func(o PortOut) bool { return h.at(o.Port) })
}

// closed returns why a plane in service is out of service for a port: the port is out, or a holder with this port has
// one that is out; "": it is in service.
func (m *machine) closed(pl *plane, port int) string {
	out := pl.out()
	if i := slices.IndexFunc(out, func(o PortOut) bool { return o.Port == port }); i >= 0 {
		return out[i].Why
	}
	for i := range m.lease.held[pl.index] {
		if h := &m.lease.held[pl.index][i]; h.at(port) && h.has(out) {
			return "a port of its communicator is out"
		}
	}
	return ""
}

// faultFor returns the fault of a plane as a port sees it; nil: the plane is in service for the port. If only some
// ports have a fault, a sink without a port (-1) sees a *[BadPorts].
func (m *machine) faultFor(pl *plane, port int) error {
	if pl.fault != nil || len(pl.bad) == 0 || port >= 0 && m.closed(pl, port) == "" {
		return pl.fault
	}
	err := fmt.Errorf("%s: %s: %w", pl.at(), pl.badText(), ocsctl.ErrPlaneDown)
	if port >= 0 {
		return err
	}
	b := &BadPorts{Why: map[int]string{}, Err: err}
	for p := range m.ports {
		if why := m.closed(pl, p); why != "" {
			b.Why[p] = why
		}
	}
	return b
}

// badText names the bad ports of a plane and the first reasons.
func (pl *plane) badText() string {
	const examples = 3
	var all []string
	for _, p := range slices.Sorted(maps.Keys(pl.bad)) {
		if len(all) == examples {
			all = append(all, fmt.Sprintf("%d ports in all", len(pl.bad)))
			break
		}
		all = append(all, fmt.Sprintf("port %d is out: %s", p, pl.bad[p].why))
	}
	return strings.Join(all, "; ")
}

// leaves returns nil if a map has the circuits of bad ports as they are, else the reason.
func (pl *plane) leaves(target circuit.Permutation) error {
	if len(pl.bad) == 0 {
		return nil
	}
	for p := range target {
		if target[p] == pl.m[p] {
			continue
		}
		for _, end := range []int{p, pl.m[p], target[p]} {
			if b, bad := pl.bad[end]; bad {
				return fmt.Errorf("port %d is out, so its circuits stay: %s: %w", end, b.why, ocsctl.ErrPlaneDown)
			}
		}
	}
	return nil
}

// touches returns the ports of a report for which a move has not ended as intended: they have a circuit that it should
// have made or removed. An operator's set also fails if the map keeps a circuit of a bad port.
func (b *BadPorts) touches(from, observed circuit.Permutation, mv *move) (ports []int) {
	if b == nil {
		return nil
	}
	all := mv.order != nil && mv.order.job == nil
	for p, to := range mv.to {
		if observed[p] != to {
			ports = append(ports, p, to, observed[p])
		} else if to != circuit.Dark && (all || from[p] != to) {
			ports = append(ports, p, to)
		}
	}
	ports = slices.DeleteFunc(ports, func(p int) bool { return b.Why[p] == "" })
	slices.Sort(ports)
	return slices.Compact(ports)
}

// learnPorts takes over which ports of a plane the device reports as bad, and reports whether they have changed. The
// caller publishes the plane. While a holder has a port that is out, none returns: a rank of the holder learns of the
// fault first.
func (m *machine) learnPorts(pl *plane, found *BadPorts, now int64) (changed bool) {
	if found == nil && len(pl.bad) == 0 {
		return false
	}
	if found != nil {
		for _, p := range slices.Sorted(maps.Keys(found.Why)) {
			if _, known := pl.bad[p]; !known {
				m.exclude(pl, p, badPort{why: found.Why[p]}, now)
				changed = true
			}
		}
	}
	out := pl.out()
	used := slices.ContainsFunc(m.lease.held[pl.index], func(h leaseHolder) bool { return h.has(out) })
	for _, p := range slices.Sorted(maps.Keys(pl.bad)) {
		if found.why(p) != "" || used || pl.bad[p].failedMove {
			continue
		}
		m.include(pl, p, now)
		changed = true
	}
	return changed
}

// showBad publishes planes with bad ports, since the holders have changed for which they are out of service. The end of
// a move publishes its plane.
func (m *machine) showBad(planes uint64) {
	for j, pl := range m.planes {
		if planes>>j&1 != 0 && len(pl.bad) > 0 && !pl.move.on {
			m.publish(pl)
		}
	}
}

// renew takes over the device's report on the ports of a plane in service, and tells the ranks.
func (m *machine) renew(pl *plane, found *BadPorts, now int64) {
	if m.learnPorts(pl, found, now) {
		m.publish(pl)
		m.grant(now)
	}
}

// missed ends a move after which some of its circuits are not as intended. The plane goes out of service. If nothing
// else is wrong, mend puts it back without the ports of these circuits.
func (m *machine) missed(pl *plane, observed circuit.Permutation, found *BadPorts, now int64) {
	mv, from := pl.move, pl.m
	ports := found.touches(from, observed, &mv)
	partial := pl.fault == nil && between(observed, from, mv.to)
	for _, p := range changing(observed, mv.to) {
		partial = partial && (slices.Contains(ports, p) || slices.Contains(ports, mv.to[p]))
	}
	m.install(pl, observed, nil, now)
	if partial {
		pl.desired = pl.m // no order asks for the target any more
		// Before the failure: else the next controller might know of the failure alone, and serve the ports.
		for _, p := range ports {
			m.exclude(pl, p, badPort{found.Why[p], true}, now)
		}
	}
	m.abort(pl, fmt.Errorf("%w: %w", found.Err, ocsctl.ErrReconfFailed), now)
	pl.partial = partial && pl.fault != nil
	m.mend(pl, now)
}

// mend puts a plane whose move missed some ports back into service for the other ports. The journal has the failure
// then, and no holder has the plane.
func (m *machine) mend(pl *plane, now int64) {
	busy := m.grace != 0 || pl.move.on || pl.move.order != nil || len(m.lease.held[pl.index]) > 0
	if !pl.partial || busy || !m.mayRestore(pl, now) {
		return
	}
	observed, err := m.read(pl)
	_, found, unwell := m.report(pl)
	if err != nil || unwell != nil || !observed.Equal(pl.m) {
		pl.partial = false // the device has failed, too: the plane waits for an operator
		return
	}
	m.learnPorts(pl, found, now)
	m.restore(pl, observed, now)
	m.grant(now)
}

// freedBad takes over which ports of planes have become good while a holder had the planes, and mends planes.
func (m *machine) freedBad(planes uint64, now int64) {
	for j, pl := range m.planes {
		if planes>>j&1 != 0 && len(pl.bad) > 0 && !pl.move.on {
			_, found, _ := m.report(pl)
			m.learnPorts(pl, found, now)
			m.publish(pl)
			m.mend(pl, now)
		}
	}
}

// enabledPorts takes over which ports an enable has found bad. It returns the function that answers the operator.
func (m *machine) enabledPorts(pl *plane, observed circuit.Permutation, o *order, now int64) (done func(error)) {
	_, found, _ := m.report(pl)
	m.verifiedPorts(pl, observed, &order{enable: true}, found, now)
	if m.learnPorts(pl, found, now); pl.fault == nil {
		m.publish(pl)
	}
	if len(pl.bad) == 0 {
		return o.done
	}
	left := fmt.Errorf("controller: %s is in service for the other ports: %s: %w", pl, pl.badText(), ocsctl.ErrPlaneDown)
	return func(err error) { o.done(cmp.Or(err, left)) }
}

func (m *machine) exclude(pl *plane, port int, b badPort, now int64) {
	pl.bad[port], pl.outAt = b, nil
	m.event(now, Event{Kind: Excluded, Plane: pl.index, Epoch: pl.epoch, Port: port, Err: b.why,
		FailedMove: b.failedMove})
}

func (m *machine) include(pl *plane, port int, now int64) {
	delete(pl.bad, port)
	pl.outAt = nil
	m.event(now, Event{Kind: Included, Plane: pl.index, Epoch: pl.epoch, Port: port})
}

// verifiedPorts ends the failed moves of ports whose circuits an operator's order has verified. These are all ports of
// an enable, the moved port of a remap, and ports that have a circuit in the target. A port that the device reports as
// bad stays out for that reason.
func (m *machine) verifiedPorts(pl *plane, target circuit.Permutation, o *order, found *BadPorts, now int64) {
	for _, p := range slices.Sorted(maps.Keys(pl.bad)) {
		verified := o.enable || o.to != "" && o.port == p || target[p] != circuit.Dark || slices.Contains(target, p)
		switch why := found.why(p); {
		case !verified || !pl.bad[p].failedMove:
		case why != "":
			m.exclude(pl, p, badPort{why: why}, now)
		default:
			m.include(pl, p, now)
		}
	}
}
