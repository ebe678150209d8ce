package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"lightpath/ocsctl/internal/mtls"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/kernel/agent/agentpb"
	"lightpath/plans/circuit"
)

// protocol is the version of the protocol between controller and agents.
const protocol = 1

// TLS names the files of one end. They may be missing if both ends are on one host.
type TLS struct{ CA, Cert, Key string }

// Server is the agent of one host.
type Server struct {
	agentpb.UnimplementedCircuitsServer

	board *kernel.Board
	grpc  *grpc.Server
	done  chan error

	mu      sync.Mutex
	session uint64 // that may install; 0: none
}

// Serve lets controllers drive a board, which the caller closes after the server. Off loopback, it requires TLS.
func Serve(l net.Listener, board *kernel.Board, t TLS) (*Server, error) {
	s := &Server{board: board, done: make(chan error, 1)}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.ConnectionTimeout(patience), grpc.UnaryInterceptor(authorize),
	}
	switch {
	case t != TLS{}:
		config, err := mtls.Server(t.CA, t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	case !mtls.Loopback(l.Addr().String()):
		return nil, fmt.Errorf("agent: listen %s: off loopback it needs a CA, a certificate and a key", l.Addr())
	}
	s.grpc = grpc.NewServer(options...)
	agentpb.RegisterCircuitsServer(s.grpc, s)
	go func() { s.done <- s.grpc.Serve(l) }()
	return s, nil
}

// maxMessage is the size in bytes of a message with the maps of the largest fabric.
const maxMessage = 4 << 20

// Done receives the error with which the server has ended.
func (s *Server) Done() <-chan error { return s.done }

// Close ends the server; circuits stay as they are.
func (s *Server) Close() { s.grpc.Stop() }

// authorize refuses certificates of a role: a controller's has none, or that of an administrator of all planes.
func authorize(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.PermissionDenied, "the peer is unknown")
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		c := info.State.PeerCertificates[0]
		if mtls.RoleOf(c) != mtls.RoleAdmin || mtls.PlanesOf(c) != nil {
			return nil, status.Errorf(codes.PermissionDenied,
				"%s is no controller, but of %v: circuits are the controller's to move", c.Subject.CommonName,
				c.Subject.OrganizationalUnit)
		}
	}
	return next(ctx, request)
}

// Open implements the service.
func (s *Server) Open(_ context.Context, r *agentpb.OpenRequest) (*agentpb.OpenReply, error) {
	state := s.board.State()
	switch {
	case r.GetProtocol() != protocol:
		return nil, status.Errorf(codes.FailedPrecondition, "the controller speaks version %d to agents, this one %d",
			r.GetProtocol(), protocol)
	case r.GetDigest() != state.Digest:
		return nil, status.Errorf(codes.FailedPrecondition,
			"fabric %s was built on host %s from another file (%.12s) than the controller's (%.12s)", state.Name, state.Host,
			state.Digest, r.GetDigest())
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	planes, err := s.maps()
	if err != nil {
		return nil, err
	}
	s.session = binary.NativeEndian.Uint64(b[:]) | 1 // never none
	return &agentpb.OpenReply{Session: s.session, Host: state.Host, First: uint32(state.First), Count: uint32(state.Count),
		Planes: planes}, nil
}

// Install implements the service.
func (s *Server) Install(ctx context.Context, r *agentpb.InstallRequest) (*agentpb.InstallReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.GetSession() != s.session {
		return nil, status.Error(codes.Aborted, "another controller drives the circuits, or the agent was started again")
	}
	if err := ctx.Err(); err != nil { // the controller has given up, and may have installed another map since
		return nil, status.FromContextError(err).Err()
	}
	plane := int(r.GetPlane())
	if err := s.board.Install(plane, decodeMap(r.GetTo())); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	m, err := s.board.Map(plane)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &agentpb.InstallReply{To: encodeMap(m)}, nil
}

// Look implements the service.
func (s *Server) Look(context.Context, *agentpb.LookRequest) (*agentpb.LookReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	planes, err := s.maps()
	return &agentpb.LookReply{Session: s.session, Planes: planes}, err
}

// maps reads the maps of all planes. The caller holds the lock.
func (s *Server) maps() ([]*agentpb.Map, error) {
	var all []*agentpb.Map
	for j := range s.board.State().Planes {
		m, err := s.board.Map(j)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		all = append(all, &agentpb.Map{To: encodeMap(m)})
	}
	return all, nil
}

func encodeMap(m circuit.Permutation) []int32 {
	to := make([]int32, len(m))
	for r, s := range m {
		to[r] = int32(s)
	}
	return to
}

// decodeMap does not check the map, which the board does.
func decodeMap(to []int32) circuit.Permutation {
	m := make(circuit.Permutation, len(to))
	for r, s := range to {
		m[r] = int(s)
	}
	return m
}

// patience is the time limit of an agent's answer. Without an answer, the planes go out of service. A busy host may
// stand still for some seconds. The controller waits for answers, and ranks leave it if it says nothing for 6 s.
const patience = 5 * time.Second

// ErrAgent reports a missing or wrong answer of a host's agent.
var ErrAgent = errors.New("agent of a host")
