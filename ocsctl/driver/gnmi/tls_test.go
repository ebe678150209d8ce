package gnmi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	devicegnmi "lightpath/ocsctl/device/gnmi"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/gnmi"
	"lightpath/ocsctl/internal/mtls"
)

// authority is a CA whose files are in dir.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a authority) path(name string) string { return filepath.Join(a.dir, name) }

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{dir: t.TempDir()}
	a.cert, a.key = a.issue(t, "ca", nil, time.Hour)
	return a
}

// issue writes name.pem and name.key; without a signer the certificate is a CA's.
func (a authority) issue(t *testing.T, name string, usage []x509.ExtKeyUsage, life time.Duration) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(life),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: usage, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(a.path(file), pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

// TestMutualTLS: both ends prove their identity; one that cannot gets one line that says so.
func TestMutualTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	server, client := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	ours.issue(t, "switch", server, time.Hour)
	ours.issue(t, "controller", client, time.Hour)
	ours.issue(t, "expired", client, -time.Hour)
	theirs.issue(t, "stranger", client, time.Hour)
	config, err := mtls.Server(ours.path("ca.pem"), ours.path("switch.pem"), ours.path("switch.key"))
	require.NoError(t, err)
	d := newDevice(t)
	endpoint := serve(t, d, devicegnmi.Options{TLS: config})
	target := func(ca, who authority, name string) driver.Target {
		return driver.Target{Endpoint: endpoint, Timeout: 20 * time.Second, CAFile: ca.path("ca.pem"),
			CertFile: who.path(name + ".pem"), KeyFile: who.path(name + ".key")}
	}
	if _, err := open(t, d, target(ours, ours, "controller")).Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	missing := target(ours, ours, "controller")
	missing.KeyFile = ""
	mixed := target(ours, ours, "controller")
	mixed.KeyFile = ours.path("expired.key")
	for name, c := range map[string]struct {
		target driver.Target
		want   string
	}{
		"cleartext":           {driver.Target{Endpoint: endpoint, Timeout: 20 * time.Second}, "Unavailable"},
		"stranger":            {target(ours, theirs, "stranger"), ""},
		"expired":             {target(ours, ours, "expired"), ""},
		"switch of strangers": {target(theirs, ours, "controller"), "unknown authority"},
		"no key":              {missing, "no key file"},
		"key of another":      {mixed, "private key does not match"},
	} {
		c.target.Ports = labels(d, 2)
		sw, err := gnmi.Open(t.Context(), c.target)
		if err == nil {
			t.Errorf("%s: opened", name)
			sw.Close() //nolint:errcheck // it failed already
			continue
		}
		if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "\n") ||
			strings.Contains(text, "BEGIN") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
