package control

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"lightpath/shim/errdefs"
)

// HandshakeTime bounds how long a stranger that connects and sends nothing can hold a connection.
const HandshakeTime = 5 * time.Second

// errStranger is the reason for dropping a connection. Callers never get it.
var errStranger = errors.New("shim: peer does not know the communicator's secret")

// Magic begins the first message of either end.
const Magic = "LPCTL\x00\x00\x01"

// Secret is the value that ranks prove to know when they connect to each other.
type Secret [16]byte

// Proof is the answer to a challenge: it proves that a side in a role, with its own nonce, knows the secret. Other
// values that only the communicator's ranks may know use it with a role of their own.
func Proof(s Secret, role string, challenge, nonce []byte) []byte {
	m := hmac.New(sha256.New, s[:])
	m.Write([]byte(role))
	m.Write(challenge)
	m.Write(nonce)
	return m.Sum(nil)
}

// Accept is the listening side of the mutual challenge: each side proves to the other
// that it knows the secret, and neither sends it.
func Accept(conn net.Conn, s Secret) error {
	_, err := AcceptAny(conn, func(knows func(Secret) bool) (Secret, bool) { return s, knows(s) })
	return err
}

// AcceptAny is Accept if several secrets are possible: find tries each of them.
func AcceptAny(conn net.Conn, find func(knows func(Secret) bool) (Secret, bool)) (s Secret, err error) {
	_ = conn.SetDeadline(time.Now().Add(HandshakeTime))
	var hello [8 + 16]byte
	copy(hello[:], Magic)
	_, _ = rand.Read(hello[8:])
	if _, err := conn.Write(hello[:]); err != nil {
		return s, err
	}
	var answer [8 + 16 + 32]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return s, err
	}
	nonce := answer[8:24]
	s, ok := find(func(s Secret) bool {
		return string(answer[:8]) == Magic && hmac.Equal(answer[24:], Proof(s, "join", hello[8:], nonce))
	})
	if !ok {
		return s, errStranger
	}
	if _, err := conn.Write(Proof(s, "root", hello[8:], nonce)); err != nil {
		return s, err
	}
	return s, conn.SetDeadline(time.Time{})
}

// Derive returns a secret that follows from s, a purpose and numbers. Ranks that share these share the result.
func (s Secret) Derive(what string, numbers ...uint64) (d Secret) {
	m := hmac.New(sha256.New, s[:])
	m.Write([]byte(what))
	for _, n := range numbers {
		m.Write(binary.LittleEndian.AppendUint64(nil, n))
	}
	copy(d[:], m.Sum(nil))
	return d
}

// goneAfter is how long a known address may refuse connections before its listener counts as ended.
const goneAfter = 2 * time.Second

// Dial connects to addr and is the other side of [Accept]. If the other side does not know the secret yet, Dial tries
// again until ctx or the deadline ends. If no process listens yet, it tries that long only with patience.
func Dial(ctx context.Context, addr netip.AddrPort, s Secret, deadline time.Time, patience bool) (net.Conn, error) {
	wait := 5 * time.Millisecond
	var refused time.Time
	for {
		dialer := net.Dialer{Timeout: min(5*time.Second, time.Until(deadline))}
		conn, err := dialer.DialContext(ctx, "tcp", addr.String())
		if err == nil {
			stop := CloseWith(ctx, conn)
			err = answerPeer(conn, s)
			if stop() && err == nil {
				return conn, nil
			}
			_ = conn.Close()
		}
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("shim: connect to %v: %w", addr, context.Cause(ctx))
		case exhausted(err) && time.Now().Add(wait).After(deadline):
			return nil, fmt.Errorf("shim: connect to %v: %w: %w", addr, err, errdefs.ErrSystem)
		case errors.Is(err, errStranger) || time.Now().Add(wait).After(deadline):
			return nil, fmt.Errorf("shim: connect to %v: %w: %w", addr, err, errdefs.ErrRemote)
		case !errors.Is(err, syscall.ECONNREFUSED):
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		case !patience && time.Since(refused) > goneAfter:
			return nil, fmt.Errorf("shim: connect to %v: no process listens there any more: %w: %w", addr, err,
				errdefs.ErrRemote)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, time.Second)
	}
}

// exhausted reports whether this process has no files or memory for another connection.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// CloseWith closes conn when ctx ends, unless stop was called before; stop reports that.
func CloseWith(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.Close() })
}

func answerPeer(conn net.Conn, s Secret) error {
	_ = conn.SetDeadline(time.Now().Add(HandshakeTime))
	var hello [8 + 16]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return err
	}
	if string(hello[:8]) != Magic {
		return errStranger
	}
	var answer [8 + 16 + 32]byte
	copy(answer[:], Magic)
	_, _ = rand.Read(answer[8:24])
	copy(answer[24:], Proof(s, "join", hello[8:], answer[8:24]))
	if _, err := conn.Write(answer[:]); err != nil {
		return err
	}
	var reply [32]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return err
	}
	if !hmac.Equal(reply[:], Proof(s, "root", hello[8:], answer[8:24])) {
		return errStranger
	}
	return conn.SetDeadline(time.Time{})
}

// ComeAgain is the pause before a rank that came too early, or found no free connection, tries again.
const ComeAgain = 10 * time.Millisecond

// Trouble holds the reason why connections cannot be accepted, nil if they can. Safe for concurrent use.
type Trouble struct{ atomic.Pointer[error] }

// String returns the reason in parentheses, "" if there is none.
func (t *Trouble) String() string {
	if err := t.Load(); err != nil {
		return fmt.Sprintf(" (%v)", *err)
	}
	return ""
}

// AcceptAll passes every connection to greet until the listener is closed. While it can accept none, t holds the
// reason. greet must not wait long.
func AcceptAll(ln net.Listener, t *Trouble, greet func(net.Conn)) {
	for {
		conn, err := ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for example, no free descriptors; others may close some
			t.Store(&err)
			time.Sleep(ComeAgain)
		default:
			t.Store(nil)
			greet(conn)
		}
	}
}
