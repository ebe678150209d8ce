package verbstest

import (
	"slices"

	"lightpath/collectives/transport/rdma"
	"lightpath/plans/circuit"
)

// Crossbar joins devices by circuits that lead one way, and can be moved. What is on its way to
// a port that no circuit leads to any more is lost. A write with acknowledgement needs the circuit back, too.
type Crossbar struct {
	n    *Network
	to   circuit.Permutation
	lost int
}

// Cross puts devices behind a crossbar, all dark: device i is its port i.
func (n *Network) Cross(devices ...rdma.Device) *Crossbar {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := &Crossbar{n: n, to: circuit.AllDark(len(devices))}
	for i, d := range devices {
		own := d.(*device)
		own.crossbar, own.at = x, i
	}
	return x
}

// Set moves the circuits.
func (x *Crossbar) Set(to circuit.Permutation) {
	x.n.mu.Lock()
	defer x.n.mu.Unlock()
	x.to = slices.Clone(to)
}

// Map returns the circuits.
func (x *Crossbar) Map() circuit.Permutation {
	x.n.mu.Lock()
	defer x.n.mu.Unlock()
	return slices.Clone(x.to)
}

// Lost is how many requests have been lost for want of a circuit.
func (x *Crossbar) Lost() int {
	x.n.mu.Lock()
	defer x.n.mu.Unlock()
	return x.lost
}

// reaches reports whether what leaves a device gets to another.
func (d *device) reaches(to *device) bool {
	if d.dead || to.dead {
		return false
	}
	return d.crossbar == nil || d.crossbar == to.crossbar && d.crossbar.to[d.at] == to.at
}
