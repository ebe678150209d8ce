package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// verified is the level of a completed move: the kernel's own map carries the frames.
const verified = "light"

// Device is the cross-connect of a controller whose planes are in the kernel. Device models have the delays and faults
// of switches, and the board follows them. It implements [controller.Device], [controller.Timed] and
// [controller.Reporter].
type Device struct {
	mirror *Mirror
	board  Panel

	mu   sync.Mutex
	want []circuit.Permutation // by plane: the last requested map, or the map at the start
	told func(plane int)
}

var (
	_ controller.Timed    = (*Device)(nil)
	_ controller.Reporter = (*Device)(nil)
)

// NewDevice makes models, which cables connect to the planes, move the circuits of all planes of a board. The caller
// closes the Device first, then board and models.
func NewDevice(b Panel, cables []Cable) (*Device, error) {
	for j, c := range cables {
		if c.Model == nil {
			return nil, fmt.Errorf("kernel: fabric %s: plane %d has no model", b.State().Name, j)
		}
	}
	mirror, err := NewMirror(b, cables)
	if err != nil {
		return nil, err
	}
	d := &Device{mirror: mirror, board: b}
	for j := range cables {
		m, err := b.Map(j)
		if err != nil {
			return nil, errors.Join(err, mirror.Close())
		}
		d.want = append(d.want, m)
	}
	mirror.listen(d.happened)
	return d, nil
}

// Models makes a model of every switch of a fabric, in the order of the file, and cables its planes to them: the k-th
// plane of a switch has ports from k*ranks on. The models begin with the board's circuits. An empty preset stands for a
// switch that takes exactly the fabric's reconfiguration time.
func Models(b Panel, f *fabric.Fabric, preset string, seed uint64) (models []*device.Device,
	cables []Cable, err error) {
	if f.Digest() != b.State().Digest {
		return nil, nil, fmt.Errorf("kernel: fabric %s: %w", b.State().Name, ErrChanged)
	}
	defer func() {
		if err != nil {
			for _, m := range models {
				m.Close()
			}
		}
	}()
	cables = make([]Cable, len(f.Planes))
	for _, o := range f.OCS {
		var planes []int
		for j, p := range f.Planes {
			if p.OCS == o.Name {
				planes = append(planes, j)
			}
		}
		if planes == nil {
			continue
		}
		initial, err := joined(b, planes)
		if err != nil {
			return models, nil, err
		}
		c := device.Config{Ports: len(initial), Preset: preset, Seed: seed, Initial: initial}
		if preset == "" {
			c.Delays = &device.Delays{Min: o.Reconfig, Max: o.Reconfig, PerCircuit: o.ReconfigPerPort}
		}
		model, err := device.New(c)
		if err != nil {
			return models, nil, fmt.Errorf("kernel: ocs %s: %w", o.Name, err)
		}
		models = append(models, model)
		for k, j := range planes {
			cables[j] = Straight(model, k*f.Ranks, f.Ranks)
		}
	}
	return models, cables, nil
}

// joined returns the maps of planes as one map, in which their ports follow one another.
func joined(b Panel, planes []int) (all circuit.Permutation, err error) {
	for _, j := range planes {
		m, err := b.Map(j)
		if err != nil {
			return nil, err
		}
		first := len(all)
		for _, to := range m {
			if to != circuit.Dark {
				to += first
			}
			all = append(all, to)
		}
	}
	return all, nil
}

// Close stops following the models; circuits stay.
func (d *Device) Close() error { return d.mirror.Close() }

// OnSettled implements [controller.Timed].
func (d *Device) OnSettled(f func(plane int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = f
}

// Switch implements [controller.Device]. If the plane's circuits differ from the move's start, it changes nothing, and
// the error wraps [driver.ErrDrift].
func (d *Device) Switch(plane int, m controller.Move) error {
	if err := d.board.State().check(plane); err != nil {
		return err
	}
	fail := func(err error) error {
		return fmt.Errorf("kernel: plane %s: %w", d.board.State().Planes[plane].Name, err)
	}
	for _, p := range []circuit.Permutation{m.From, m.To} {
		if err := p.Validate(d.board.State().Ranks); err != nil {
			return fail(fmt.Errorf("map %w", err))
		}
	}
	model := d.mirror.cable[plane].Model
	if !model.Up() {
		return fail(device.ErrDown)
	}
	have, err := d.Map(plane)
	if err != nil {
		return fail(err)
	}
	if err := drift(have, m.From); err != nil {
		return fail(err)
	}
	remove, add := d.delta(plane, m.To)
	if err := errors.Join(model.Check(remove, add)...); err != nil {
		return fail(err)
	}
	d.mu.Lock() // held until the model moves, so that no reader takes the delay for drift
	defer d.mu.Unlock()
	// If the model executes only a part of an accepted request, the map shows it.
	results := model.Apply(context.Background(), remove, add, device.Bulk)
	if len(results) > 0 && !slices.Contains(results, nil) {
		return fail(errors.Join(results...))
	}
	d.want[plane] = m.To.Clone()
	d.mirror.touch(plane) // an empty move has already ended
	return nil
}

// delta returns the circuits that the model must remove and add for a plane to have a map. It compares with the model's
// own table, which may contain a circuit without light.
func (d *Device) delta(plane int, to circuit.Permutation) (remove, add []circuit.Pair) {
	c := d.mirror.cable[plane]
	table := c.Model.Map()
	for r, in := range c.In {
		want := circuit.Dark
		if to[r] != circuit.Dark {
			want = c.Out[to[r]]
		}
		if table[in] == want {
			continue
		}
		if table[in] != circuit.Dark {
			remove = append(remove, circuit.Pair{From: in, To: table[in]})
		}
		if want != circuit.Dark {
			add = append(add, circuit.Pair{From: in, To: want})
		}
	}
	return remove, add
}

// Map implements [controller.Device]: the circuits that the kernel has, ErrMoving while the model
// of the plane moves some of them.
func (d *Device) Map(plane int) (circuit.Permutation, error) {
	if err := d.board.State().check(plane); err != nil {
		return nil, err
	}
	if d.any(plane, device.Tuning) != circuit.Dark {
		return nil, controller.ErrMoving
	}
	if err := d.mirror.settle(plane); err != nil {
		return nil, err
	}
	return d.board.Map(plane)
}

// any returns the first port of the plane in a given state, Dark if there is none.
func (d *Device) any(plane int, state device.PortState) int {
	c := d.mirror.cable[plane]
	for r := range c.In {
		if c.Model.Status(c.In[r], device.Ingress) == state || c.Model.Status(c.Out[r], device.Egress) == state {
			return r
		}
	}
	return circuit.Dark
}

// happened reports a change if the plane has no move in progress.
func (d *Device) happened(plane int) {
	d.mu.Lock()
	told := d.told
	moving := d.any(plane, device.Tuning) != circuit.Dark
	d.mu.Unlock()
	if told != nil && !moving {
		told(plane)
	}
}

// Report implements [controller.Reporter].
func (d *Device) Report(plane int) (string, error) {
	if err := d.board.State().check(plane); err != nil {
		return "", err
	}
	if err := d.unwell(plane); err != nil {
		return verified, fmt.Errorf("kernel: plane %s: %w", d.board.State().Planes[plane].Name, err)
	}
	return verified, nil
}

func (d *Device) unwell(plane int) error {
	if !d.mirror.cable[plane].Model.Up() {
		return fmt.Errorf("%w: %w", driver.ErrNoAnswer, device.ErrDown)
	}
	if r := d.any(plane, device.Failed); r != circuit.Dark {
		return fmt.Errorf("%w: port %d has failed", driver.ErrUnwell, r)
	}
	d.mu.Lock()
	want := d.want[plane]
	d.mu.Unlock()
	have, err := d.Map(plane)
	if errors.Is(err, controller.ErrMoving) {
		return nil
	}
	if err != nil {
		return err
	}
	return drift(have, want)
}

// drift returns an error for the first port whose circuit differs from the wanted map.
func drift(have, want circuit.Permutation) error {
	for r := range want {
		if have[r] != want[r] {
			return fmt.Errorf("%w: port %d goes to %s, not to %s", driver.ErrDrift, r, portName(have[r]), portName(want[r]))
		}
	}
	return nil
}

func portName(p int) string {
	if p == circuit.Dark {
		return "none"
	}
	return fmt.Sprintf("port %d", p)
}
