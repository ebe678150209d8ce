package scpi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/ocsctl/driver"
)

// maxReply bounds one answer.
const maxReply = 256 << 10

// errReply: the answer to a line is missing or incomplete.
var errReply = errors.New("no answer")

// wire is one session with one line in flight. After any error the session ends, because a late answer would look like
// that to the next line. The next line opens another session.
type wire struct {
	endpoint string
	insecure bool
	timeout  time.Duration
	dial     func(ctx context.Context, address string) (net.Conn, error)
	conn     net.Conn
	r        *bufio.Reader
}

// loopback returns an error for another host, unless connections without encryption are allowed.
func (w *wire) loopback(host string) error {
	if ip := net.ParseIP(host); w.insecure || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("scpi: %s: SCPI is neither encrypted nor authenticated; leaving this host with it has to be allowed",
		w.endpoint)
}

func (w *wire) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	host, _, err := net.SplitHostPort(w.endpoint)
	if err != nil {
		return fmt.Errorf("scpi: %q is not host:port", w.endpoint)
	}
	if err := w.loopback(host); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	conn, err := w.dial(ctx, w.endpoint)
	if err != nil {
		return fmt.Errorf("scpi: %w", err)
	}
	// A name may lead anywhere.
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		if err := w.loopback(a.IP.String()); err != nil {
			conn.Close()
			return err
		}
	}
	w.conn, w.r = conn, bufio.NewReaderSize(conn, 4096)
	return nil
}

func (w *wire) close() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}

// ask sends a line and returns its answer, which must arrive within a time. 0: only the context limits the time.
func (w *wire) ask(ctx context.Context, line string, within time.Duration) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := w.connect(ctx); err != nil {
		return "", err
	}
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	conn := w.conn
	if err := conn.SetDeadline(time.Time{}); err != nil {
		w.close()
		return "", fmt.Errorf("scpi: %s: %w", w.endpoint, err)
	}
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // the pending call reports it
	})
	reply, err := w.exchange(line)
	if !stop() || err != nil { // if the time has just ended, the deadline could still affect the next line
		w.close()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", errReply, ctx.Err())
		}
		return "", fmt.Errorf("scpi: %s: %w", w.endpoint, err)
	}
	return reply, nil
}

// pending reports whether the peer has sent something that was not read so far.
func pending(conn net.Conn) (some bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		some = n > 0 && err == nil
	})
	return some && err == nil
}

func (w *wire) exchange(line string) (string, error) {
	if w.r.Buffered() > 0 || pending(w.conn) {
		return "", fmt.Errorf("%w: it speaks before it is asked", driver.ErrProtocol)
	}
	if _, err := io.WriteString(w.conn, line+"\r\n"); err != nil {
		return "", err
	}
	var all []byte
	for {
		part, err := w.r.ReadSlice('\n')
		if len(all)+len(part) > maxReply {
			return "", fmt.Errorf("%w: an answer of more than %d bytes", driver.ErrProtocol, maxReply)
		}
		all = append(all, part...)
		if err == nil {
			return strings.TrimRight(string(all), "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", fmt.Errorf("%w: %w", errReply, err)
		}
	}
}
