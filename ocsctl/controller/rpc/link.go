package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/ocsctl/internal/mtls"
)

// endpoint is a place where a controller may be.
type endpoint struct {
	address string
	creds   credentials.TransportCredentials
	last    error // of the latest attempt
}

// newEndpoints checks addresses and reads the files of the options.
func newEndpoints(addresses []string, o *Options) ([]*endpoint, error) {
	if len(addresses) == 0 {
		return nil, errors.New("rpc: no endpoint of a controller")
	}
	var config *tls.Config
	if o.CA != "" || o.Cert != "" || o.Key != "" {
		var err error
		if config, err = mtls.Client(o.CA, o.Cert, o.Key); err != nil {
			return nil, fmt.Errorf("rpc: %w", err)
		}
	}
	var all []*endpoint
	for _, a := range addresses {
		e := &endpoint{address: a, creds: insecure.NewCredentials()}
		host, port, err := net.SplitHostPort(a)
		switch {
		case err != nil || host == "" || port == "" || strings.Contains(a, "/"):
			return nil, fmt.Errorf("rpc: endpoint %q: not host:port", a)
		case config != nil:
			e.creds = credentials.NewTLS(config)
		case !mtls.Loopback(a):
			return nil, fmt.Errorf("rpc: endpoint %s: not on this host: ca, cert and key are required", a)
		}
		all = append(all, e)
	}
	return all, nil
}

// dial makes a connection to be: it connects with its first call.
func (e *endpoint) dial() (*grpc.ClientConn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second,
		Count: 4}}
	return grpc.NewClient("passthrough:///"+e.address,
		grpc.WithTransportCredentials(e.creds),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxDown), grpc.MaxCallSendMsgSize(maxUp)),
	)
}

// link is one stream to a controller.
type link struct {
	endpoint *endpoint
	conn     *grpc.ClientConn
	stream   grpc.BidiStreamingClient[ocspb.Up, ocspb.Down]
	cancel   context.CancelCauseFunc
	ctx      context.Context
	silence  *time.Timer // ends the stream of a controller that says nothing for
	patience time.Duration
	down     ocspb.Down // reused by the receiver
}

var (
	errSilent = errors.New("nothing heard") // a controller has stopped to say that it lives
	errSlow   = errors.New("no welcome")    // a controller, or its host, is dead or busy
)

// open says hello to the controller at an endpoint and returns its welcome.
func (e *endpoint) open(ctx context.Context, hello *ocspb.Hello, silence time.Duration) (*link, *ocspb.Welcome, error) {
	conn, err := e.dial()
	if err != nil {
		return nil, nil, err
	}
	l := &link{endpoint: e, conn: conn, patience: silence}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	limit := time.AfterFunc(attemptTimeout, func() { l.cancel(fmt.Errorf("%w in %v", errSlow, attemptTimeout)) })
	defer limit.Stop()
	w, err := l.greet(hello)
	if err != nil {
		l.close()
		return nil, nil, err
	}
	l.silence = time.AfterFunc(silence, func() { l.cancel(fmt.Errorf("%w for %v", errSilent, silence)) })
	return l, w, nil
}

func (l *link) greet(hello *ocspb.Hello) (*ocspb.Welcome, error) {
	var err error
	if l.stream, err = ocspb.NewRanksClient(l.conn).Attach(l.ctx); err != nil {
		return nil, l.explain(err)
	}
	// A stream that is refused at once makes Send fail with EOF; the reason comes with Recv.
	if err := l.stream.Send(&ocspb.Up{Message: &ocspb.Up_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, l.explain(err)
	}
	down, err := l.recv()
	if err != nil {
		return nil, err
	}
	w := down.GetWelcome()
	switch {
	case w == nil:
		return nil, fmt.Errorf("no welcome: %w", ErrProtocol)
	case w.GetProtocol() != ProtocolVersion:
		return nil, fmt.Errorf("the controller speaks protocol version %d, this library %d: %w", w.GetProtocol(),
			ProtocolVersion, ocsctl.ErrVersion)
	}
	return w, nil
}

// recv returns the next message, valid until the next call.
func (l *link) recv() (*ocspb.Down, error) {
	if err := l.stream.RecvMsg(&l.down); err != nil {
		return nil, l.explain(err)
	}
	if l.silence != nil {
		l.silence.Reset(l.patience)
	}
	return &l.down, nil
}

// explain says why a stream is over, in one line.
func (l *link) explain(err error) error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return err
	}
	return tidy(fromStatus(err))
}

// tidy takes gRPC's wrapping off the reason why there is no connection.
func tidy(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	inner, ok := strings.CutPrefix(text, `connection error: desc = "`)
	if !ok {
		return err
	}
	inner = strings.TrimPrefix(strings.TrimSuffix(inner, `"`), "transport: ")
	inner = strings.TrimPrefix(inner, "Error while dialing: ")
	inner = strings.ReplaceAll(inner, `\"`, `"`)
	if strings.Contains(inner, "error reading server preface") {
		inner += "; do both ends agree on TLS?"
	}
	return &remoteError{inner, []error{err}}
}

func (l *link) close() {
	if l.silence != nil {
		l.silence.Stop()
	}
	l.cancel(errClosed)
	_ = l.conn.Close()
}
