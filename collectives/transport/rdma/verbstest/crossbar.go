package verbstest

import (
	"slices"

	"lightpath/collectives/transport/rdma"
	"lightpath/plans/circuit"
)

// Crossbar connects devices by one-way circuits that a test can move. A request is lost if the circuit to its peer is
// gone when it arrives. A write with acknowledgement also needs the circuit back.
type Crossbar struct {
	n    *Network
	to   circuit.Permutation
	lost int
}

// Cross connects device i to port i of a new crossbar without circuits.
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

// Lost returns the number of requests that were lost because there was no circuit.
func (x *Crossbar) Lost() int {
	x.n.mu.Lock()
	defer x.n.mu.Unlock()
	return x.lost
}

// reaches reports whether a packet of d arrives at another device.
func (d *device) reaches(to *device) bool {
	if d.dead || to.dead {
		return false
	}
	return d.crossbar == nil || d.crossbar == to.crossbar && d.crossbar.to[d.at] == to.at
}
