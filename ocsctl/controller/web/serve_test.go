package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller/rpc/labcerts"
	"lightpath/ocsctl/internal/mtls"
)

// serve runs a view of a fake on an endpoint until the test ends, and returns its address.
func serve(t *testing.T, e Endpoint, prepare ...func(*Server)) string {
	t.Helper()
	f := newFake(2, 1)
	c := &charge{c: f, leader: "ocs1"}
	s, err := New(Options{Controller: c.get})
	require.NoError(t, err)
	for _, p := range prepare {
		p(s)
	}
	l, err := Listen(e)
	require.NoError(t, err)
	t.Cleanup(func() {
		if f.watched() != 0 {
			t.Error("the core is still watched")
		}
	})
	await.Background(t, func(ctx context.Context) error { return s.Serve(ctx, l) })
	return l.Addr().String()
}

func TestServeOnLoopback(t *testing.T) {
	address := serve(t, Endpoint{Address: "127.0.0.1:0"})
	for host, code := range map[string]int{"": 200, "localhost": 200, "[::1]": 200, "127.0.0.1:99": 200,
		"rebound.example": 421, "rebound.example:80": 421, "10.0.0.1": 421} {
		q, _ := http.NewRequest(http.MethodGet, "http://"+address+"/api/status", nil)
		q.Host = host
		answer, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		answer.Body.Close()
		if answer.StatusCode != code {
			t.Errorf("host %q: %d", host, answer.StatusCode)
		}
	}
	// A stream under way does not keep the server from ending: the cleanup waits for it.
	answer, err := http.Get("http://" + address + "/api/events")
	require.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close() })
}

// Who sends nothing, or goes on sending one header, is hung up on.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	address := serve(t, Endpoint{Address: "127.0.0.1:0"}, func(s *Server) { s.headers = 300 * time.Millisecond })
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				if _, err := conn.Write([]byte("x")); err != nil {
					return
				}
			}
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if text, err := io.ReadAll(conn); err != nil && !errors.Is(err, net.ErrClosed) &&
		strings.Contains(err.Error(), "timeout") {
		t.Errorf("still there: %v, %q", err, text)
	}
}

func TestOffLoopbackWantsCertificates(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0"} {
		if _, err := Listen(Endpoint{Address: address}); !errors.Is(err, ErrPlain) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := Listen(Endpoint{Address: "127.0.0.1:0", CA: "absent.pem"}); !errors.Is(err, mtls.ErrFiles) {
		t.Errorf("%v", err)
	}
	if _, err := Listen(Endpoint{Address: "127.0.0.1:none"}); err == nil {
		t.Error("a port that is none")
	}
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority, err := labcerts.Create(dir, time.Hour)
	require.NoError(t, err)
	stranger := filepath.Join(dir, "elsewhere")
	other, err := labcerts.Create(stranger, time.Hour)
	require.NoError(t, err)
	for _, err := range []error{
		authority.Issue(labcerts.Subject{Name: "ocs1", Hosts: []string{"127.0.0.1"}, Life: time.Hour}),
		authority.Issue(labcerts.Subject{Name: "alice", Life: time.Hour}),
		authority.Issue(labcerts.Subject{Name: "late", Life: -time.Minute}),
		other.Issue(labcerts.Subject{Name: "mallory", Life: time.Hour}),
	} {
		require.NoError(t, err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	address := serve(t, Endpoint{Address: "127.0.0.1:0", CA: file("ca.pem"), Cert: file("ocs1.pem"),
		Key: file("ocs1.key")})
	for who, good := range map[string]bool{"alice": true, "late": false, "elsewhere/mallory": false, "": false} {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		trust, err := mtls.Client(file("ca.pem"), file("alice.pem"), file("alice.key"))
		require.NoError(t, err)
		config.RootCAs = trust.RootCAs
		if who != "" {
			pair, err := tls.LoadX509KeyPair(file(who+".pem"), file(who+".key"))
			require.NoError(t, err)
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true,
			DisableKeepAlives: !good}, Timeout: patience}
		answer, err := client.Get("https://" + address + "/healthz")
		if err == nil {
			answer.Body.Close()
		}
		if (err == nil) != good {
			t.Errorf("%q: %v", who, err)
		}
		if good && answer.ProtoMajor != 2 {
			t.Errorf("%q: %s", who, answer.Proto)
		}
		client.CloseIdleConnections()
	}
	if answer, err := http.Get("http://" + address + "/"); err == nil {
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			t.Error("answers without TLS")
		}
	}
}

// TestFlood: clients that never finish a request, or keep idle connections, do not block the page for
// others. No timeout helps here.
func TestFlood(t *testing.T) {
	t.Parallel()
	for name, opening := range map[string]string{
		"silent": "", "part of a request": "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
		"idle": "GET /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, Endpoint{Address: "127.0.0.1:0"}, func(s *Server) { s.headers = time.Hour })
			for range 2 * maxConnections {
				conn, err := net.Dial("tcp", address)
				require.NoError(t, err)
				t.Cleanup(func() { conn.Close() })
				if _, err := io.WriteString(conn, opening); err != nil {
					t.Logf("hung up on already: %v", err)
				}
			}
			client := http.Client{Timeout: patience}
			answer, err := client.Get("http://" + address + "/healthz")
			require.NoError(t, err)
			answer.Body.Close()
		})
	}
}
