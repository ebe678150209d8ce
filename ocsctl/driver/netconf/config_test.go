package netconf_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh/knownhosts"

	"lightpath/internal/files"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	server "lightpath/ocsctl/device/netconf"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf"
)

func testDevice(t *testing.T) *device.Device {
	t.Helper()
	d, err := device.New(device.Config{Ports: 4})
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// exposed returns the path of a copy of a file that every user may read.
func exposed(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	path = file(t, "exposed", content)
	require.NoError(t, os.Chmod(path, 0o644))
	return path
}

// TestWhoMayConnect: Open refuses missing, unsafe and wrong credentials, with no secret in the error.
func TestWhoMayConnect(t *testing.T) {
	d := testDevice(t)
	good := serve(t, d, server.Config{}, driver.Target{Ports: labels(4, 4)})
	_, stranger := key(t)
	strange, _ := key(t)
	secret := file(t, "password", []byte(password+"\n"))
	for name, c := range map[string]struct {
		change func(*driver.Target)
		want   error // nil: any
	}{
		"no endpoint": {func(o *driver.Target) { o.Endpoint = "" }, nil},
		"no user":     {func(o *driver.Target) { o.User = "" }, netconf.ErrCredentials},
		"no secret":   {func(o *driver.Target) { o.KeyFile = "" }, netconf.ErrCredentials},
		"no such file": {func(o *driver.Target) {
			o.KeyFile = filepath.Join(t.TempDir(), "none")
		}, netconf.ErrCredentials},
		"no key":      {func(o *driver.Target) { o.KeyFile = secret }, netconf.ErrCredentials},
		"another key": {func(o *driver.Target) { o.KeyFile = file(t, "strange", strange) }, nil},
		"wrong password": {func(o *driver.Target) {
			o.KeyFile, o.PasswordFile = "", file(t, "p", []byte("s3cret-guess"))
		}, nil},
		"as delivered": {func(o *driver.Target) {
			o.User, o.PasswordFile = "admin", file(t, "p", []byte("root\n"))
		}, netconf.ErrCredentials},
		"empty password": {func(o *driver.Target) {
			o.User, o.PasswordFile = "root", file(t, "p", nil)
		}, netconf.ErrCredentials},
		"huge password": {func(o *driver.Target) {
			o.PasswordFile = file(t, "p", make([]byte, 1<<20))
		}, netconf.ErrCredentials},
		"open password": {func(o *driver.Target) {
			o.PasswordFile = exposed(t, file(t, "p", []byte(password)))
		}, files.ErrExposed},
		"open key":            {func(o *driver.Target) { o.KeyFile = exposed(t, o.KeyFile) }, files.ErrExposed},
		"no known hosts":      {func(o *driver.Target) { o.KnownHostsFile = "" }, netconf.ErrHostKey},
		"endless known hosts": {func(o *driver.Target) { o.KnownHostsFile = "/dev/zero" }, netconf.ErrHostKey},
		"host is not known":   {func(o *driver.Target) { o.KnownHostsFile = file(t, "k", nil) }, netconf.ErrHostKey},
		"host has a new key": {func(o *driver.Target) {
			o.KnownHostsFile = file(t, "k", []byte(knownhosts.Line([]string{o.Endpoint}, stranger)+"\n"))
		}, netconf.ErrHostKey},
		"garbled known hosts": {func(o *driver.Target) {
			o.KnownHostsFile = file(t, "k", []byte("\x00\x01 garbage\n"))
		}, netconf.ErrHostKey},
		"label of a name":  {func(o *driver.Target) { o.Ports.In = []string{"1", "2", "3", "4A"} }, netconf.ErrPorts},
		"label of 0":       {func(o *driver.Target) { o.Ports.In = []string{"0", "2", "3", "4"} }, netconf.ErrPorts},
		"label with zeros": {func(o *driver.Target) { o.Ports.In = []string{"01", "2", "3", "4"} }, netconf.ErrPorts},
		"label twice":      {func(o *driver.Target) { o.Ports.Out = []string{"5", "6", "7", "5"} }, netconf.ErrPorts},
		"one side longer":  {func(o *driver.Target) { o.Ports.Out = o.Ports.Out[:3] }, netconf.ErrPorts},
		"no ports":         {func(o *driver.Target) { o.Ports = driver.Ports{} }, netconf.ErrPorts},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			c.change(&o)
			sw, err := netconf.Open(context.Background(), o)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("%v, %v; want %v", sw, err, c.want)
			}
			for _, s := range []string{"s3cret-guess", password, "PRIVATE KEY"} {
				if strings.Contains(err.Error(), s) {
					t.Errorf("the error tells a secret: %v", err)
				}
			}
		})
	}
	o := good
	o.KeyFile, o.PasswordFile = "", secret
	for name, o := range map[string]driver.Target{"key": good, "password": o} {
		t.Run("by "+name, func(t *testing.T) {
			if _, err := open(t, o).Read(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestClosed: a closed driver says so, and closing it twice is well.
func TestClosed(t *testing.T) {
	sw := open(t, serve(t, testDevice(t), server.Config{}, driver.Target{Ports: labels(4, 4)}))
	for range 2 {
		require.NoError(t, sw.Close())
	}
	if _, err := sw.Read(context.Background()); err == nil {
		t.Fatal("a closed driver reads")
	}
}
