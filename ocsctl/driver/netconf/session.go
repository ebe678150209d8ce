package netconf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"

	"lightpath/internal/brief"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf/wire"
)

// maxMessage bounds a message of a switch, in bytes: the map of 4096 ports has about 400 KB.
const maxMessage = 8 << 20

// afterHello keeps the first request apart from the hello. Nothing acknowledges a hello, and a
// server that gets both at once may overlook the request (netconfd 2.13 does).
const afterHello = 20 * time.Millisecond

// Dial opens a byte stream to a NETCONF server that has authenticated both sides.
type Dial func(ctx context.Context) (io.ReadWriteCloser, error)

// errLost: a request was sent, and its answer did not arrive.
var errLost = errors.New("no answer")

// session is one NETCONF session, for one goroutine at a time. A request without an answer closes it, so that a late
// answer cannot belong to another request.
type session struct {
	conn   io.Closer
	framer *wire.Framer
	peer   wire.Hello
	next   uint64
	broken bool

	timeout time.Duration // of one request
}

// dial opens a session and exchanges hellos.
func dial(ctx context.Context, open Dial, timeout time.Duration) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := open(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, framer: wire.NewFramer(conn, maxMessage), timeout: timeout}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := s.greet(); err != nil {
		conn.Close()
		return nil, bounded(ctx, fmt.Errorf("hello: %w", protocol(err)))
	}
	return s, nil
}

// greet sends a hello and reads the switch's, at the same time: neither side waits.
func (s *session) greet() error {
	sent := make(chan error, 1)
	hello := wire.Hello{Capabilities: []string{wire.Base10, wire.Base11}}
	go func() { sent <- s.framer.Write(hello.Element().Append(nil)) }()
	msg, err := s.framer.Read()
	if err != nil {
		s.conn.Close()
		<-sent //nolint:errcheck // reading failed first
		return err
	}
	if err := <-sent; err != nil {
		return err
	}
	if s.peer, err = wire.ParseHello(msg); err != nil {
		return err
	}
	if s.peer.Session == 0 {
		return fmt.Errorf("%w: a hello without session-id", wire.ErrMalformed)
	}
	if s.peer.Has(wire.Base11) {
		s.framer.Chunked()
	}
	time.Sleep(afterHello)
	return nil
}

// call sends a request and returns its answer. An rpc-error is a *wire.Error that wraps
// driver.ErrRefused; The error wraps errLost if the switch may have executed the request.
func (s *session) call(ctx context.Context, op *wire.Element) (*wire.Element, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { s.conn.Close() })()
	s.next++
	id := strconv.FormatUint(s.next, 10)
	rpc := wire.New(wire.BaseNS, "rpc", op)
	rpc.SetAttr("message-id", id)
	reply, err := s.exchange(rpc, id)
	if err == nil && reply.Data == nil && len(reply.Errors) == 0 && op.Name.Local == "get" {
		err = fmt.Errorf("%w: a reply without data", wire.ErrMalformed) // not an empty map
	}
	if err != nil {
		s.close()
		return nil, bounded(ctx, fmt.Errorf("%s: %w: %w", op.Name.Local, errLost, protocol(err)))
	}
	if len(reply.Errors) > 0 {
		return nil, fmt.Errorf("%s: %w: %w", op.Name.Local, driver.ErrRefused, reply.Errors[0])
	}
	return reply.Data, nil
}

func (s *session) exchange(rpc *wire.Element, id string) (wire.Reply, error) {
	if s.broken {
		return wire.Reply{}, net.ErrClosed
	}
	if err := s.framer.Write(rpc.Append(nil)); err != nil {
		return wire.Reply{}, err
	}
	msg, err := s.framer.Read()
	if err != nil {
		return wire.Reply{}, err
	}
	reply, err := wire.ParseReply(msg)
	if err != nil {
		return wire.Reply{}, err
	}
	// A peer that could not parse the message answers without an id.
	if reply.ID != id && (reply.ID != "" || len(reply.Errors) == 0) {
		return wire.Reply{}, fmt.Errorf("%w: an answer to %q where %s is asked", wire.ErrMalformed, brief.Line(reply.ID), id)
	}
	return reply, nil
}

func (s *session) close() {
	s.broken = true
	s.conn.Close()
}

// protocol makes an error about malformed bytes wrap driver.ErrProtocol.
func protocol(err error) error {
	if errors.Is(err, wire.ErrMalformed) {
		return fmt.Errorf("%w: %w", driver.ErrProtocol, err)
	}
	return err
}

// bounded returns the context's error if its end closed the stream.
func bounded(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, driver.ErrProtocol) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// stream is the netconf subsystem of an SSH connection.
type stream struct {
	io.Reader
	io.Writer
	client *ssh.Client
}

func (s stream) Close() error { return s.client.Close() }

// dialSSH returns a function that opens the netconf subsystem of a target.
func dialSSH(t driver.Target, cc *ssh.ClientConfig) Dial {
	return func(ctx context.Context) (io.ReadWriteCloser, error) { return connectSSH(ctx, t, cc) }
}

func connectSSH(ctx context.Context, t driver.Target, cc *ssh.ClientConfig) (io.ReadWriteCloser, error) {
	raw, err := t.Connect(ctx, t.Endpoint)
	if err != nil {
		return nil, err
	}
	// From here on, closing the connection ends every blocked call.
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	s, err := subsystem(raw, t.Endpoint, cc)
	if !stop() && err == nil {
		s.Close()
		err = ctx.Err()
	}
	if err != nil {
		raw.Close()
		return nil, bounded(ctx, err)
	}
	return s, nil
}

func subsystem(raw net.Conn, address string, cc *ssh.ClientConfig) (io.ReadWriteCloser, error) {
	conn, channels, requests, err := ssh.NewClientConn(raw, address, cc)
	if err != nil {
		return nil, err
	}
	client := ssh.NewClient(conn, channels, requests)
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	in, err := session.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := session.RequestSubsystem("netconf"); err != nil {
		return nil, fmt.Errorf("subsystem netconf: %w", err)
	}
	return stream{out, in, client}, nil
}
