package controllertest

import (
	"sync"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// Panel is a cross-connect that moves at once, or, while its mirrors are stuck, never. Safe for
// concurrent use.
type Panel struct {
	mu     sync.Mutex
	maps   []circuit.Permutation
	stuck  bool
	silent bool
}

var _ controller.Device = (*Panel)(nil)

// NewPanel returns a panel without circuits.
func NewPanel(ports, planes int) *Panel {
	p := &Panel{}
	for range planes {
		p.maps = append(p.maps, circuit.AllDark(ports))
	}
	return p
}

// Switch implements controller.Device.
func (p *Panel) Switch(plane int, m controller.Move) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stuck {
		p.maps[plane] = m.To
	}
	return nil
}

// Map implements controller.Device.
func (p *Panel) Map(plane int) (circuit.Permutation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent {
		return nil, driver.ErrNoAnswer
	}
	return p.maps[plane], nil
}

// Stick makes the mirrors stuck, or loose again.
func (p *Panel) Stick(stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = stuck
}

// Silence makes the panel give no answer when its maps are read, or answer again.
func (p *Panel) Silence(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}
