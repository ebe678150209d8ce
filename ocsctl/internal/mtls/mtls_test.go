package mtls_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/internal/files"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller/rpc/labcerts"
	"lightpath/ocsctl/internal/mtls"
)

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		"0.0.0.0:1": false, "[::]:1": false, ":1": false, "10.0.0.1:1": false, "example.com:1": false, "127.0.0.1": false,
		"": false, "localhost.example:1": false,
	} {
		if got := mtls.Loopback(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}

// TestBadFiles: the error names the file, and nothing of what is in it.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk.pem")
	require.NoError(t, os.WriteFile(junk, []byte("secret material\n"), 0o600))
	for _, files := range [][3]string{
		{"", junk, junk}, {junk, "", junk}, {junk, junk, ""}, {junk, junk, junk},
		{filepath.Join(dir, "absent.pem"), junk, junk},
	} {
		_, err1 := mtls.Client(files[0], files[1], files[2])
		_, err2 := mtls.Server(files[0], files[1], files[2])
		for _, err := range []error{err1, err2} {
			if !errors.Is(err, mtls.ErrFiles) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: %v", files, err)
			}
		}
	}
}

// TestExposedKey: a key that every user of the host may read is refused.
func TestExposedKey(t *testing.T) {
	dir := t.TempDir()
	a, err := labcerts.Create(dir, time.Hour)
	require.NoError(t, err)
	require.NoError(t, a.Issue(labcerts.Subject{Name: "rank", Life: time.Hour}))
	ca, cert, key := a.Path("ca.pem"), a.Path("rank.pem"), a.Path("rank.key")
	if _, err := mtls.Client(ca, cert, key); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, os.Chmod(key, 0o644))
	_, err1 := mtls.Client(ca, cert, key)
	_, err2 := mtls.Server(ca, cert, key)
	for _, err := range []error{err1, err2} {
		if !errors.Is(err, mtls.ErrFiles) || !errors.Is(err, files.ErrExposed) || !strings.Contains(err.Error(), key) {
			t.Error(err)
		}
	}
}

// TestRenewal: connections after a renewal show the new certificates, on both ends.
func TestRenewal(t *testing.T) {
	a, err := labcerts.Create(t.TempDir(), time.Hour)
	require.NoError(t, err)
	files := func(name string) (string, string, string) {
		return a.Path("ca.pem"), a.Path(name + ".pem"), a.Path(name + ".key")
	}
	renew := func() {
		for _, name := range []string{"server", "rank"} {
			_ = os.Remove(a.Path(name + ".pem"))
			_ = os.Remove(a.Path(name + ".key"))
			require.NoError(t, a.Issue(labcerts.Subject{Name: name, Life: time.Hour, Hosts: []string{"127.0.0.1"}}))
		}
	}
	renew()
	server, err := mtls.Server(files("server"))
	require.NoError(t, err)
	client, err := mtls.Client(files("rank"))
	require.NoError(t, err)
	client.ServerName = "127.0.0.1"
	serials := func() (ofServer, ofClient string) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		s, c := tls.Server(far, server), tls.Client(near, client)
		failed := make(chan error, 1)
		go func() { failed <- s.Handshake() }()
		require.NoError(t, c.Handshake())
		require.NoError(t, <-failed)
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String(),
			s.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	server1, client1 := serials()
	renew()
	server2, client2 := serials()
	if server1 == server2 || client1 == client2 {
		t.Errorf("certificates %s and %s, then %s and %s", server1, client1, server2, client2)
	}
}
