package arbiter

import (
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
)

// Communicators of disjoint ranks share planes while their operations move no circuit. So groups side by side, such as
// the tensor or data-parallel groups of a job, send at the same time. The controller makes the circuits with which an
// operation begins before it grants shared planes, and refuses all posts for them. If an operation needs other circuits
// after all, the machine gives the planes back and requests them for itself.

// DefaultShareAfter is [Config.ShareAfter] of jobs. To give shared planes back for a move costs a grant. So the machine
// does not share them between moves.
const DefaultShareAfter = 8

// share is what the leader knows of moves.
type share struct {
	lease bool // the lease, or the request for one, is shared
	fresh bool // no operation has used the planes since the grant
	run   int  // operations, one after the other, for which the planes could have been shared
}

// permits notes an operation with a plan, nil for a round. It reports false if the lease is shared, and the operation
// moves circuits. Planes that others had before may get the plan's first maps with the grant.
func (m *Machine) permits(p *planning.Agreed, use planeset.Set) bool {
	s := &m.share
	if isConstant(p) && (m.stands(p.Plan, use) || s.fresh && !s.lease) {
		s.fresh = false
		s.run++
		return true
	}
	s.fresh, s.run = false, 0
	return !s.lease
}

// isConstant reports whether an operation with a plan moves no circuit after its beginning.
func isConstant(p *planning.Agreed) bool {
	return p != nil && p.Plan != nil && !slices.ContainsFunc(p.Plan.Planes, reconfigures)
}

// reconfigures reports whether a plane's part of a plan has a reconfiguration.
func reconfigures(entries []plans.Entry) bool {
	return slices.ContainsFunc(entries, func(e plans.Entry) bool { return e.Kind == plans.Reconfigure })
}

// stands reports whether planes have the maps with which a plan begins.
func (m *Machine) stands(p *plans.Plan, use planeset.Set) bool {
	i := 0
	for j := range use.Each() {
		if !m.standing[j].Maps.Equal(p.Initial[i]) {
			return false
		}
		i++
	}
	return true
}

// lease returns the request for all planes. It is for shared planes with their circuits if recent operations could have
// shared them, and the plan of the next one is known and moves none.
func (m *Machine) lease() ocsctl.Lease {
	site := m.cfg.Site
	l := ocsctl.Lease{Mask: uint64(site.All()), Ports: site.Places.Ports()}
	least, entries := m.cfg.ShareAfter, site.All().Len()*len(l.Ports)
	if least == 0 || m.share.run < least || len(l.Ports) == site.Places.Size() || entries > ocsctl.MaxCircuits {
		return l
	}
	next := m.work
	if m.stage == idle {
		next, _ = m.predicted()
	}
	if next.demand != nil {
		return l
	}
	if p, _, err := m.choose(next.shape, site.All()); err == nil && isConstant(p) {
		l.Shared, l.Circuits = true, p.Plan.Initial
	}
	return l
}

// unshare gives shared planes back, and requests them for the work alone.
func (m *Machine) unshare() error {
	m.giveBack()
	return m.acquire()
}
