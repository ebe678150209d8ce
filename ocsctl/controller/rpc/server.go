package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/ocsctl/internal/admission"
	"lightpath/ocsctl/internal/mtls"
)

// ServerOptions describe the planes of a server and its clients.
type ServerOptions struct {
	// Controller returns the controller in charge. While this one stands by, it returns nil and a text that names the
	// one in charge; see lead.Runner.Standby. It is called for every stream and call, from any goroutine.
	Controller func() (c controller.Controller, standby string)
	// History answers what operators ask about the past; nil: there is none.
	History controller.History

	Ports     int
	Planes    []ocsctl.PlaneInfo
	DataPlane string // an ocsctl.Data constant
	Name      string // of this controller
	Version   string // of its software; see ocsctl.CheckVersions

	// CA, Cert and Key are files: clients must have certificates of CA. Required off loopback.
	CA, Cert, Key string

	// Linger is how long a rank whose stream broke without a goodbye keeps its place, for it to come
	// back; 0: half a second.
	Linger time.Duration
	// Patience is how long a peer may take for its handshake and its Hello; 0: 5 s.
	Patience time.Duration
	// Stall is how long a rank may take nothing of what is sent to it before it is cut off; 0: 10 s.
	Stall time.Duration
	// Log gets refused peers and broken streams; nil discards them.
	Log *slog.Logger
}

// Server serves ranks and operators until it is closed.
type Server struct {
	o    ServerOptions
	grpc *grpc.Server
	done chan error // what Serve returned
	// refused logs connections that were turned away.
	refused *admission.Refusals

	mu       sync.Mutex
	sessions map[sessionID]*session
	closing  bool
}

// Serve serves on l, which it owns from then on; it returns at once. An address off loopback
// without certificates is refused, before anything is accepted.
func Serve(l net.Listener, o ServerOptions) (*Server, error) {
	s, err := newServer(l.Addr(), o)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	// A rank may have two connections, when one has broken and its end is not known yet; all ranks may be
	// on one host.
	pending := admission.Options{Pending: 2*o.Ports + 256, PerSource: o.Ports + 64, Refused: s.refused}
	l = admission.Listen(netutil.LimitListener(l, 2*pending.Pending), pending)
	go func() { s.done <- s.grpc.Serve(l) }()
	return s, nil
}

func newServer(address net.Addr, o ServerOptions) (*Server, error) {
	switch {
	case o.Controller == nil:
		return nil, errors.New("rpc: options: no controller")
	case o.Ports < 1 || o.Ports > controller.MaxPorts:
		return nil, fmt.Errorf("rpc: options: ports: %d, want 1..%d", o.Ports, controller.MaxPorts)
	case len(o.Planes) < 1 || len(o.Planes) > controller.MaxPlanes:
		return nil, fmt.Errorf("rpc: options: planes: %d, want 1..%d", len(o.Planes), controller.MaxPlanes)
	}
	o.Linger, o.Patience, o.Stall = cmp.Or(o.Linger, defaultLinger), cmp.Or(o.Patience, defaultPatience),
		cmp.Or(o.Stall, defaultStall)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	refused := admission.NewRefusals(o.Log)
	creds, err := serverCredentials(address.String(), &o, refused)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, done: make(chan error, 1), refused: refused, sessions: map[sessionID]*session{}}
	s.grpc = grpc.NewServer(
		grpc.Creds(creds),
		grpc.ConnectionTimeout(o.Patience),
		grpc.MaxRecvMsgSize(maxUp),
		grpc.MaxSendMsgSize(maxDown),
		grpc.MaxHeaderListSize(16<<10),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.MaxConcurrentStreams(16),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout,
			MaxConnectionIdle: idleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.guardCall),
		grpc.ChainStreamInterceptor(s.guardStream),
	)
	ocspb.RegisterRanksServer(s.grpc, &ranks{server: s})
	ocspb.RegisterOperatorsServer(s.grpc, &operators{server: s})
	return s, nil
}

func serverCredentials(address string, o *ServerOptions,
	refused *admission.Refusals) (credentials.TransportCredentials, error) {
	if o.CA == "" && o.Cert == "" && o.Key == "" {
		if !mtls.Loopback(address) {
			return nil, fmt.Errorf("rpc: listen %s: not on this host alone: ca, cert and key are required", address)
		}
		return &gate{TransportCredentials: insecure.NewCredentials(), refused: refused}, nil
	}
	config, err := mtls.Server(o.CA, o.Cert, o.Key)
	if err != nil {
		return nil, fmt.Errorf("rpc: listen %s: %w", address, err)
	}
	return &gate{TransportCredentials: credentials.NewTLS(config), refused: refused}, nil
}

// Done returns a channel that yields why the server ended by itself, or nil after Close.
func (s *Server) Done() <-chan error { return s.done }

// Close tells every rank that this controller stops, so that they look for the next one, and
// ends the server. Ranks keep their places at the core, which its own Close ends.
func (s *Server) Close() {
	s.mu.Lock()
	s.closing = true
	all := make([]*session, 0, len(s.sessions))
	for _, x := range s.sessions {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		x.Closed(fmt.Errorf("controller %s: %w", s.o.Name, controller.ErrStopped))
	}
	ended := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Second):
		s.grpc.Stop()
		<-ended
	}
}

// inCharge returns the controller, or the error of a standby.
func (s *Server) inCharge() (controller.Controller, error) {
	c, standby := s.o.Controller()
	if c == nil {
		return nil, &standbyError{s.o.Name, standby}
	}
	return c, nil
}

// guardCall is every unary call: who may make it, and how its errors travel.
func (s *Server) guardCall(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	admission.Of(connection(ctx)).Admit()
	if err := allowed(ctx, info.FullMethod); err != nil {
		return nil, toStatus(err)
	}
	reply, err := handle(ctx, request)
	return reply, toStatus(err)
}

// guardStream is the same for streams.
func (s *Server) guardStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handle grpc.StreamHandler) error {
	admission.Of(connection(stream.Context())).Admit()
	if err := allowed(stream.Context(), info.FullMethod); err != nil {
		return toStatus(err)
	}
	return toStatus(handle(service, stream))
}
