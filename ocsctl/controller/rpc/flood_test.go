package rpc_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/ocsctl/controller/rpc/labcerts"
)

// flood opens n connections that begin with the same bytes and then send nothing more.
func flood(t *testing.T, address string, n int, opening string) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", address)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		if _, err := c.Write([]byte(opening)); err != nil {
			t.Logf("hung up on already: %v", err)
		}
	}
}

// TestFlood: connections that never call anything, more than the server takes and never cut off by
// time here, keep neither operators nor ranks out.
func TestFlood(t *testing.T) {
	t.Parallel()
	const ports = 2
	a, err := labcerts.Create(t.TempDir(), time.Hour)
	must(t, err)
	must(t, a.Issue(labcerts.Subject{Name: "server", Hosts: []string{"127.0.0.1"}, Life: time.Hour}))
	must(t, a.Issue(labcerts.Subject{Name: "client", Life: time.Hour}))
	for name, c := range map[string]struct {
		secure  bool
		opening string
	}{
		"silent": {false, ""}, "preface": {false, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
		"TLS, silent": {true, ""}, "TLS, part of a hello": {true, "\x16\x03\x01\x02\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			o, client := options("a", ports, 1), rpc.Options{}
			o.Patience = time.Hour
			if c.secure {
				o.CA, o.Cert, o.Key = a.Path("ca.pem"), a.Path("server.pem"), a.Path("server.key")
				client.CA, client.Cert, client.Key = a.Path("ca.pem"), a.Path("client.pem"), a.Path("client.key")
			}
			s := serve(t, fake.New("a", 1, ports, 1), o)
			first := dial(t, 0, client, s.address)
			flood(t, s.address, 600, c.opening)
			operator, err := rpc.DialOperator([]string{s.address}, client)
			must(t, err)
			t.Cleanup(func() { must(t, operator.Close()) })
			_, err = operator.Status(within(t))
			must(t, err)
			dial(t, 1, client, s.address)
			_, err = first.Poll(0)
			must(t, err)
		})
	}
}

// lines counts what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

// TestRefusalsInOneLine: peers that fail their handshake are counted in few lines of the log.
func TestRefusalsInOneLine(t *testing.T) {
	a, err := labcerts.Create(t.TempDir(), time.Hour)
	must(t, err)
	must(t, a.Issue(labcerts.Subject{Name: "server", Hosts: []string{"127.0.0.1"}, Life: time.Hour}))
	o := options("a", 2, 1)
	o.CA, o.Cert, o.Key = a.Path("ca.pem"), a.Path("server.pem"), a.Path("server.key")
	var log lines
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := serve(t, fake.New("a", 1, 2, 1), o)
	for range 50 {
		c, err := net.Dial("tcp", s.address)
		must(t, err)
		_, err = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		must(t, err)
		must(t, c.(*net.TCPConn).CloseWrite())
		_, _ = io.Copy(io.Discard, c) // until the server hangs up
		c.Close()
	}
	if all := log.all(); len(all) != 1 || !strings.Contains(all[0], "refused") || !strings.Contains(all[0], "127.0.0.1") {
		t.Errorf("%d lines: %q", len(all), all)
	}
}
