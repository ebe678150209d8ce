package arbiter

import (
	"slices"

	"lightpath/plans"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
)

// Communicators of disjoint ranks share planes while none of them moves a circuit. So groups side by side, such as the
// data-parallel groups of a job, send at the same time. The controller refuses moves of planes that are shared. If an
// operation moves circuits after all, the machine gives the planes back and requests them for itself.

// DefaultStillAfter is [Config.StillAfter] of jobs. To give shared planes back for a move costs a grant. So the machine
// does not share them between moves.
const DefaultStillAfter = 8

// still is what the leader knows of moves.
type still struct {
	lease bool // the lease, or the request for one, is still: no operation moves a circuit
	run   int  // operations that have moved no circuit, since the last one that has
}

// moves notes an operation that rests, or moves circuits. It reports whether the lease does not allow the operation.
func (s *still) moves(rests bool) bool {
	if rests {
		s.run++
		return false
	}
	s.run = 0
	return s.lease
}

// rests reports whether a plan moves no circuit of the planes, as they are now.
func (m *Machine) rests(p *planning.Agreed, use planeset.Set) bool {
	if p == nil || p.Plan == nil {
		return false
	}
	i := 0
	for j := range use.Each() {
		if !m.now[j].Maps.Equal(p.Plan.Initial[i]) {
			return false
		}
		i++
	}
	return !slices.ContainsFunc(p.Plan.Planes, reconfigures)
}

// reconfigures reports whether a plane's part of a plan has a reconfiguration.
func reconfigures(entries []plans.Entry) bool {
	return slices.ContainsFunc(entries, func(e plans.Entry) bool { return e.Kind == plans.Reconfigure })
}

// mayShare reports whether the planes of a request may be shared. If others move them before the grant, the operation
// asks for them again, alone.
func (m *Machine) mayShare() bool {
	least := m.cfg.StillAfter
	return least > 0 && m.still.run >= least && len(m.cfg.Site.Places.Ports()) < m.cfg.Site.Places.Size()
}

// unshare gives shared planes back, and requests them for the work alone.
func (m *Machine) unshare() error {
	m.giveBack()
	return m.acquire()
}
