package circuit

import "fmt"

// Placement says at which ports of a plane some ranks are: those of a communicator or of a job. It converts maps of
// these ranks to maps of ports and back. Safe for concurrent use.
type Placement struct {
	ports []int // by rank
	ranks []int // by port; -1: none of these ranks
}

// Place returns the placement of ranks at ports of a plane with size ports. [CheckPorts] has found no error in ports.
func Place(ports []int, size int) *Placement {
	p := &Placement{ports: ports, ranks: make([]int, size)}
	for i := range p.ranks {
		p.ranks[i] = -1
	}
	for rank, port := range ports {
		p.ranks[port] = rank
	}
	return p
}

// CheckPorts returns an error if a port is not one of the plane's, or stands there twice.
func CheckPorts(ports []int, size int) error {
	has := make([]bool, size)
	for _, port := range ports {
		switch {
		case port < 0 || port >= size:
			return fmt.Errorf("port %d: there are ports 0..%d", port, size-1)
		case has[port]:
			return fmt.Errorf("port %d twice", port)
		}
		has[port] = true
	}
	return nil
}

// Ports returns the port of each rank. The caller must not change the result.
func (p *Placement) Ports() []int { return p.ports }

// Size returns the number of ports of the plane.
func (p *Placement) Size() int { return len(p.ranks) }

// Has reports whether one of the ranks is at a port.
func (p *Placement) Has(port int) bool { return p.ranks[port] >= 0 }

// Apart reports whether two placements have no port in common.
func (p *Placement) Apart(o *Placement) bool {
	for _, port := range p.ports {
		if o.Has(port) {
			return false
		}
	}
	return true
}

// Overlay appends a plane's map of ports, at, to m, with the circuits of a map of the ranks. Circuits between two other
// ports stay. Those between another port and one of the ranks go dark.
func (p *Placement) Overlay(m, at, ranks Permutation) Permutation {
	for port, to := range at {
		if to != Dark && (p.Has(port) || p.Has(to)) {
			to = Dark
		}
		m = append(m, to)
	}
	for rank, to := range ranks {
		if to != Dark {
			m[p.ports[rank]] = p.ports[to]
		}
	}
	return m
}

// Expand appends a map of the ranks to m as a map of ports, in which other ports are dark.
func (p *Placement) Expand(m, ranks Permutation) Permutation {
	for _, rank := range p.ranks {
		to := Dark
		if rank >= 0 {
			to = ranks[rank]
		}
		if to != Dark {
			to = p.ports[to]
		}
		m = append(m, to)
	}
	return m
}

// Restrict appends a plane's map of ports, at, to m as a map of the ranks. It drops circuits to other ports.
func (p *Placement) Restrict(m, at Permutation) Permutation {
	for _, port := range p.ports {
		to := at[port]
		if to != Dark {
			to = p.ranks[to]
		}
		m = append(m, to)
	}
	return m
}
