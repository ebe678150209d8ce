package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/internal/mtls"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/kernel/agent/agentpb"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// Board combines the circuits of all hosts of a fabric. It implements [kernel.Panel]. Safe for concurrent use.
type Board struct {
	state  *kernel.State
	agents []*remote
	stop   context.CancelFunc
	done   sync.WaitGroup

	writing sync.Mutex // held by Install: one change at a time

	mu   sync.Mutex
	maps []circuit.Permutation // by plane: the map that all hosts have, as last read
	err  []error               // by plane: why the map is not known
}

var _ kernel.Panel = (*Board)(nil)

// remote is one host's agent.
type remote struct {
	host    fabric.Host
	conn    *grpc.ClientConn
	client  agentpb.CircuitsClient
	session uint64
}

// lookEvery is the interval between readings of the agents' maps.
const lookEvery = time.Second

// Dial becomes the writer of the circuits of a fabric, each of whose hosts has the address of an agent. Off loopback,
// it requires TLS. It keeps the circuits of the last writer. If hosts differ in the circuits of a plane, it makes the
// plane dark.
func Dial(ctx context.Context, f *fabric.Fabric, t TLS) (*Board, error) {
	state, err := kernel.Describe(f, kernel.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	b := &Board{state: state, maps: make([]circuit.Permutation, len(f.Planes)), err: make([]error, len(f.Planes))}
	fail := func(err error) (*Board, error) {
		b.hangUp()
		return nil, fmt.Errorf("kernel: fabric %s: %w", state.Name, err)
	}
	for _, h := range f.Hosts {
		a, err := dial(h, t)
		if err != nil {
			return fail(err)
		}
		b.agents = append(b.agents, a)
	}
	first := 0
	for i, a := range b.agents {
		planes, err := a.open(ctx, state, first)
		if err != nil {
			return fail(a.failed(err))
		}
		b.seen(i == 0, planes)
		first += a.host.Ranks
	}
	for j := range b.maps {
		if b.err[j] == nil {
			continue
		}
		b.maps[j], b.err[j] = circuit.AllDark(state.Ranks), nil
		if err := b.everywhere(ctx, j, b.maps[j]); err != nil {
			return fail(err)
		}
	}
	looking, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.done.Go(func() { b.watch(looking) })
	return b, nil
}

// dial prepares the connection to a host's agent. It sends nothing.
func dial(h fabric.Host, t TLS) (*remote, error) {
	a := &remote{host: h}
	if h.Address == "" {
		return nil, a.failed(errors.New("the fabric file has no address of it"))
	}
	creds := insecure.NewCredentials()
	switch {
	case t != TLS{}:
		config, err := mtls.Client(t.CA, t.Cert, t.Key)
		if err != nil {
			return nil, a.failed(err)
		}
		creds = credentials.NewTLS(config)
	case !mtls.Loopback(h.Address):
		return nil, a.failed(fmt.Errorf("off loopback %s needs a CA, a certificate and a key", h.Address))
	}
	var err error
	// Proxies of the environment are for the web. A host that is back is found at the next look.
	retry := backoff.Config{BaseDelay: lookEvery / 4, Multiplier: 2, Jitter: 0.2, MaxDelay: lookEvery}
	a.conn, err = grpc.NewClient("passthrough:///"+h.Address, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: patience}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, a.failed(err)
	}
	a.client = agentpb.NewCircuitsClient(a.conn)
	return a, nil
}

// open begins the session with an agent, whose host's ranks begin at first, and returns its maps.
func (a *remote) open(ctx context.Context, s *kernel.State, first int) ([]*agentpb.Map, error) {
	reply, err := a.client.Open(ctx, &agentpb.OpenRequest{Protocol: protocol, Digest: s.Digest})
	switch {
	case err != nil:
		return nil, err
	case reply.GetHost() != a.host.Name || int(reply.GetFirst()) != first || int(reply.GetCount()) != a.host.Ranks:
		return nil, fmt.Errorf("it is that of host %q, with ranks %d to %d", reply.GetHost(), reply.GetFirst(),
			reply.GetFirst()+reply.GetCount()-1)
	case len(reply.GetPlanes()) != len(s.Planes):
		return nil, fmt.Errorf("it has %d planes, not %d", len(reply.GetPlanes()), len(s.Planes))
	}
	a.session = reply.GetSession()
	return reply.GetPlanes(), nil
}

// failed adds the host to an error.
func (a *remote) failed(err error) error {
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		err = errors.New(s.Message())
		if c := s.Code(); c == codes.Unavailable || c == codes.DeadlineExceeded {
			err = fmt.Errorf("%w: %w", driver.ErrNoAnswer, err)
		}
	}
	return fmt.Errorf("%w: %s at %s: %w", ErrAgent, a.host.Name, a.host.Address, err)
}

// State implements [kernel.Panel].
func (b *Board) State() *kernel.State { return b.state }

// Map implements [kernel.Panel]. It sends nothing: the board reads the maps of its agents after every change, and every
// second.
func (b *Board) Map(plane int) (circuit.Permutation, error) {
	if plane < 0 || plane >= len(b.maps) {
		return nil, fmt.Errorf("kernel: fabric %s: plane %d is outside 0..%d", b.state.Name, plane, len(b.maps)-1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.err[plane]; err != nil {
		return nil, fmt.Errorf("kernel: fabric %s: plane %s: %w", b.state.Name, b.state.Planes[plane].Name, err)
	}
	return b.maps[plane].Clone(), nil
}

// Install implements [kernel.Panel]. It removes the old circuits on all hosts before it adds a new one on any. After an
// error, the plane's map is unknown until the next reading; if a host has not answered, so are all maps.
func (b *Board) Install(plane int, to circuit.Permutation) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	return b.install(plane, to)
}

// install is Install by a caller that holds writing.
func (b *Board) install(plane int, to circuit.Permutation) error {
	old, err := b.Map(plane)
	if err != nil {
		return err
	}
	fail := func(err error) error {
		return fmt.Errorf("kernel: fabric %s: plane %s: %w", b.state.Name, b.state.Planes[plane].Name, err)
	}
	if err := to.Validate(b.state.Ranks); err != nil {
		return fail(fmt.Errorf("map %w", err))
	}
	if old.Equal(to) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	common := to.Clone()
	for r := range common {
		if old[r] != to[r] {
			common[r] = circuit.Dark
		}
	}
	if !common.Equal(old) && !common.Equal(to) {
		err = b.everywhere(ctx, plane, common)
	}
	if err == nil {
		err = b.everywhere(ctx, plane, to)
	}
	if errors.Is(err, driver.ErrNoAnswer) {
		b.lose(err) // else each plane would wait for the host, and ranks would leave the controller
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.maps[plane], b.err[plane] = to.Clone(), err; err != nil {
		return fail(err)
	}
	return nil
}

// lose records why the maps of all planes are unknown.
func (b *Board) lose(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for j := range b.err {
		b.err[j] = err
	}
}

// everywhere installs a map on every host, and returns when all have read it back.
func (b *Board) everywhere(ctx context.Context, plane int, to circuit.Permutation) error {
	return b.each(func(a *remote) error {
		reply, err := a.client.Install(ctx, &agentpb.InstallRequest{Session: a.session, Plane: uint32(plane),
			To: encodeMap(to)})
		if err == nil && !decodeMap(reply.GetTo()).Equal(to) {
			err = errors.New("it reads back another map than it was given")
		}
		return err
	})
}

// each calls ask for all agents concurrently.
func (b *Board) each(ask func(*remote) error) error {
	errs := make([]error, len(b.agents))
	var all sync.WaitGroup
	for i, a := range b.agents {
		all.Go(func() {
			if err := ask(a); err != nil {
				errs[i] = a.failed(err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// watch reads the maps of the hosts. It notices a host that does not answer, and circuits that another writer has
// changed.
func (b *Board) watch(ctx context.Context) {
	for tick := time.NewTicker(lookEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			b.look(ctx)
		}
	}
}

func (b *Board) look(ctx context.Context) {
	b.writing.Lock()
	defer b.writing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	replies := make([]*agentpb.LookReply, len(b.agents))
	at := make(map[*remote]int, len(b.agents))
	for i, a := range b.agents {
		at[a] = i
	}
	err := b.each(func(a *remote) error {
		reply, err := a.client.Look(ctx, &agentpb.LookRequest{})
		switch {
		case err != nil:
			return err
		case reply.GetSession() != a.session:
			return errors.New("another controller drives the circuits, or the agent was started again: start this " +
				"controller again")
		case len(reply.GetPlanes()) != len(b.maps):
			return fmt.Errorf("it has %d planes", len(reply.GetPlanes()))
		}
		replies[at[a]] = reply
		return nil
	})
	if err != nil {
		b.lose(err)
		return
	}
	for i, reply := range replies {
		b.seen(i == 0, reply.GetPlanes())
	}
}

// seen records the maps of one host. The other hosts must have the maps of the first.
func (b *Board) seen(first bool, planes []*agentpb.Map) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for j, p := range planes {
		m := decodeMap(p.GetTo())
		switch {
		case m.Validate(b.state.Ranks) != nil:
			b.err[j] = fmt.Errorf("%w: %v is no map of %d ranks", ErrAgent, m, b.state.Ranks)
		case first:
			b.maps[j], b.err[j] = m, nil
		case b.err[j] == nil && !m.Equal(b.maps[j]):
			b.err[j] = fmt.Errorf("%w: the hosts have different maps, %v and %v", ErrAgent, b.maps[j], m)
		}
	}
}

// Close ends the session. The circuits stay as they are.
func (b *Board) Close() error {
	b.stop()
	b.done.Wait()
	b.hangUp()
	return nil
}

func (b *Board) hangUp() {
	for _, a := range b.agents {
		_ = a.conn.Close() // nothing is under way
	}
}
