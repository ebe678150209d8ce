package etcd

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/internal/mtls"
)

// Config describes the store and this controller. Zero values stand for defaults.
type Config struct {
	Name     string // of this controller, for operators and other controllers
	Software string // version of this program; stores remember who wrote them
	Address  string // where ranks and operators reach this controller; standbys show it

	// Dir is the directory of a store on this host. The first controller that opens it serves it to the others through
	// a socket in it; when that one ends, another takes over. Ignored if there are Endpoints.
	Dir string
	// Endpoints of an etcd cluster: host:port, an http or https URL, or unix:path. Endpoints on other hosts need CA,
	// Cert and Key.
	Endpoints     []string
	CA, Cert, Key string // PEM files

	Prefix string        // of every key: one per fabric; "": /lightpath/
	Lease  time.Duration // a controller that does not renew its lease for this time loses its rule; 0: 5 s

	History int // how many events to keep; 0: journal.DefaultHistory
	Queue   int // most events that wait for a write; 0: 8192

	Logger *slog.Logger // nil: nothing is logged
	// OnWrite is called after every transaction, from any goroutine, and must not block.
	OnWrite func(took time.Duration, err error)
}

// Bounds and defaults of [Config].
const (
	defaultPrefix = "/lightpath/"
	defaultLease  = 5 * time.Second
	minLease      = time.Second // etcd counts leases in seconds
	defaultQueue  = 8192
)

// maxSocketPath is the longest path of a socket in the kernel, in bytes.
const maxSocketPath = 107

// complete checks c and sets the defaults.
func (c *Config) complete() error {
	switch {
	case c.Name == "":
		return fmt.Errorf("etcd: name: a controller needs one")
	case c.Dir == "" && len(c.Endpoints) == 0:
		return fmt.Errorf("etcd: dir or endpoints: either is needed")
	case c.Lease != 0 && c.Lease < minLease:
		return fmt.Errorf("etcd: lease: %v is less than %v", c.Lease, minLease)
	case c.History < 0:
		return fmt.Errorf("etcd: history: %d entries", c.History)
	case c.Queue < 0:
		return fmt.Errorf("etcd: queue: %d entries", c.Queue)
	}
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	if !strings.HasSuffix(c.Prefix, "/") {
		c.Prefix += "/"
	}
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.History = cmp.Or(c.History, journal.DefaultHistory)
	c.Queue = cmp.Or(c.Queue, defaultQueue)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnWrite == nil {
		c.OnWrite = func(time.Duration, error) {}
	}
	if len(c.Endpoints) > 0 {
		return nil
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("etcd: dir: %w", err)
	}
	if c.Dir = dir; len(c.socket()) > maxSocketPath {
		return fmt.Errorf("etcd: dir: the path of the socket %s is longer than the %d bytes that the kernel takes",
			c.socket(), maxSocketPath)
	}
	return nil
}

// socket returns the path of the socket of the store in Dir.
func (c *Config) socket() string { return filepath.Join(c.Dir, "etcd.sock") }

// tls returns the TLS configuration, or nil if no file is named.
func (c *Config) tls() (*tls.Config, error) {
	if c.CA == "" && c.Cert == "" && c.Key == "" {
		return nil, nil
	}
	return mtls.Client(c.CA, c.Cert, c.Key)
}

// dial returns the endpoints in the form of the etcd client. It refuses an endpoint on another host without TLS, since
// write access to the store means control of the circuits.
func (c *Config) dial() ([]string, *tls.Config, error) {
	if len(c.Endpoints) == 0 {
		return []string{"unix://" + c.socket()}, nil, nil
	}
	conf, err := c.tls()
	if err != nil {
		return nil, nil, fmt.Errorf("etcd: %w", err)
	}
	scheme := "http://"
	if conf != nil {
		scheme = "https://"
	}
	endpoints := make([]string, len(c.Endpoints))
	for i, e := range c.Endpoints {
		if strings.HasPrefix(e, "unix:") {
			endpoints[i] = e
			continue
		}
		if !strings.Contains(e, "://") {
			e = scheme + e
		}
		u, err := url.Parse(e)
		if err == nil {
			err = checkURL(u, conf != nil)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("etcd: endpoints[%d]: %q: %w", i, c.Endpoints[i], err)
		}
		endpoints[i] = e
	}
	return endpoints, conf, nil
}

func checkURL(u *url.URL, secure bool) error {
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return fmt.Errorf("is not host:port")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Path != "" || u.User != nil || u.RawQuery != "":
		return fmt.Errorf("is not an address of etcd")
	case u.Scheme == "https" && !secure:
		return fmt.Errorf("needs ca, cert and key")
	case u.Scheme == "http" && secure:
		return fmt.Errorf("is not https, though there are certificates")
	case u.Scheme == "http" && !mtls.Loopback(u.Host):
		return fmt.Errorf("is off loopback and needs ca, cert and key")
	}
	return nil
}
