package netconf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lightpath/internal/brief"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf/wire"
	"lightpath/plans/circuit"
)

// swtch is a driver.Switch over one NETCONF session. It opens a new session when the session breaks.
type swtch struct {
	name  string // for errors
	open  Dial
	ports ports
	tol   driver.Tolerance
	wait  time.Duration // for one answer, and for locks

	turn    chan struct{} // holds one value while no call uses the fields below
	session *session      // may be nil or broken; the next use opens a new one
	pending *pending      // a confirmed commit that may not have ended
	closed  bool
}

var _ driver.Switch = (*swtch)(nil)

// Name is the driver's name in fabric files.
const Name = "netconf"

// Open connects to a switch by SSH and checks that it has the module. It is a driver.Open, and ignores the target's TLS
// fields. Port labels are the switch's port numbers.
func Open(ctx context.Context, t driver.Target) (driver.Switch, error) {
	name := t.Endpoint
	var err error
	if t.Endpoint, err = endpoint(t.Endpoint); err != nil {
		return nil, fmt.Errorf("netconf: %s: %w", name, err)
	}
	cc, err := clientConfig(t)
	if err != nil {
		return nil, fmt.Errorf("netconf: %s: %w", name, err)
	}
	return OpenStream(ctx, t, dialSSH(t, cc))
}

// OpenStream is Open over other streams than SSH: tunnels that have authenticated both sides.
func OpenStream(ctx context.Context, t driver.Target, dial Dial) (driver.Switch, error) {
	w := &swtch{name: t.Endpoint, open: dial, tol: t.Tolerance, wait: t.AnswerTime(), turn: make(chan struct{}, 1)}
	if w.tol.Averaging <= 0 {
		w.tol.Averaging = fastWindow
	}
	w.turn <- struct{}{}
	p, err := newPorts(t.Ports)
	if w.ports = p; err == nil {
		err = w.use(ctx, func() error { return nil })
	}
	if err != nil {
		return nil, w.wrap(err)
	}
	return w, nil
}

// use opens a session if necessary, and runs f while no other call uses the session.
func (w *swtch) use(ctx context.Context, f func() error) error {
	select {
	case <-w.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { w.turn <- struct{}{} }()
	if err := w.connect(ctx); err != nil {
		return err
	}
	return f()
}

// connect opens a session if none works, and settles a commit of an earlier call.
func (w *swtch) connect(ctx context.Context) error {
	if w.closed {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.session == nil || w.session.broken {
		s, err := dial(ctx, w.open, w.wait)
		if err != nil {
			return err
		}
		if !s.peer.Has(wire.OpticalNS) {
			s.close()
			return fmt.Errorf("%w: no module %s among its capabilities", driver.ErrProtocol, wire.OpticalModule)
		}
		w.session = s
	}
	return w.settle(ctx, false)
}

// call sends a request once, in the present session.
func (w *swtch) call(ctx context.Context, op *wire.Element) (*wire.Element, error) {
	return w.session.call(ctx, op)
}

// do sends requests until one fails.
func (w *swtch) do(ctx context.Context, ops ...*wire.Element) error {
	for _, op := range ops {
		if _, err := w.call(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// query requests data or a lock. Such requests have no effect beyond their session. So if the session has ended since
// its last use, query repeats the request once in a new session.
func (w *swtch) query(ctx context.Context, op *wire.Element) (*wire.Element, error) {
	data, err := w.call(ctx, op)
	if !errors.Is(err, errLost) || errors.Is(err, driver.ErrProtocol) || ctx.Err() != nil {
		return data, err
	}
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	return w.call(ctx, op)
}

// have requests containers of the module. If the switch refuses because it lacks one of them, have requests each
// separately.
func (w *swtch) have(ctx context.Context, names ...string) (*wire.Element, error) {
	var all []*wire.Element
	for _, n := range names {
		all = append(all, optical(n))
	}
	data, err := w.query(ctx, get(all...))
	if !errors.Is(err, driver.ErrRefused) {
		return data, err
	}
	data = &wire.Element{}
	for _, n := range names {
		part, err := w.query(ctx, get(optical(n)))
		switch {
		case errors.Is(err, driver.ErrRefused):
		case err != nil:
			return nil, err
		default:
			data.Children = append(data.Children, part.Children...)
		}
	}
	return data, nil
}

func (w *swtch) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("netconf: %s: %w", w.name, err)
}

// Info implements driver.Switch.
func (w *swtch) Info(ctx context.Context) (driver.Info, error) {
	var info driver.Info
	err := w.use(ctx, func() error {
		data, err := w.have(ctx, "product-information", "port-config", "opm-power")
		if err != nil {
			return err
		}
		p := data.Child(wire.OpticalNS, "product-information")
		powers, err := wire.Powers(data)
		if err != nil {
			return protocol(err)
		}
		states, err := wire.PortStates(data)
		canLight, canState := false, false
		for _, id := range w.ports.out {
			_, metered := powers[id]
			canLight = canLight || metered
			canState = canState || states[id] != "" && states[id] != stateUnsupported
		}
		info = driver.Info{
			Vendor:   brief.Line(p.Value(wire.OpticalNS, "manufacturer")),
			Model:    brief.Line(p.Value(wire.OpticalNS, "model-name")),
			Serial:   brief.Line(p.Value(wire.OpticalNS, "serial-number")),
			Software: brief.Line(p.Value(wire.OpticalNS, "software-version")),
			Dialect:  dialect(w.session.peer), CanState: canState, CanLight: canLight,
		}
		return protocol(err)
	})
	return info, w.wrap(err)
}

// dialect returns the module with the revision that the switch announces.
func dialect(peer wire.Hello) string {
	for _, c := range peer.Capabilities {
		name, parameters, _ := strings.Cut(c, "?")
		if name != wire.OpticalNS {
			continue
		}
		for _, p := range strings.FieldsFunc(parameters, func(r rune) bool { return r == '&' || r == ';' }) {
			if revision, ok := strings.CutPrefix(p, "revision="); ok {
				return wire.OpticalModule + "@" + brief.Line(revision)
			}
		}
	}
	return wire.OpticalModule
}

// Read implements driver.Switch.
func (w *swtch) Read(ctx context.Context) (circuit.Permutation, error) {
	var m circuit.Permutation
	err := w.use(ctx, func() (err error) {
		m, err = w.read(ctx, w.query)
		return err
	})
	return m, w.wrap(err)
}

// read reads and checks the map.
func (w *swtch) read(ctx context.Context, ask func(context.Context, *wire.Element) (*wire.Element,
	error)) (circuit.Permutation, error) {
	data, err := ask(ctx, getMap())
	if err != nil {
		return nil, err
	}
	pairs, err := wire.Pairs(data)
	if err != nil {
		return nil, protocol(err)
	}
	return w.ports.matching(pairs)
}

// matching converts rows to a map. If a port is in two rows, the first row counts, and the error wraps ErrNotMatching.
// So it does for a circuit between a port of the map and another port.
func (p ports) matching(rows []wire.Pair) (circuit.Permutation, error) {
	m := circuit.AllDark(len(p.in))
	var clash error
	in, out := make(map[uint32]uint32), make(map[uint32]uint32)
	for _, row := range rows {
		from, ours := p.ingress[row.Ingress]
		to, oursToo := p.egress[row.Egress]
		if !ours && !oursToo {
			continue
		}
		other, twice := in[row.Ingress]
		if !twice && ours {
			in[row.Ingress] = row.Egress
		}
		if twice && clash == nil {
			clash = fmt.Errorf("%w: ingress %d goes to %d and to %d", driver.ErrNotMatching, row.Ingress, other, row.Egress)
		}
		first, shared := out[row.Egress]
		if !shared && oursToo {
			out[row.Egress] = row.Ingress
		}
		if shared && clash == nil {
			clash = fmt.Errorf("%w: egress %d comes from %d and from %d", driver.ErrNotMatching, row.Egress, first, row.Ingress)
		}
		if ours != oursToo && clash == nil {
			clash = fmt.Errorf("%w: ingress %d goes to egress %d, and only one of them is of this map", driver.ErrNotMatching,
				row.Ingress, row.Egress)
		}
		if ours && oursToo && !twice && !shared {
			m[from] = to
		}
	}
	return m, clash
}

// Health implements driver.Switch: ingress ports first, in order of the map.
func (w *swtch) Health(ctx context.Context) ([]driver.Health, error) {
	var all []driver.Health
	err := w.use(ctx, func() error {
		data, err := w.have(ctx, "port-config", "opm-power")
		if err != nil {
			return err
		}
		states, err := wire.PortStates(data)
		if err != nil {
			return protocol(err)
		}
		powers, err := wire.Powers(data)
		if err != nil {
			return protocol(err)
		}
		for _, side := range [][]uint32{w.ports.in, w.ports.out} {
			for _, id := range side {
				h := driver.Health{Port: fmt.Sprint(id), State: states[id], Failed: states[id] == stateFailed}
				if h.State == stateUnsupported {
					h.State = ""
				}
				h.Unready = h.State != "" && h.State != stateEnabled
				h.PowerDBm, h.HasPower = powers[id]
				all = append(all, h)
			}
		}
		return nil
	})
	return all, w.wrap(err)
}

// Close implements driver.Switch. It waits for the call in progress, and leaves the map as it
// is; locks end with the session.
func (w *swtch) Close() error {
	<-w.turn
	defer func() { w.turn <- struct{}{} }()
	if w.closed = true; w.session != nil && !w.session.broken {
		_, _ = w.call(context.Background(), base("close-session")) // an error does not matter: the connection ends anyway
		w.session.close()
	}
	return nil
}
