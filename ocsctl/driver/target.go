package driver

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// Target is the address of a switch, with the options of its connection. An Open function ignores fields that its
// protocol does not need.
type Target struct {
	Endpoint string // host:port
	Dialect  string // of the protocol; "": detected, or the default
	Ports    Ports

	Timeout   time.Duration // for one answer; 0: see AnswerTime
	Tolerance Tolerance     // when circuits count as up
	// Insecure allows connections to other hosts without encryption and authentication.
	Insecure bool

	// Files of keys and secrets; their contents never appear in errors.
	CAFile, CertFile, KeyFile string // TLS: trusted authorities, own certificate and key; KeyFile is also the SSH key
	User, PasswordFile        string // SSH
	KnownHostsFile            string // SSH host keys

	// Dial opens a connection to an endpoint; nil: use a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Connect opens a TCP connection to an address, with Dial if it is set.
func (t *Target) Connect(ctx context.Context, address string) (net.Conn, error) {
	if t.Dial != nil {
		return t.Dial(ctx, "tcp", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// AnswerTime returns the longest time for one answer: Timeout, or 2 s.
func (t *Target) AnswerTime() time.Duration {
	if t.Timeout > 0 {
		return t.Timeout
	}
	return 2 * time.Second
}

// Open connects to a switch and reads its identity. The context bounds only this call.
type Open func(ctx context.Context, t Target) (Switch, error)

// ParsePorts reads the ports of a plane, by rank, as fabric files have them: "1" for both sides of a
// port, as the protocol names them, or "1/17" for an ingress and an egress port.
func ParsePorts(labels []string) (Ports, error) {
	var p Ports
	for rank, label := range labels {
		in, out, two := strings.Cut(label, "/")
		if rank > 0 && two != (p.Out != nil) {
			return Ports{}, fmt.Errorf("port %q: either all ports have the form in/out or none has", label)
		}
		p.In = append(p.In, in)
		if two {
			p.Out = append(p.Out, out)
		}
	}
	return p, nil
}

// Label returns the port of a rank as fabric files have it.
func (p *Ports) Label(rank int) string {
	if p.Out == nil {
		return p.In[rank]
	}
	return p.In[rank] + "/" + p.Out[rank]
}
