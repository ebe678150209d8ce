package netconf_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	server "lightpath/ocsctl/device/netconf"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/drivertest"
	"lightpath/ocsctl/driver/netconf"
	"lightpath/plans/circuit"
)

const password = "a long one"

// file writes a file of the test.
func file(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// key returns a private key as PEM, with its public key.
func key(t testing.TB) ([]byte, ssh.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	sshKey, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return pem.EncodeToMemory(block), sshKey
}

// serve serves d by SSH on a port of this host until the test ends, and completes a target for its user.
func serve(t testing.TB, d *device.Device, c server.Config, o driver.Target) driver.Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveOn(t, l, d, c, o)
}

func serveOn(t testing.TB, l net.Listener, d *device.Device, c server.Config, o driver.Target) driver.Target {
	t.Helper()
	private, public := key(t)
	if c.Users == nil {
		c.Users = map[string]server.User{"lightpath": {Password: password, Keys: []ssh.PublicKey{public}}}
	}
	s, err := server.New(d, c)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close() //nolint:errcheck // it returns nil
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	o.Endpoint, o.User, o.Timeout = l.Addr().String(), "lightpath", cmp.Or(o.Timeout, 30*time.Second)
	o.KeyFile = file(t, "key", private)
	o.KnownHostsFile = file(t, "known_hosts", []byte(knownhosts.Line([]string{o.Endpoint}, s.HostKey())+"\n"))
	return o
}

// labels numbers ports as the model does: n ingress ports, then as many egress ports.
func labels(ports, n int) driver.Ports {
	var p driver.Ports
	for r := range ports {
		p.In = append(p.In, strconv.Itoa(1+r))
		p.Out = append(p.Out, strconv.Itoa(1+n+r))
	}
	return p
}

func open(t testing.TB, o driver.Target) driver.Switch {
	t.Helper()
	sw, err := netconf.Open(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(func() { sw.Close() }) //nolint:errcheck // it returns nil
	return sw
}

// BenchmarkApply is a change of all of 64 circuits, read back, over SSH on this host: the
// switch itself takes no time.
func BenchmarkApply(b *testing.B) {
	for name, c := range map[string]server.Config{"running": {Mode: device.Bulk},
		"candidate": {Mode: device.Bulk, Candidate: true}} {
		b.Run(name, func(b *testing.B) {
			d, err := device.New(device.Config{Ports: 64, Preset: "plzt-ns"})
			require.NoError(b, err)
			defer d.Close()
			sw := open(b, serve(b, d, c, driver.Target{Ports: labels(64, 64)}))
			maps := []circuit.Permutation{circuit.AllDark(64), circuit.Shift(64, 1), circuit.Shift(64, 2)}
			at := 0
			for b.Loop() {
				next := 1 + at%2
				if _, err := sw.Apply(context.Background(), driver.Change{Before: maps[at], After: maps[next],
					Want: driver.ReadBack}); err != nil {
					b.Fatal(err)
				}
				at = next
			}
		})
	}
}

func TestConformance(t *testing.T) {
	for name, c := range map[string]server.Config{
		"running":   {Mode: device.Bulk},
		"candidate": {Mode: device.Bulk, Candidate: true},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Suite{
				Serve: func(t *testing.T, l net.Listener, d *device.Device, ports int) driver.Target {
					return serveOn(t, l, d, c, driver.Target{Ports: labels(ports, d.Ports())})
				},
				Open: netconf.Open,
			}.Run(t)
		})
	}
}
