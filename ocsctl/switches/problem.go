package switches

import (
	"fmt"

	"lightpath/ocsctl/driver"
)

// problem is something wrong with a circuit or a port of a plane.
type problem struct {
	kind problemKind
	rank int // that sends, or whose port it is
	port string
	text string // for operators: what was read, too
}

// problemKind says what is wrong. A kind with rank and port is logged once while it lasts, whatever the
// readings are meanwhile.
type problemKind string

// The kinds of problems.
const (
	portFailed problemKind = "port has failed"
	noLight    problemKind = "no light"
	lightLost  problemKind = "light is lost"
	notGood    problemKind = "circuit is not good"
)

// problemID identifies a problem of a switch.
type problemID struct {
	plane *plane
	kind  problemKind
	rank  int
	port  string
}

// problems are those that the log has been told of.
type problems map[problemID]bool

// problems lists what is wrong with a plane: failed ports, then circuits. Without health failed ports show
// in the circuits only.
func (u *unit) problems(p *plane, health []driver.Health) (found []problem) {
	n := len(u.ports.In)
	for r := range p.ports.In {
		for _, at := range []int{p.first + r, n + p.first + r} {
			if at < len(health) && health[at].Failed {
				h := &health[at]
				found = append(found, problem{portFailed, r, h.Port, fmt.Sprintf("port %s of rank %d is %s", h.Port, r, h.State)})
			}
		}
	}
	for r, to := range p.observed {
		if at := p.first + r; !u.s.Good(at) {
			found = append(found, u.badCircuit(p, r, to, u.s.Circuit(at)))
		}
	}
	return found
}

// unlit returns the ranks whose light does not arrive.
func unlit(found []problem) (ranks []int) {
	for i := range found {
		if k := found[i].kind; k == noLight || k == lightLost {
			ranks = append(ranks, found[i].rank)
		}
	}
	return ranks
}

// badCircuit puts into words why the circuit from rank r to rank to is not good.
func (u *unit) badCircuit(p *plane, r, to int, c driver.Circuit) problem {
	port, limit := u.egress(p.first+to), u.d.cfg.rule().Threshold()
	where := fmt.Sprintf("port %s of rank %d receives", port, to)
	switch {
	case c.HasPower && c.PowerDBm < limit && u.s.WasLit(p.first+r):
		return problem{lightLost, r, port, fmt.Sprintf("light is lost: %s %.2f dBm from rank %d, want %.2f", where, c.PowerDBm, r, limit)}
	case c.HasPower && c.PowerDBm < limit:
		return problem{noLight, r, port, fmt.Sprintf("no light: %s %.2f dBm from rank %d, want %.2f", where, c.PowerDBm, r, limit)}
	}
	return problem{notGood, r, port, fmt.Sprintf("the circuit from rank %d to rank %d, port %s: %s", r, to, port, c.Reason)}
}

// tell logs which problems of a plane are new, and which are over.
func (u *unit) tell(p *plane, found []problem) {
	if u.told == nil {
		u.told = make(problems)
	}
	now := make(problems)
	for i := range found {
		id := problemID{p, found[i].kind, found[i].rank, found[i].port}
		if now[id] = true; !u.told[id] {
			u.told[id] = true
			u.log.Warn(string(id.kind), "plane", p.name, "rank", id.rank, "port", id.port, "problem", found[i].text)
		}
	}
	for id := range u.told {
		if id.plane == p && !now[id] {
			delete(u.told, id)
			u.log.Info("no more: "+string(id.kind), "plane", p.name, "rank", id.rank, "port", id.port)
		}
	}
}
