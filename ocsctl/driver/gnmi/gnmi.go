package gnmi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"lightpath/internal/brief"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/ocsctl/internal/mtls"
	"lightpath/plans/circuit"
)

// Name is the driver's name in fabric files.
const Name = "gnmi"

const (
	defaultAveraging = 100 * time.Millisecond // the models do not contain the windows of power meters
	maxMessage       = 16 << 20
)

// Errors of Open.
var (
	// ErrExposed: the switch is on another host, and there is no TLS to reach it.
	ErrExposed = errors.New("gnmi: off this host TLS is required")
	// ErrDialect: the switch announces no model of a known dialect.
	ErrDialect = errors.New("gnmi: the switch does not speak a known dialect")
	// ErrPorts: labels that appear twice, or on one side only. Labels that the switch does not have are
	// driver.ErrPorts, too.
	ErrPorts = errors.New("gnmi: ports")
)

// Open connects to a switch. Dialect is a name of dialect.Names; "" detects it from the switch's models. With CAFile,
// CertFile and KeyFile both ends prove their identity. Without them, Open connects only to this host, unless Insecure.
// The switch must have every label of Ports.
func Open(ctx context.Context, t driver.Target) (driver.Switch, error) {
	s := &swtch{endpoint: t.Endpoint, timeout: t.AnswerTime(), tol: t.Tolerance, turn: make(chan struct{}, 1)}
	if s.tol.Averaging <= 0 {
		s.tol.Averaging = defaultAveraging
	}
	creds, err := credential(t)
	if err != nil {
		return nil, err
	}
	// A switch that reboots returns in seconds, so reconnect quickly. Ignore the environment's proxies, which are for
	// the web.
	s.conn, err = grpc.NewClient("passthrough:///"+t.Endpoint, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithContextDialer(t.Connect),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 2,
			Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: s.timeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("gnmi: %s: %w", t.Endpoint, err)
	}
	s.client = gpb.NewGNMIClient(s.conn)
	if err = s.speak(ctx, t.Dialect); err == nil {
		if s.setTime = s.timeout; t.Timeout <= 0 {
			s.setTime = max(s.timeout, s.words.SetTime)
		}
		err = s.number(ctx, t.Ports)
	}
	if err != nil {
		return nil, errors.Join(err, s.conn.Close())
	}
	return s, nil
}

func credential(t driver.Target) (credentials.TransportCredentials, error) {
	if t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" {
		c, err := mtls.Client(t.CAFile, t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("gnmi: %w", err)
		}
		return credentials.NewTLS(c), nil
	}
	if !t.Insecure && !mtls.Loopback(t.Endpoint) {
		return nil, fmt.Errorf("%w: %s", ErrExposed, t.Endpoint)
	}
	return insecure.NewCredentials(), nil
}

// swtch is a driver.Switch.
type swtch struct {
	endpoint string
	timeout  time.Duration
	setTime  time.Duration // timeout of a Set
	tol      driver.Tolerance
	conn     *grpc.ClientConn
	client   gpb.GNMIClient
	words    *dialect.Dialect
	ports    driver.Ports   // in the dialect's form
	in, out  map[string]int // ports of the map by label
	turn     chan struct{}  // a change holds it
	closed   atomic.Bool
}

// speak takes the dialect that is wanted, or detects it. It also finds out whether the switch answers.
func (s *swtch) speak(ctx context.Context, want string) (err error) {
	if want != "" {
		if s.words, err = dialect.Lookup(want); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	caps, err := s.client.Capabilities(ctx, &gpb.CapabilityRequest{})
	if err != nil {
		return s.fault(err)
	}
	if s.words != nil {
		return nil
	}
	models := make([]string, len(caps.GetSupportedModels()))
	for i, m := range caps.GetSupportedModels() {
		models[i] = m.GetName()
	}
	if s.words = dialect.ByModels(models); s.words == nil {
		return fmt.Errorf("%w: %s has %d models, none of %s", ErrDialect, s.endpoint, len(models),
			strings.Join(dialect.Names(), ", "))
	}
	return nil
}

// number maps labels to ports, and checks that the switch has them: a switch that lists no ports would look like a dark
// one.
func (s *swtch) number(ctx context.Context, p driver.Ports) error {
	if len(p.In) != len(p.Out) || len(p.In) == 0 {
		return fmt.Errorf("%w: %d ingress and %d egress", ErrPorts, len(p.In), len(p.Out))
	}
	store, err := s.get(ctx, &s.words.Ports)
	if err != nil {
		return err
	}
	has := store.Ports()
	s.in, s.out = make(map[string]int), make(map[string]int)
	take := func(labels []string, by map[string]int) ([]string, error) {
		all := make([]string, len(labels))
		for r, label := range labels {
			name := s.words.Normal(label)
			if _, twice := by[name]; twice {
				return nil, fmt.Errorf("%w: %q appears twice", ErrPorts, label)
			}
			if _, ok := has[name]; !ok {
				return nil, fmt.Errorf("%w: %w: %q is none of the %d that %s has as %s", ErrPorts, driver.ErrPorts, label, len(has),
					s.endpoint, s.words.Name)
			}
			all[r], by[name] = name, r
		}
		return all, nil
	}
	if s.ports.In, err = take(p.In, s.in); err != nil {
		return err
	}
	s.ports.Out, err = take(p.Out, s.out)
	return err
}

// Info implements driver.Switch.
func (s *swtch) Info(ctx context.Context) (driver.Info, error) {
	store, err := s.get(ctx, &s.words.System)
	if err != nil {
		return driver.Info{}, err
	}
	ports, err := s.get(ctx, &s.words.Ports)
	if err != nil {
		return driver.Info{}, err
	}
	i := driver.Info{Dialect: s.words.Name, CanFence: true, CanState: true}
	known := ports.Ports()
	for _, label := range s.ports.Out {
		if p, ok := known[label]; ok && !math.IsNaN(p.Output) {
			i.CanLight = true
		}
	}
	for _, r := range store.Records(&s.words.System) {
		i.Vendor, i.Model, i.Serial, i.Software = brief.Line(r.Values["vendor"]), brief.Line(r.Values["model"]),
			brief.Line(r.Values["serial"]), brief.Line(r.Values["software"])
	}
	return i, nil
}

// Read implements driver.Switch.
func (s *swtch) Read(ctx context.Context) (circuit.Permutation, error) {
	store, err := s.table(ctx)
	if err != nil {
		return nil, err
	}
	return s.permutation(store.Circuits())
}

// Apply implements driver.Switch.
func (s *swtch) Apply(ctx context.Context, c driver.Change) ([]driver.Circuit, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.turn }()
	p := &protocol{s: s}
	defer p.stop()
	return driver.Carry(ctx, p, c, s.tol)
}

// Health implements driver.Switch.
func (s *swtch) Health(ctx context.Context) ([]driver.Health, error) {
	store, err := s.get(ctx, &s.words.Ports)
	if err != nil {
		return nil, err
	}
	known := store.Ports()
	var all []driver.Health
	for i, side := range [][]string{s.ports.In, s.ports.Out} {
		for _, label := range side {
			p, ok := known[label]
			if !ok {
				all = append(all, driver.Health{Port: label, State: "not there", Failed: true})
				continue
			}
			h := driver.Health{Port: label, State: brief.Line(p.Word), Failed: p.State == dialect.Failed,
				Unready: p.State == dialect.Blocked || p.State == dialect.Pending}
			dbm := p.Input
			if i == 1 {
				dbm = p.Output
			}
			if !math.IsNaN(dbm) {
				h.PowerDBm, h.HasPower = dbm, true
			}
			all = append(all, h)
		}
	}
	return all, nil
}

// Close implements driver.Switch.
func (s *swtch) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.conn.Close()
}
