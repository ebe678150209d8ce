package mtls_test

import (
	"errors"
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
