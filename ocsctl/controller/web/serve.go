package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"lightpath/ocsctl/internal/admission"
	"lightpath/ocsctl/internal/mtls"
)

// ErrPlain reports an endpoint that other hosts could reach without certificates.
var ErrPlain = errors.New("web: off loopback, certificates are required")

// Endpoint describes the address of the page and the certificates of its readers.
type Endpoint struct {
	Address       string       // host:port; port 0 is any
	CA, Cert, Key string       // files; all or none
	Log           *slog.Logger // of refused connections; nil: nothing is logged
}

// Listen opens the endpoint. Off loopback, clients must show a certificate of the authority, as for gRPC; on loopback,
// only if files are given. The error is ErrPlain, or names the file or address.
func Listen(e Endpoint) (net.Listener, error) {
	var config *tls.Config
	if e.CA != "" || e.Cert != "" || e.Key != "" {
		var err error
		if config, err = mtls.Server(e.CA, e.Cert, e.Key); err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
		config.NextProtos = []string{"h2", "http/1.1"}
	} else if !mtls.Loopback(e.Address) {
		return nil, fmt.Errorf("%w: %s", ErrPlain, e.Address)
	}
	l, err := net.Listen("tcp", e.Address)
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	l = admission.Listen(netutil.LimitListener(l, maxConnections), admission.Options{
		Pending: maxPending, PerSource: maxPerSource, Refused: admission.NewRefusals(e.Log),
	})
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return l, nil
}

// Limits of connections. A pending connection has no request in progress.
const (
	maxConnections = 256
	maxPending     = 128
	maxPerSource   = 64
	headerTimeout  = 5 * time.Second
	idleTimeout    = time.Minute
	maxHeader      = 16 << 10
)

// Serve answers requests, and follows the controller, until ctx is done. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var handler http.Handler = s
	if mtls.Loopback(l.Addr().String()) {
		handler = localOnly(s)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: s.headers, ReadTimeout: s.headers, WriteTimeout: 2 * requestTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:  log.New(io.Discard, "", 0), // errors of unknown clients are not logged
		ConnState: follow,
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.Run(ctx) // ends the streams when it ends
		shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), headerTimeout)
		defer cancel()
		if server.Shutdown(shut) != nil {
			_ = server.Close() // closes the remaining connections
		}
	}()
	err := server.Serve(l)
	cancel()
	<-followed
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("web: %w", err)
}

// follow tells the listener which connections have a request in progress.
func follow(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive: // the header of a request has arrived
		admission.Of(c).Admit()
	case http.StateIdle:
		admission.Of(c).Wait()
	}
}

// localOnly refuses requests for names of other hosts. Otherwise a page of another site could resolve its own name to
// this address, and read data through a browser on this host (DNS rebinding).
func localOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if _, _, err := net.SplitHostPort(host); err != nil { // it has no port
			host = net.JoinHostPort(strings.Trim(host, "[]"), "0")
		}
		if !mtls.Loopback(host) {
			http.Error(w, "this address is for this host alone", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
