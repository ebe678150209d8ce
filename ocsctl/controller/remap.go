package controller

import (
	"errors"
	"fmt"
	"slices"
)

// Moved is a port of a plane that an operator has moved to another port of the switch.
type Moved struct {
	From string `json:"from"` // label in the fabric file
	To   string `json:"to"`
}

// ErrNoSpare says that a port of the switch cannot take the place of another one.
var ErrNoSpare = errors.New("not a free spare port")

// PortTable returns the switch's port of each port of a plane: labels, the ones of the fabric file, with those of moved
// ports. The fabric file counts if it names another port than when the port was moved, or now gives the new one to a
// rank.
func PortTable(labels []string, moved map[int]Moved) []string {
	table := slices.Clone(labels)
	for port, m := range moved {
		if port < len(labels) && labels[port] == m.From && !slices.Contains(labels, m.To) {
			table[port] = m.To
		}
	}
	return table
}

// Remap implements Controller.
func (c *Core) Remap(plane, port int, to, who string) error {
	if err := c.checkPlane(plane); err != nil {
		return fmt.Errorf("controller: remap: %w", err)
	}
	return c.await(func(done func(error)) error {
		return c.do(func(now int64) { c.machine.remap(plane, port, to, who, done, now) })
	})
}

// remap moves a port of a free plane to another port of the switch, and makes its circuits there.
func (m *machine) remap(plane, port int, to, who string, done func(error), now int64) {
	pl := m.planes[plane]
	if err := m.mayRemap(pl, port, to); err != nil {
		done(fmt.Errorf("controller: %s port %d to %s: %w", pl, port, to, err))
		return
	}
	m.set(plane, &order{target: pl.wanted(), who: who, done: done, port: port, to: to}, now)
}

func (m *machine) mayRemap(pl *plane, port int, to string) error {
	if m.portReporter == nil || len(pl.Labels) == 0 {
		return fmt.Errorf("%w: the plane is not on a real switch", ErrNoSpare)
	}
	if port < 0 || port >= len(pl.Labels) {
		return fmt.Errorf("port %d of %d", port, len(pl.Labels))
	}
	table := PortTable(pl.Labels, pl.moved)
	switch user := slices.Index(table, to); {
	case user == port:
		return fmt.Errorf("%w: the port is there already", ErrNoSpare)
	case user >= 0:
		return fmt.Errorf("%w: port %d has it", ErrNoSpare, user)
	case to != pl.Labels[port] && !slices.Contains(pl.Spares, to):
		return fmt.Errorf("%w: the fabric file has spares %v", ErrNoSpare, pl.Spares)
	}
	return nil
}

// tableAfter returns the port table of a plane after an order.
func (pl *plane) tableAfter(o *order) []string {
	if o == nil || o.to == "" {
		return nil // as it is
	}
	table := PortTable(pl.Labels, pl.moved)
	table[o.port] = o.to
	return table
}
