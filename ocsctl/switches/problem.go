package switches

import (
	"fmt"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
)

// problem is something wrong with a circuit or a port of a plane.
type problem struct {
	kind problemKind
	rank int // the sending rank, or the rank of the port
	to   int // the receiving rank; of a failed port: rank
	port string
	text string // for operators; includes the readings
}

// problemKind is the kind of a problem. While a problem lasts, it is logged once, even if its readings change.
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

// problems returns the problems of a plane: failed ports first, then bad circuits. Without health it finds bad
// circuits only.
func (u *unit) problems(p *plane, health []driver.Health) (found []problem) {
	n := len(u.ports.In)
	for r := range p.Ports.In {
		for _, at := range []int{p.first + r, n + p.first + r} {
			if at < len(health) && health[at].Failed {
				h := &health[at]
				text := fmt.Sprintf("port %s of rank %d is %s", h.Port, r, h.State)
				found = append(found, problem{portFailed, r, r, h.Port, text})
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

// badCircuit returns the problem of the circuit from rank r to rank to.
func (u *unit) badCircuit(p *plane, r, to int, c driver.Circuit) problem {
	port, limit := u.egress(p.first+to), driver.LightDBm
	where := fmt.Sprintf("port %s of rank %d receives", port, to)
	switch {
	case c.HasPower && c.PowerDBm < limit && u.s.WasLit(p.first+r):
		text := fmt.Sprintf("light is lost: %s %.2f dBm from rank %d, want %.2f", where, c.PowerDBm, r, limit)
		return problem{lightLost, r, to, port, text}
	case c.HasPower && c.PowerDBm < limit:
		text := fmt.Sprintf("no light: %s %.2f dBm from rank %d, want %.2f", where, c.PowerDBm, r, limit)
		return problem{noLight, r, to, port, text}
	}
	text := fmt.Sprintf("the circuit from rank %d to rank %d, port %s: %s", r, to, port, c.Reason)
	return problem{notGood, r, to, port, text}
}

// badPorts returns problems as a fault of their ports; nil: there are none. A dark circuit may be the fault of either
// end, unless one of them has failed.
func badPorts(found []problem) error {
	if len(found) == 0 {
		return nil
	}
	b := &controller.BadPorts{Why: map[int]string{}, Err: fmt.Errorf("%w: %s", driver.ErrUnwell, found[0].text)}
	failed := map[int]bool{}
	for i := range found { // failed ports come first
		p := &found[i]
		if p.kind == portFailed {
			failed[p.rank] = true
		} else if failed[p.rank] || failed[p.to] {
			continue
		}
		for _, r := range []int{p.rank, p.to} {
			if b.Why[r] == "" {
				b.Why[r] = p.text
			}
		}
	}
	return b
}

// logProblems logs the problems of a plane that are new, and problems that have ended.
func (u *unit) logProblems(p *plane, found []problem) {
	now := map[problemID]bool{}
	for i := range found {
		id := problemID{p, found[i].kind, found[i].rank, found[i].port}
		if now[id] = true; !u.logged[id] {
			u.logged[id] = true
			u.log.Warn(string(id.kind), "plane", p.Name, "rank", id.rank, "port", id.port, "problem", found[i].text)
		}
	}
	for id := range u.logged {
		if id.plane == p && !now[id] {
			delete(u.logged, id)
			u.log.Info("no more: "+string(id.kind), "plane", p.Name, "rank", id.rank, "port", id.port)
		}
	}
}
