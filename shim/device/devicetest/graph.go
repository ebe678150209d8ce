package devicetest

import (
	"fmt"

	"lightpath/shim/device"
)

// NewEvent implements [device.Driver].
func (d *Driver) NewEvent() (device.Event, error) {
	if err := d.entered("NewEvent"); err != nil {
		return 0, err
	}
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, &event{})
	return device.Event(len(t.events)), nil
}

// FreeEvent implements [device.Driver].
func (d *Driver) FreeEvent(device.Event) error { return d.refuse("FreeEvent") }

// Reached implements [device.Driver].
func (d *Driver) Reached(e device.Event) (bool, error) {
	if err := d.refuse("Reached"); err != nil {
		return false, err
	}
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.events[e-1]
	return on.reached == on.recorded, nil
}

// Record implements [device.Driver].
func (d *Driver) Record(e device.Event, s device.Stream) error {
	if err := d.entered("Record"); err != nil {
		return err
	}
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	at, on := t.events[e-1], t.get(s)
	if on == nil {
		return fmt.Errorf("Record: %#x is no stream: %w", uintptr(s), device.ErrDriver)
	}
	if at.capture = on.capture; at.capture != nil {
		return nil // a graph runs in the order of its capture
	}
	at.recorded++
	t.push(on, op{kind: Record, event: at, turn: at.recorded})
	return nil
}

// Follow implements [device.Driver].
func (d *Driver) Follow(s device.Stream, e device.Event) error {
	if err := d.entered("Follow"); err != nil {
		return err
	}
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	at, on := t.events[e-1], t.get(s)
	switch {
	case on == nil:
		return fmt.Errorf("Follow: %#x is no stream: %w", uintptr(s), device.ErrDriver)
	case at.capture != nil && (on.capture == nil || on.capture == at.capture):
		on.capture = at.capture // it joins
		return nil
	case at.capture != nil || on.capture != nil:
		return fmt.Errorf("Follow: the wait crosses a capture: %w", device.ErrDriver)
	}
	if at.recorded > 0 {
		t.push(on, op{kind: Follow, event: at, turn: at.recorded})
	}
	return nil
}

// Capture begins to record the operations of a stream, and of streams that follow its events.
func (d *Driver) Capture(s device.Stream) {
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	t.captures++
	g := &Graph{id: t.captures}
	if t.graphs == nil {
		t.graphs = map[uint64]*Graph{}
	}
	t.graphs[g.id], t.get(s).capture = g, g
}

// End ends the capture that a stream began, and returns the graph.
func (d *Driver) End(s device.Stream) *Graph {
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.get(s).capture
	for _, on := range t.all {
		if on.capture == g {
			on.capture = nil
		}
	}
	delete(t.graphs, g.id)
	return g
}

// Replay makes a stream run a graph.
func (d *Driver) Replay(g *Graph, s device.Stream) {
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range g.ops {
		t.push(t.get(s), o)
	}
}

// Discard destroys a graph. No stream may still run it.
func (d *Driver) Discard(g *Graph) {
	for _, job := range g.jobs {
		d.handler.Ready(job)
	}
}

// Capturing implements [device.Driver].
func (d *Driver) Capturing(s device.Stream) (device.Capture, error) {
	if err := d.entered("Capturing"); err != nil {
		return device.Capture{}, err
	}
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	if on := t.get(s); on != nil && on.capture != nil {
		return device.Capture{ID: on.capture.id, Graph: uintptr(on.capture.id)}, nil
	}
	return device.Capture{}, nil
}

// Retain implements [device.Driver].
func (d *Driver) Retain(c device.Capture, job uintptr) error {
	if err := d.entered("Retain"); err != nil {
		return err
	}
	t := &d.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.graphs[c.ID]
	if g == nil {
		return fmt.Errorf("Retain: %d is no capture: %w", c.ID, device.ErrDriver)
	}
	g.jobs = append(g.jobs, job)
	return nil
}

var _ device.Driver = (*Driver)(nil)
