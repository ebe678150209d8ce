package netconf

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver/netconf/wire"
)

// Limits of clients.
const (
	maxSessions      = 32
	maxMessage       = 8 << 20
	handshakeTimeout = time.Minute
	messageTimeout   = time.Minute // from its first byte to its last, and to receive an answer
	idleTimeout      = 10 * time.Minute
)

// ErrConfig reports an invalid configuration of a server.
var ErrConfig = errors.New("netconf server")

// User may log in by its password or by any of its keys.
type User struct {
	Password string
	Keys     []ssh.PublicKey
}

// String leaves the password out.
func (u User) String() string { return fmt.Sprintf("user with %d keys", len(u.Keys)) }

// Config describes a server.
type Config struct {
	HostKey ssh.Signer // default: a fresh Ed25519 key
	Users   map[string]User
	// Candidate offers a candidate datastore with validation and confirmed commits instead of
	// a writable running datastore.
	Candidate bool
	Mode      device.Mode // of the device's changes; the zero value is Serial
}

// Server serves one device to any number of clients.
type Server struct {
	dev   *device.Device
	cfg   Config
	ssh   *ssh.ServerConfig
	store *store
	stop  func() // ends watching the device

	mu        sync.Mutex
	listeners map[net.Listener]bool
	open      map[uint64]io.Closer // sessions, and connections that have none yet
	next      uint64
	closed    bool
	wg        sync.WaitGroup
}

// New returns a server of a device whose port labels are distinct numbers.
func New(d *device.Device, c Config) (*Server, error) {
	st, err := newStore(d, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.HostKey == nil {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("%w: host key: %w", ErrConfig, err)
		}
		if c.HostKey, err = ssh.NewSignerFromKey(key); err != nil {
			return nil, fmt.Errorf("%w: host key: %w", ErrConfig, err)
		}
	}
	s := &Server{dev: d, cfg: c, store: st, listeners: make(map[net.Listener]bool), open: make(map[uint64]io.Closer)}
	s.ssh = &ssh.ServerConfig{
		MaxAuthTries: 3, ServerVersion: "SSH-2.0-lightpath",
		PasswordCallback: func(m ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			u := c.Users[m.User()]
			if u.Password == "" || subtle.ConstantTimeCompare([]byte(u.Password), password) != 1 {
				return nil, errors.New("denied")
			}
			return nil, nil
		},
		PublicKeyCallback: func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			for _, k := range c.Users[m.User()].Keys {
				if subtle.ConstantTimeCompare(k.Marshal(), key.Marshal()) == 1 {
					return nil, nil
				}
			}
			return nil, errors.New("denied")
		},
	}
	s.ssh.AddHostKey(c.HostKey)
	s.stop = d.Watch(func(e device.Event) {
		if e.Kind == device.Rebooted {
			s.drop()
		}
	})
	return s, nil
}

// HostKey returns the key that clients have to pin.
func (s *Server) HostKey() ssh.PublicKey { return s.cfg.HostKey.PublicKey() }

// Serve accepts SSH connections until Close, and then returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.listeners[l] = true
	s.mu.Unlock()
	for {
		conn, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if delete(s.listeners, l); s.closed {
				return nil
			}
			return err
		}
		s.start(conn, func(id uint64) { s.serveSSH(conn, id) })
	}
}

// Close ends all sessions and Serve calls, and waits for them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	s.stop()
	s.drop()
	s.wg.Wait()
	s.store.close()
	return nil
}

// drop ends all sessions, as a reboot does.
func (s *Server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		c.Close()
	}
}

// start runs f with a session number, unless there are too many sessions or the switch is down. The channel is closed
// when the session has ended.
func (s *Server) start(c io.Closer, f func(id uint64)) <-chan struct{} {
	done := make(chan struct{})
	up := s.dev.Up()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !up || len(s.open) >= maxSessions {
		c.Close()
		close(done)
		return done
	}
	s.next++
	id := s.next
	s.open[id] = c
	s.wg.Go(func() {
		defer close(done)
		defer func() {
			c.Close()
			s.store.ended(id)
			s.mu.Lock()
			delete(s.open, id)
			s.mu.Unlock()
		}()
		f(id)
	})
	return done
}

// kill ends another session.
func (s *Server) kill(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.open[id]
	if ok {
		c.Close()
	}
	return ok
}

// serveSSH serves a connection until its only session ends: the netconf subsystem of its only channel.
func (s *Server) serveSSH(raw net.Conn, id uint64) {
	watchdog := time.AfterFunc(handshakeTimeout, func() { raw.Close() })
	defer watchdog.Stop()
	conn, channels, requests, err := ssh.NewServerConn(raw, s.ssh)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer conn.Close() //nolint:errcheck // the session has ended
	go ssh.DiscardRequests(requests)
	taken := false
	for c := range channels {
		if c.ChannelType() != "session" || taken {
			_ = c.Reject(ssh.Prohibited, "one session") // a client that has gone needs no answer
			continue
		}
		channel, asked, err := c.Accept()
		if err != nil {
			return
		}
		taken = true
		wg.Go(func() {
			started := false
			for r := range asked {
				yes := !started && r.Type == "subsystem" && string(r.Payload) == "\x00\x00\x00\x07netconf"
				_ = r.Reply(yes, nil) // a client that has gone needs no answer
				if !yes {
					continue
				}
				started = true
				watchdog.Stop()
				wg.Go(func() {
					defer raw.Close()
					s.session(subsystem{channel, raw}, id)
				})
			}
		})
	}
}

// subsystem is the stream of a channel; closing it closes the connection.
type subsystem struct {
	io.ReadWriter
	io.Closer
}

// session speaks NETCONF until the stream ends.
func (s *Server) session(stream io.ReadWriteCloser, id uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// The watchdog ends a session that is idle, or whose client is too slow.
	w := &watched{ReadWriteCloser: stream, dog: time.AfterFunc(handshakeTimeout, func() { stream.Close() })}
	defer w.dog.Stop()
	f := wire.NewFramer(w, maxMessage)
	hello := wire.Hello{Capabilities: s.capabilities(), Session: id}
	sent := make(chan error, 1)
	go func() { sent <- f.Write(hello.Element().Append(nil)) }()
	msg, err := f.Read()
	if err != nil {
		stream.Close()
	}
	if <-sent != nil || err != nil {
		return
	}
	peer, err := wire.ParseHello(msg)
	if err != nil || peer.Session != 0 {
		return
	}
	if peer.Has(wire.Base11) {
		f.Chunked()
	}
	for {
		w.await()
		msg, err := f.Read()
		if err != nil {
			return
		}
		if !s.dev.Up() {
			return // the switch has rebooted after the connection was made
		}
		answer, last := s.answer(ctx, id, msg)
		if s.dev.DropReply() {
			continue
		}
		w.dog.Reset(messageTimeout)
		if f.Write(answer.Append(nil)) != nil || last {
			return
		}
	}
}

// watched is a stream whose reader has messageTimeout from the first byte of a message on.
type watched struct {
	io.ReadWriteCloser
	dog     *time.Timer
	waiting bool
}

// await begins to wait for a message.
func (w *watched) await() {
	w.waiting = true
	w.dog.Reset(idleTimeout)
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadWriteCloser.Read(p)
	if n > 0 && w.waiting {
		w.waiting = false
		w.dog.Reset(messageTimeout)
	}
	return n, err
}

func (s *Server) capabilities() []string {
	caps := []string{wire.Base10, wire.Base11}
	if s.cfg.Candidate {
		caps = append(caps, wire.CapCandidate, wire.CapConfirmed, wire.CapValidate, wire.CapRollback)
	} else {
		caps = append(caps, wire.CapRunning)
	}
	return append(caps, wire.OpticalNS+"?module="+wire.OpticalModule+"&revision="+wire.OpticalRev)
}

// answer executes one rpc. last means that the session ends after it.
func (s *Server) answer(ctx context.Context, id uint64, msg []byte) (reply *wire.Element, last bool) {
	reply = wire.New(wire.BaseNS, "rpc-reply")
	rpc, err := wire.Parse(msg)
	if err != nil || rpc.Name.Local != "rpc" || rpc.Name.Space != wire.BaseNS {
		reply.Children = []*wire.Element{rpcError("malformed-message", "", "not an rpc").Element()}
		return reply, true
	}
	reply.Attrs = rpc.Attrs // RFC 6241, section 4.2: all of them come back
	if rpc.Attr("", "message-id") == "" {
		e := rpcError("missing-attribute", "", "message-id")
		e.Type = "rpc"
		reply.Children = []*wire.Element{e.Element()}
		return reply, false
	}
	if len(rpc.Children) != 1 {
		reply.Children = []*wire.Element{rpcError("missing-element", "", "one operation").Element()}
		return reply, false
	}
	op := rpc.Children[0]
	data, err := s.operate(ctx, id, op)
	switch bad := (*wire.Error)(nil); {
	case errors.As(err, &bad):
		reply.Children = []*wire.Element{bad.Element()}
	case err != nil:
		reply.Children = []*wire.Element{rpcError("operation-failed", "", err.Error()).Element()}
	case data != nil:
		reply.Children = []*wire.Element{data}
	default:
		reply.Children = []*wire.Element{wire.New(wire.BaseNS, "ok")}
		last = op.Name.Local == "close-session"
	}
	return reply, last
}

// operate executes one operation. For a nil result, the answer is ok.
func (s *Server) operate(ctx context.Context, id uint64, op *wire.Element) (*wire.Element, error) {
	if op.Name.Space != wire.BaseNS {
		return nil, rpcError("operation-not-supported", "", op.Name.Local)
	}
	st := s.store
	switch op.Name.Local {
	case "get":
		return st.get(op, running, true)
	case "get-config":
		source, err := datastore(op, "source")
		if err != nil {
			return nil, err
		}
		return st.get(op, source, false)
	case "edit-config":
		return nil, st.edit(ctx, id, op)
	case "lock", "unlock":
		target, err := datastore(op, "target")
		if err != nil {
			return nil, err
		}
		if op.Name.Local == "lock" {
			return nil, st.lock(id, target)
		}
		return nil, st.unlock(id, target)
	case "commit":
		return nil, st.commit(ctx, id, op)
	case "cancel-commit":
		return nil, st.cancel(id, op.Value(wire.BaseNS, "persist-id"))
	case "discard-changes":
		return nil, st.discard(id)
	case "validate":
		return nil, st.validate(op)
	case "close-session":
		return nil, nil
	case "kill-session":
		other, err := strconv.ParseUint(op.Value(wire.BaseNS, "session-id"), 10, 32)
		if err != nil || other == id || !s.kill(other) {
			return nil, rpcError("invalid-value", "", "session-id")
		}
		return nil, nil
	default:
		return nil, rpcError("operation-not-supported", "", op.Name.Local)
	}
}

// rpcError returns an error of the application layer.
func rpcError(tag, path, message string) *wire.Error {
	return &wire.Error{Type: "application", Tag: tag, Path: path, Message: message}
}
