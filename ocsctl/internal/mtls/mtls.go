// Package mtls reads the TLS keys and certificates by which both ends of a connection prove their identity, decides
// which addresses need none, and reads the roles in certificates.
//
// Layer: below ocsctl's packages. Errors name files, never their contents.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"lightpath/internal/files"
)

// ErrFiles reports a missing or unusable file of keys or certificates.
var ErrFiles = errors.New("mtls: unusable key or certificate")

// maxFile bounds files of certificates, in bytes. The file of all authorities of a system is smaller.
const maxFile = 16 << 20

// Client returns the configuration of a client, which trusts the CA file and shows the certificate. All three files are
// required. Each connection reads the certificate and its key again, so they may be renewed; a renewed authority needs
// a new configuration.
func Client(ca, cert, key string) (*tls.Config, error) {
	pool, err := load(ca, cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair(cert, key) }}, nil
}

// Server returns the configuration of a server, which requires a client certificate of the CA file. It reads files as
// [Client] does.
func Server(ca, cert, key string) (*tls.Config, error) {
	pool, err := load(ca, cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair(cert, key) }}, nil
}

// load reads the authorities, and checks that the certificate and its key can be used.
func load(ca, cert, key string) (*x509.CertPool, error) {
	for what, file := range map[string]string{"CA": ca, "certificate": cert, "key": key} {
		if file == "" {
			return nil, fmt.Errorf("%w: no %s file is named", ErrFiles, what)
		}
	}
	roots, err := files.Read(ca, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return nil, fmt.Errorf("%w: %s has no certificate", ErrFiles, ca)
	}
	_, err = pair(cert, key)
	return pool, err
}

func pair(cert, key string) (*tls.Certificate, error) {
	chain, err := files.Read(cert, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	secret, err := files.ReadSecret(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	p, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return nil, fmt.Errorf("%w: %s and %s: %w", ErrFiles, cert, key, err)
	}
	return &p, nil
}

// Loopback reports whether host:port is a loopback address. For names other than localhost it returns false, without a
// look-up.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
