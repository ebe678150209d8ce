package protocols

import (
	"context"
	"fmt"
	"time"

	"lightpath/internal/clock"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/switches"
	"lightpath/plans/circuit"
)

// opticalSwitch is a switch of the world with its planes: the model of package device in simulated time. It outlives
// the controllers, and answers each of them through a wire.
type opticalSwitch struct {
	name   string
	planes int
	ports  int // of each plane
	model  *device.Device
	fences bool   // it refuses changes with a lower token than it has seen
	token  uint64 // the highest that it has seen
	// taken is called before the switch does a change that it does not refuse as a whole; nil: it is not called.
	taken func(token uint64, remove, add []circuit.Pair)
}

// switchConfig describes a switch.
type switchConfig struct {
	Name     string
	Planes   int // on this switch, one after the other
	Ports    int // of each plane
	Fences   bool
	ColdBoot device.ColdBoot // of circuits, at a reboot
}

// newSwitch returns a switch without circuits. now is simulated time in nanoseconds. The chooser draws how long each
// circuit takes; choice 0 is the shortest time.
func newSwitch(c switchConfig, now func() int64, choose Chooser) (*opticalSwitch, error) {
	model, err := device.New(device.Config{
		Ports: c.Planes * c.Ports, ColdBoot: c.ColdBoot, Info: device.Info{Model: c.Name},
		Now:  func() time.Time { return time.Unix(0, now()) },
		Draw: func(n int64) int64 { return (n - 1) * int64(choose.Choose(drawn)) / (drawn - 1) },
	})
	if err != nil {
		return nil, err
	}
	return &opticalSwitch{name: c.Name, planes: c.Planes, ports: c.Ports, model: model, fences: c.Fences}, nil
}

// drawn is how many different times a circuit may take.
const drawn = 3

// lit returns the circuits of a plane through which light goes. Light that comes from another plane is not among them.
func (s *opticalSwitch) lit(plane int) circuit.Permutation { return s.part(s.model.Lit(), plane) }

// part returns the circuits of a plane, within the plane.
func (s *opticalSwitch) part(all circuit.Permutation, plane int) circuit.Permutation {
	first := plane * s.ports
	own := circuit.AllDark(s.ports)
	for r := range own {
		if to := all[first+r] - first; to >= 0 && to < s.ports {
			own[r] = to
		}
	}
	return own
}

// wire carries messages between a controller and a switch, and may delay or lose them. It calls f when the message
// arrives: at once, or in a later event. The trace shows the text what.
type wire interface {
	ask(what string, f func())    // from the controller to the switch
	answer(what string, f func()) // from the switch to the controller; after f, the world steps the controller's device
}

// answerTimeout is how long a controller waits for one answer.
const answerTimeout = 2 * time.Second

// newPlanes returns the planes of switches as one controller process has them: the product's device, in steps. now is
// the process's clock in nanoseconds. dial connects the process to a switch; the device calls it again after an answer
// did not come in time.
//
// After a crash the caller calls OnSettled with nil, and then Close. A change that has left the process arrives.
func newPlanes(all []*opticalSwitch, now func() int64, dial func(s *opticalSwitch) wire,
	change func(*switches.Config)) (*switches.Manual, error) {
	byName := make(map[string]*opticalSwitch, len(all))
	var where []place
	c := switches.Config{}
	for _, s := range all {
		byName[s.name] = s
		for j := range s.planes {
			where = append(where, place{s, j})
			p := switches.Plane{Name: fmt.Sprintf("%s.%d", s.name, j), Switch: s.name}
			for r := range s.ports {
				p.Ports.In = append(p.Ports.In, s.model.Label(j*s.ports+r, device.Ingress))
				p.Ports.Out = append(p.Ports.Out, s.model.Label(j*s.ports+r, device.Egress))
			}
			c.Planes = append(c.Planes, p)
		}
	}
	c.Open = func(ctx context.Context, name string, _ driver.Ports) (driver.Switch, error) {
		l := &link{s: byName[name], dial: dial}
		_, err := l.Info(ctx)
		return l, err
	}
	c.Prober = tokens(where)
	if change != nil {
		change(&c)
	}
	return switches.NewManual(c, func() time.Time { return time.Unix(0, now()) })
}

// place is a plane of a switch.
type place struct {
	s     *opticalSwitch
	plane int
}

// tokens sends tokens over the circuits of the planes.
type tokens []place

// Probe implements [switches.Prober].
func (t tokens) Probe(_ context.Context, plane int, circuits []circuit.Pair) ([]bool, error) {
	lit := t[plane].s.lit(t[plane].plane)
	arrived := make([]bool, len(circuits))
	for i, c := range circuits {
		arrived[i] = lit[c.From] == c.To
	}
	return arrived, nil
}

// link is a controller's connection to a switch. Its protocol is the plainest that has all that driver.Carry needs.
type link struct {
	s    *opticalSwitch
	dial func(*opticalSwitch) wire
	wire wire // nil: not connected
}

var (
	_ driver.Fencer   = (*link)(nil)
	_ driver.Protocol = (*link)(nil)
)

// exchange runs do at the switch, and returns when the answer has arrived. The caller may then read the variables that
// do has set. After an error do may have run, or may still run.
func (l *link) exchange(ctx context.Context, what string, do func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.wire == nil {
		l.wire = l.dial(l.s)
	}
	wire, came, up := l.wire, make(chan struct{}, 1), true
	wire.ask(what, func() {
		if up = l.s.model.Up(); up {
			do()
		}
		if !l.s.model.DropReply() {
			wire.answer("answer: "+what, func() { came <- struct{}{} })
		}
	})
	if err := l.await(ctx, came); err != nil {
		l.wire = nil
		return fmt.Errorf("%s: %w: %w", l.s.name, driver.ErrNoAnswer, err)
	}
	if !up {
		return fmt.Errorf("%s: %w: it is starting", l.s.name, driver.ErrNoAnswer)
	}
	return nil
}

// await waits for an answer.
func (l *link) await(ctx context.Context, came <-chan struct{}) error {
	ctx, cancel := clock.WithTimeout(ctx, answerTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	return clock.Wait(ctx, deadline.Add(1), came)
}

// Info implements [driver.Switch].
func (l *link) Info(ctx context.Context) (driver.Info, error) {
	i := driver.Info{Model: l.s.name, CanFence: l.s.fences, CanState: true, CanLight: true}
	return i, l.exchange(ctx, "identity", func() {})
}

// Read implements [driver.Switch].
func (l *link) Read(ctx context.Context) (circuit.Permutation, error) { return l.Map(ctx) }

// Map implements [driver.Protocol].
func (l *link) Map(ctx context.Context) (table circuit.Permutation, err error) {
	var bad error
	err = l.exchange(ctx, "map", func() {
		var rows []device.Connection
		rows, table, bad = l.s.model.Table(), circuit.AllDark(l.s.model.Ports()), nil
		used := make([]bool, len(table))
		for _, c := range rows {
			if table[c.In] != circuit.Dark || used[c.Out] {
				bad = fmt.Errorf("%s: %w: port %d to port %d is a second circuit", l.s.name, driver.ErrNotMatching, c.In, c.Out)
				continue
			}
			table[c.In], used[c.Out] = c.Out, true
		}
	})
	if err != nil {
		return nil, err
	}
	return table, bad
}

// Apply implements [driver.Switch].
func (l *link) Apply(ctx context.Context, c driver.Change) ([]driver.Circuit, error) {
	return driver.Carry(ctx, l, c, driver.Tolerance{Averaging: l.s.model.Averaging()})
}

// Send implements [driver.Protocol].
func (l *link) Send(ctx context.Context, token uint64, remove, add []circuit.Pair) (refused []error, err error) {
	var fenced bool
	err = l.exchange(ctx, fmt.Sprintf("change, token %d: remove %v, add %v", token, remove, add), func() {
		if fenced = l.s.fences && token < l.s.token; fenced {
			return
		}
		l.s.token = max(l.s.token, token)
		if l.s.taken != nil {
			l.s.taken(token, remove, add)
		}
		// The model's context must not end with the sender: the request has arrived.
		refused = l.s.model.Apply(context.Background(), remove, add, device.Bulk)
	})
	switch {
	case err != nil:
		return nil, err
	case fenced:
		return nil, fmt.Errorf("%s: %w: token %d", l.s.name, driver.ErrFenced, token)
	}
	for i, why := range refused {
		if why != nil {
			refused[i] = fmt.Errorf("%w: %w", driver.ErrRefused, why)
		}
	}
	return refused, nil
}

// Fence implements [driver.Fencer].
func (l *link) Fence(ctx context.Context, token uint64) error {
	if !l.s.fences {
		return driver.ErrRefused
	}
	fenced := false
	err := l.exchange(ctx, fmt.Sprint("token ", token), func() {
		fenced = token < l.s.token
		l.s.token = max(l.s.token, token)
	})
	if err == nil && fenced {
		err = fmt.Errorf("%s: %w: token %d", l.s.name, driver.ErrFenced, token)
	}
	return err
}

// States implements [driver.Protocol].
func (l *link) States(ctx context.Context, circuits []circuit.Pair) (states []driver.State, err error) {
	err = l.exchange(ctx, "states", func() {
		states = make([]driver.State, len(circuits))
		for i, c := range circuits {
			in, out := l.s.model.Status(c.From, device.Ingress), l.s.model.Status(c.To, device.Egress)
			switch {
			case in == device.Tuning || out == device.Tuning:
				states[i] = driver.Pending
			case in == device.Tuned && out == device.Tuned:
				states[i] = driver.Up
			default: // a ghost has no state
				states[i] = driver.Failed
			}
		}
	})
	return states, err
}

// Light implements [driver.Protocol].
func (l *link) Light(ctx context.Context, circuits []circuit.Pair) (dbm []float64, err error) {
	err = l.exchange(ctx, "light", func() {
		dbm = make([]float64, len(circuits))
		for i, c := range circuits {
			dbm[i], _ = l.s.model.PowerDBm(c.To, device.Egress)
		}
	})
	return dbm, err
}

// Health implements [driver.Switch].
func (l *link) Health(ctx context.Context) (health []driver.Health, err error) {
	err = l.exchange(ctx, "health", func() {
		health = nil
		for _, side := range []device.Side{device.Ingress, device.Egress} {
			for port := range l.s.model.Ports() {
				state := l.s.model.Status(port, side)
				h := driver.Health{Port: l.s.model.Label(port, side), State: state.String(), Failed: state == device.Failed}
				if side == device.Egress {
					h.PowerDBm, h.HasPower = l.s.model.PowerDBm(port, side)
				}
				health = append(health, h)
			}
		}
	})
	return health, err
}

// Close implements [driver.Switch].
func (l *link) Close() error {
	l.wire = nil
	return nil
}
