package rpc

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"lightpath/ocsctl/internal/admission"
)

// alertTimeout is how long a refused peer may take to read the reason.
const alertTimeout = 500 * time.Millisecond

// gate is the server's side of a handshake: it logs peers that were turned away, and keeps the
// connection at hand, so that a peer that does not read can be cut off.
type gate struct {
	credentials.TransportCredentials
	refused *admission.Refusals
}

// peerInfo describes a peer after its handshake.
type peerInfo struct {
	credentials.AuthInfo
	conn net.Conn
}

func (g *gate) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	trial := &trialConn{Conn: raw}
	conn, info, err := g.TransportCredentials.ServerHandshake(trial)
	if err != nil {
		g.refused.Note(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	trial.passed = true
	return conn, peerInfo{info, raw}, nil
}

// trialConn is a connection whose peer may be turned away.
type trialConn struct {
	net.Conn
	passed bool
}

// Close first reads the pending data of a refused peer. Otherwise closing resets the connection, and the reset
// overtakes the alert with the reason.
func (c *trialConn) Close() error {
	if !c.passed {
		_ = c.SetReadDeadline(time.Now().Add(alertTimeout))
		_, _ = io.Copy(io.Discard, io.LimitReader(c, maxUp))
	}
	return c.Conn.Close()
}

func (g *gate) Clone() credentials.TransportCredentials {
	return &gate{g.TransportCredentials.Clone(), g.refused}
}

// certificate returns the peer's, verified; nil without TLS.
func certificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(peerInfo)
	if tls, ok := info.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.VerifiedChains) > 0 {
		return tls.State.VerifiedChains[0][0]
	}
	return nil
}

// connection returns that of a stream or call; nil where there is none, as in tests.
func connection(ctx context.Context) net.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(peerInfo); ok {
			return info.conn
		}
	}
	return nil
}

// hangUp closes the connection of a stream or call.
func hangUp(ctx context.Context) {
	if c := connection(ctx); c != nil {
		_ = c.Close()
	}
}

// who names a peer to operators: "grpc 10.0.0.7:5123 CN=node7".
func who(ctx context.Context) string {
	var b strings.Builder
	b.WriteString("grpc")
	if p, ok := peer.FromContext(ctx); ok {
		b.WriteString(" " + p.Addr.String())
	}
	if name := identity(ctx); name != "" {
		b.WriteString(" " + name)
	}
	return b.String()
}

// identity is who the certificate says that the peer is; "" without TLS.
func identity(ctx context.Context) string {
	c := certificate(ctx)
	switch {
	case c == nil:
		return ""
	case c.Subject.CommonName != "":
		return "CN=" + oneLine(c.Subject.CommonName)
	case len(c.DNSNames) > 0:
		return "DNS=" + oneLine(c.DNSNames[0])
	}
	return "serial " + c.SerialNumber.String()
}
