package gnmi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/gate"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/ocsctl/internal/mtls"
)

// Limits of the server.
const (
	maxConnections = 32
	maxStreams     = 64
	maxMessage     = 4 << 20
	helloTime      = 5 * time.Second
	aliveTime      = 30 * time.Second // idle time before a client is pinged
	idleTime       = 10 * time.Minute
)

// Options of [Serve].
type Options struct {
	Dialect string // a name of dialect.Names, "" the first
	// TLS must require client certificates. nil: only this host is served.
	TLS *tls.Config
	// AcceptInvalid accepts circuits that cannot be made as configuration and reports them as INVALID, as the OCP draft
	// allows. Otherwise the whole Set is refused.
	AcceptInvalid bool
}

// ErrExposed reports a listener that other hosts can reach without client certificates.
var ErrExposed = errors.New("gnmi: off this host clients need certificates")

// Serve serves clients that connect to l until the context ends, and closes l.
func Serve(ctx context.Context, l net.Listener, d *device.Device, o Options) error {
	s, opts, err := configure(l, d, o)
	if err != nil {
		l.Close()
		return err
	}
	g := grpc.NewServer(opts...)
	gpb.RegisterGNMIServer(g, s)
	defer d.Watch(func(e device.Event) {
		if e.Kind == device.Rebooted {
			s.rebooted.Store(true)
		}
	})()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		g.Stop()
		close(stopped)
	})
	err = g.Serve(gate.New(l, d, maxConnections))
	if ctx.Err() != nil {
		err = nil
	}
	cancel()
	<-stopped
	if err != nil {
		return fmt.Errorf("gnmi: %w", err)
	}
	return nil
}

func configure(l net.Listener, d *device.Device, o Options) (*server, []grpc.ServerOption, error) {
	words, err := dialect.Lookup(o.Dialect)
	if err != nil {
		return nil, nil, err
	}
	opts := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxMessage), grpc.ConnectionTimeout(helloTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, Time: aliveTime, Timeout: helloTime}),
	}
	if o.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	if (o.TLS == nil || o.TLS.ClientAuth != tls.RequireAndVerifyClientCert) && !mtls.Loopback(l.Addr().String()) {
		return nil, nil, fmt.Errorf("%w: %s", ErrExposed, l.Addr())
	}
	s := &server{d: d, words: words, o: o, names: make(map[pair]string), invalid: make(map[string]invalid),
		masters: make(map[string]election), edited: make(chan struct{})}
	s.label()
	return s, opts, nil
}

// server implements gNMI.
type server struct {
	gpb.UnimplementedGNMIServer
	d        *device.Device
	words    *dialect.Dialect
	o        Options
	rebooted atomic.Bool // since invalid was filled

	in, out map[string]int // ports by label

	mu      sync.Mutex
	names   map[pair]string // ids that clients gave to circuits
	invalid map[string]invalid
	masters map[string]election // by role
	edited  chan struct{}       // closed at the next Set
}

// changed returns channels of which one is closed when the tree changes, by the hardware or by a Set.
// Take them before reading the tree.
func (s *server) changed() (hardware, edited <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.Changed(), s.edited
}

// answer returns when an answer may be sent. If a fault loses the answer, it waits until the client gives up.
func (s *server) answer(ctx context.Context) error {
	if !s.d.DropReply() {
		return nil
	}
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// up refuses requests while the switch starts.
func (s *server) up() error {
	if s.d.Up() {
		return nil
	}
	return status.Error(codes.Unavailable, device.ErrDown.Error())
}

// Capabilities implements gNMI.
func (s *server) Capabilities(ctx context.Context, _ *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	if err := s.up(); err != nil {
		return nil, err
	}
	r := &gpb.CapabilityResponse{
		GNMIVersion:        "0.10.0",
		SupportedEncodings: []gpb.Encoding{gpb.Encoding_JSON_IETF, gpb.Encoding_JSON, gpb.Encoding_PROTO},
	}
	for _, name := range s.words.Models {
		r.SupportedModels = append(r.SupportedModels, &gpb.ModelData{Name: name})
	}
	return r, s.answer(ctx)
}

// Get implements gNMI.
func (s *server) Get(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	if err := s.up(); err != nil {
		return nil, err
	}
	if err := s.oneRoot(req.GetPrefix(), req.GetPath()); err != nil {
		return nil, err
	}
	leaves := s.leaves()
	r := &gpb.GetResponse{}
	for _, p := range req.GetPath() {
		at, err := s.words.Join(req.GetPrefix(), p)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		updates, err := s.get(at, p, ofType(leaves, req.GetType()), req.GetEncoding())
		if err != nil {
			return nil, err
		}
		r.Notification = append(r.Notification, &gpb.Notification{Timestamp: time.Now().UnixNano(), Prefix: req.GetPrefix(),
			Update: updates})
	}
	return r, s.answer(ctx)
}

// oneRoot refuses requests with paths that the dialect does not allow together.
func (s *server) oneRoot(prefix *gpb.Path, paths []*gpb.Path) error {
	if len(prefix.GetElem()) == 0 && len(s.words.Roots(paths)) > 1 {
		return status.Error(codes.Unimplemented, "target conflict in path")
	}
	return nil
}

// get returns the data at a path: one JSON value or, if the path has wildcards or the client wants no JSON, single
// leaves.
func (s *server) get(at []*gpb.PathElem, path *gpb.Path, leaves []dialect.Leaf, e gpb.Encoding) ([]*gpb.Update, error) {
	var found []dialect.Leaf
	many := e == gpb.Encoding_PROTO || dialect.Wild(at)
	for _, l := range leaves {
		if dialect.Within(at, l.Elems) {
			found = append(found, l)
			many = many || keyless(at, l.Elems)
		}
	}
	switch {
	case e != gpb.Encoding_PROTO && e != gpb.Encoding_JSON && e != gpb.Encoding_JSON_IETF:
		return nil, status.Errorf(codes.Unimplemented, "encoding %v", e)
	case len(found) == 0 && s.words.Names(at):
		return nil, status.Errorf(codes.NotFound, "%s: no such entry", dialect.String(at))
	case len(found) == 0 && !many && !s.words.Known(at):
		return nil, status.Errorf(codes.NotFound, "%s: no such path", dialect.String(at))
	case many:
		return updates(found, s.words.Origin), nil
	}
	v, err := s.words.JSON(len(at), found)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if e == gpb.Encoding_JSON {
		v = &gpb.TypedValue{Value: &gpb.TypedValue_JsonVal{JsonVal: v.GetJsonIetfVal()}}
	}
	return []*gpb.Update{{Path: path, Val: v}}, nil
}

// keyless reports whether a path names a list without the keys of an entry.
func keyless(path, leaf []*gpb.PathElem) bool {
	for i, e := range path {
		if len(e.GetKey()) < len(leaf[i].GetKey()) {
			return true
		}
	}
	return false
}
