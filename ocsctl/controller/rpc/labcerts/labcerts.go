// Package labcerts makes certificates for trials and tests: an authority and what it vouches for.
// They are labelled as such; a site in production has an authority of its own.
//
// Layer: ocsctl/controller/rpc. It writes files and does nothing else.
package labcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"lightpath/internal/files"
)

// Label is the organization in every certificate.
const Label = "Lightpath lab, not for production"

// backdate is how far the clocks of two hosts may be apart.
const backdate = 5 * time.Minute

// Authority signs certificates; its files and theirs are in one directory.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Subject describes the owner of a certificate.
type Subject struct {
	Name  string        // of the files, NAME.pem and NAME.key, and the common name
	Units []string      // organizational units
	Hosts []string      // names and addresses of a server; none: a client
	Life  time.Duration // from now; negative: expired already
}

// Create makes an authority in dir, which is made if need be: ca.pem and ca.key.
func Create(dir string, life time.Duration) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("labcerts: %w", err)
	}
	a := &Authority{dir: dir}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Lightpath lab CA", Organization: []string{Label}}, NotAfter: time.Now().Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, MaxPathLenZero: true,
	}
	var err error
	a.cert, a.key, err = a.write("ca", template)
	return a, err
}

// Issue makes a certificate.
func (a *Authority) Issue(s Subject) error {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: s.Name, Organization: []string{Label}}, NotAfter: time.Now().Add(s.Life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	template.Subject.OrganizationalUnit = s.Units
	if len(s.Hosts) > 0 { // a controller is also a client: of the journal's servers
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	_, _, err := a.write(s.Name, template)
	return err
}

// write signs a template with a new key and writes both; the authority signs itself.
func (a *Authority) write(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("labcerts: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, fmt.Errorf("labcerts: %w", err)
	}
	template.NotBefore = time.Now().Add(-backdate)
	if template.NotAfter.Before(template.NotBefore) {
		template.NotBefore = template.NotAfter.Add(-backdate)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("labcerts: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("labcerts: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("labcerts: %w", err)
	}
	if err := create(a.Path(name+".key"), "PRIVATE KEY", secret); err != nil {
		return nil, nil, err
	}
	return cert, key, create(a.Path(name+".pem"), "CERTIFICATE", der)
}

// Path returns the path of a file of the authority's.
func (a *Authority) Path(name string) string { return filepath.Join(a.dir, name) }

// create writes a file that must not be there yet.
func create(path, kind string, der []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("labcerts: %s: %w", path, fs.ErrExist)
	}
	if err := files.Write(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("labcerts: %w", err)
	}
	return nil
}
