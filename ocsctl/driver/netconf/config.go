package netconf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"lightpath/internal/files"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf/wire"
)

// Errors of a driver.Target.
var (
	// ErrCredentials: no user, neither password nor key, or the vendor's default credentials.
	ErrCredentials = errors.New("credentials missing or as delivered")
	// ErrHostKey: the switch's host key is not pinned, or differs from the pinned one.
	ErrHostKey = errors.New("host key")
	// ErrPorts: port labels that are not distinct numbers 1..65535.
	ErrPorts = errors.New("port labels")
)

const (
	defaultPort   = "830"
	maxKnownHosts = 16 << 20
)

// delivered are known default users and passwords of such switches.
var delivered = map[string][]string{
	"admin": {"", "root", "admin", "password"},
	"root":  {"", "root", "admin"},
}

// endpoint adds the port if it is missing.
func endpoint(s string) (string, error) {
	if s == "" {
		return "", errors.New("no endpoint")
	}
	if _, _, err := net.SplitHostPort(s); err == nil {
		return s, nil
	}
	s = net.JoinHostPort(strings.Trim(s, "[]"), defaultPort)
	if _, _, err := net.SplitHostPort(s); err != nil {
		return "", fmt.Errorf("endpoint: %w", err)
	}
	return s, nil
}

// clientConfig reads the files of a target. A key is tried before the password. The host key must be in KnownHostsFile:
// no key is trusted on first use.
func clientConfig(t driver.Target) (*ssh.ClientConfig, error) {
	if t.User == "" || t.PasswordFile == "" && t.KeyFile == "" {
		return nil, fmt.Errorf("%w: a user and a file with a password or key are needed", ErrCredentials)
	}
	cc := &ssh.ClientConfig{User: t.User, Timeout: t.Timeout, ClientVersion: "SSH-2.0-lightpath"}
	if t.KeyFile != "" {
		pem, err := files.ReadSecret(t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
		}
		signer, err := ssh.ParsePrivateKey(pem)
		if err != nil {
			return nil, fmt.Errorf("%w: %s is no private key without a passphrase", ErrCredentials, t.KeyFile)
		}
		cc.Auth = append(cc.Auth, ssh.PublicKeys(signer))
	}
	if t.PasswordFile != "" {
		raw, err := files.ReadSecret(t.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
		}
		password := strings.TrimRight(string(raw), "\r\n")
		if slices.Contains(delivered[t.User], password) {
			return nil, fmt.Errorf("%w: change the password of %q on the switch first", ErrCredentials, t.User)
		}
		cc.Auth = append(cc.Auth, ssh.Password(password))
	}
	return cc, pin(t, cc)
}

// pin accepts the keys of the endpoint in KnownHostsFile, and requests only keys of their kinds.
func pin(t driver.Target, cc *ssh.ClientConfig) error {
	if t.KnownHostsFile == "" {
		return fmt.Errorf("%w: a file of known hosts is needed", ErrHostKey)
	}
	// The library reads the whole file.
	if info, err := os.Stat(t.KnownHostsFile); err == nil && (!info.Mode().IsRegular() || info.Size() > maxKnownHosts) {
		return fmt.Errorf("%w: %s is not a regular file of at most %d bytes", ErrHostKey, t.KnownHostsFile, maxKnownHosts)
	}
	check, err := knownhosts.New(t.KnownHostsFile)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHostKey, err)
	}
	cc.HostKeyCallback = func(host string, remote net.Addr, key ssh.PublicKey) error {
		if err := check(host, remote, key); err != nil {
			return fmt.Errorf("%w: %s has %s: %w", ErrHostKey, host, ssh.FingerprintSHA256(key), err)
		}
		return nil
	}
	// Checking a key that no host has returns the keys in the file.
	var known *knownhosts.KeyError
	if err := check(t.Endpoint, &net.TCPAddr{IP: net.IPv4zero}, unknownKey{}); !errors.As(err, &known) ||
		len(known.Want) == 0 {
		return fmt.Errorf("%w: %s has none for %s", ErrHostKey, t.KnownHostsFile, t.Endpoint)
	}
	for _, k := range known.Want {
		switch kind := k.Key.Type(); kind {
		case ssh.KeyAlgoRSA:
			cc.HostKeyAlgorithms = append(cc.HostKeyAlgorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		default:
			cc.HostKeyAlgorithms = append(cc.HostKeyAlgorithms, kind)
		}
	}
	return nil
}

// unknownKey is a public key that no file has.
type unknownKey struct{}

func (unknownKey) Type() string                        { return "unknown" }
func (unknownKey) Marshal() []byte                     { return []byte("unknown") }
func (unknownKey) Verify([]byte, *ssh.Signature) error { return ErrHostKey }

// ports are the numbers of a switch's ports and back.
type ports struct {
	in, out         []uint32 // by port of the map
	ingress, egress map[uint32]int
}

func newPorts(p driver.Ports) (ports, error) {
	if len(p.In) == 0 || len(p.In) != len(p.Out) {
		return ports{}, fmt.Errorf("%w: %d ingress and %d egress ports", ErrPorts, len(p.In), len(p.Out))
	}
	n := ports{ingress: make(map[uint32]int), egress: make(map[uint32]int)}
	for _, side := range []struct {
		labels []string
		ids    *[]uint32
		back   map[uint32]int
	}{{p.In, &n.in, n.ingress}, {p.Out, &n.out, n.egress}} {
		for r, label := range side.labels {
			id, err := wire.PortID(label)
			if err != nil || strconv.FormatUint(uint64(id), 10) != label {
				return ports{}, fmt.Errorf("%w: port %d is %q, want a number 1..%d", ErrPorts, r, label, wire.MaxPort)
			}
			if other, ok := side.back[id]; ok {
				return ports{}, fmt.Errorf("%w: ports %d and %d are both %s", ErrPorts, other, r, label)
			}
			side.back[id] = r
			*side.ids = append(*side.ids, id)
		}
	}
	return n, nil
}
