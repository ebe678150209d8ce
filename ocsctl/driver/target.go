package driver

import (
	"context"
	"time"
)

// Target is where a switch is and how to speak to it: what an Open function needs. Fields that a
// protocol has no use for are ignored.
type Target struct {
	Endpoint string // host:port
	Dialect  string // of the protocol; "" is found out or the default
	Ports    Ports

	Timeout   time.Duration // for one answer; default 2 s
	Tolerance Tolerance     // when circuits count as up
	// Insecure allows what is neither encrypted nor authenticated to leave this host.
	Insecure bool

	// Files of keys and secrets; their contents never appear in errors.
	CAFile, CertFile, KeyFile string // TLS: whom to trust, who we are; KeyFile is also the SSH key
	User, PasswordFile        string // SSH
	KnownHostsFile            string // SSH host keys
}

// Open connects to a switch and asks who it is; the context bounds that, not the Switch.
type Open func(ctx context.Context, t Target) (Switch, error)
