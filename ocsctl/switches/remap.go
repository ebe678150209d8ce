package switches

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lightpath/internal/clock"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// remap changes the switch's ports of planes whose moves name others: it removes the circuits of the ports that change,
// and opens a session for the new ports. The driver never learns that a rank was at another port.
func (u *unit) remap(ctx context.Context, jobs []*job) {
	for _, j := range jobs {
		if j.m.Ports == nil {
			continue
		}
		changed, err := u.portsToChange(j.p, j.m.Ports)
		if err == nil && len(changed) > 0 {
			err = u.release(ctx, j, changed)
		}
		if err == nil && j.m.From != nil {
			j.m.From = without(j.m.From, changed)
		}
		if err != nil {
			j.fail(err)
			continue
		}
		j.ports = j.p.labels()
		u.setPorts(j.p, j.m.Ports)
		u.disconnect()
		if err := u.open(ctx); err != nil {
			failAll(jobs, u.unusable(err))
			return
		}
	}
}

// keepPorts gives the planes of failed jobs their ports of before. First it removes the circuits that have been made
// at the new ports. A session for the ports of before would not see them.
func (u *unit) keepPorts(ctx context.Context, jobs []*job) {
	var kept bool
	for _, j := range jobs {
		if j.err == nil || j.ports == nil {
			continue
		}
		kept = true
		ctx, cancel := clock.WithTimeout(ctx, u.d.cfg.LookTimeout) // that of the move may have passed
		changed, err := u.portsToChange(j.p, j.ports)
		if err == nil && u.s != nil {
			j.m.From = nil // whatever is there
			err = u.release(ctx, j, changed)
		}
		cancel()
		if err != nil {
			if b, some := errors.AsType[*controller.BadPorts](j.err); some {
				j.err = b.Err // circuits at the new port are a problem of the plane
			}
			j.err = fmt.Errorf("%w; at the new port: %w", j.err, err)
		}
		u.setPorts(j.p, j.ports)
	}
	if kept { // the session has the new ports of all of them
		u.disconnect()
	}
}

// portsToChange returns the ports of a plane whose labels differ from a table.
func (u *unit) portsToChange(p *plane, table []string) (changed []int, err error) {
	if len(table) != len(p.Ports.In) {
		return nil, fmt.Errorf("a table of %d ports, want %d", len(table), len(p.Ports.In))
	}
	next, err := driver.ParsePorts(table)
	if err == nil && (next.Out == nil) != (u.ports.Out == nil) {
		err = fmt.Errorf("port %q: either all ports have the form in/out or none has", table[0])
	}
	if err != nil {
		return nil, err
	}
	for r, label := range table {
		if label != p.Ports.Label(r) {
			changed = append(changed, r)
		}
	}
	return changed, nil
}

// release removes the circuits of ports, so that the other ends are free for new circuits.
func (u *unit) release(ctx context.Context, j *job, ports []int) error {
	if _, err := u.s.Look(ctx); err != nil {
		return err
	}
	before := u.s.Table()
	own, err := u.block(before, j.p)
	if err == nil && j.m.From != nil {
		err = j.p.drift(own, j.m.From)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrDrift, err)
	}
	after := before.Clone()
	for r, to := range without(own, ports) {
		if to == circuit.Dark {
			after[j.p.first+r] = circuit.Dark
		}
	}
	if after.Equal(before) {
		return nil
	}
	_, err = u.s.Apply(ctx, driver.Change{Before: before, After: after, Token: j.m.Token, Want: driver.ReadBack,
		Check: make([]bool, len(before)), May: j.m.Leading})
	if err != nil && !errors.Is(err, driver.ErrDrift) {
		err = fmt.Errorf("the circuits of the port cannot be removed: %w", err)
	}
	return err
}

// without returns a map without the circuits from and to some ports.
func without(m circuit.Permutation, ports []int) circuit.Permutation {
	left := m.Clone()
	for r, to := range m {
		if slices.Contains(ports, r) || slices.Contains(ports, to) {
			left[r] = circuit.Dark
		}
	}
	return left
}

// labels returns the ports of a plane as fabric files have them.
func (p *plane) labels() (all []string) {
	for r := range p.Ports.In {
		all = append(all, p.Ports.Label(r))
	}
	return all
}

// setPorts changes the switch's ports of a plane to a table that portsToChange has accepted.
func (u *unit) setPorts(p *plane, table []string) {
	next, _ := driver.ParsePorts(table)
	copy(p.Ports.In, next.In)
	copy(u.ports.In[p.first:], next.In)
	if next.Out != nil {
		copy(p.Ports.Out, next.Out)
		copy(u.ports.Out[p.first:], next.Out)
	}
}
