package rpc_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/ocsctl/controller/rpc/labcerts"
	"lightpath/plans/circuit"
)

// lab is an authority with certificates for everyone.
func lab(t *testing.T) *labcerts.Authority {
	t.Helper()
	a, err := labcerts.Create(t.TempDir(), time.Hour)
	must(t, err)
	for _, s := range []labcerts.Subject{
		{Name: "controller", Hosts: []string{"127.0.0.1"}, Life: time.Hour},
		{Name: "elsewhere", Hosts: []string{"10.9.8.7", "ocs.example"}, Life: time.Hour},
		{Name: "stale-controller", Hosts: []string{"127.0.0.1"}, Life: -time.Hour},
		{Name: "node7", Units: []string{rpc.RoleRank}, Life: time.Hour},
		{Name: "alice", Life: time.Hour},
		{Name: "expired", Life: -time.Hour},
	} {
		must(t, a.Issue(s))
	}
	return a
}

func secure(o rpc.ServerOptions, a *labcerts.Authority, name string) rpc.ServerOptions {
	o.CA, o.Cert, o.Key = a.Path("ca.pem"), a.Path(name+".pem"), a.Path(name+".key")
	return o
}

func as(a *labcerts.Authority, name string) rpc.Options {
	return rpc.Options{CA: a.Path("ca.pem"), Cert: a.Path(name + ".pem"), Key: a.Path(name + ".key")}
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := lab(t), lab(t)
	core := fake.New("a", 1, 2, 1)
	s := serve(t, core, secure(options("a", 2, 1), ours, "controller"))
	c := dial(t, 1, as(ours, "node7"), s.address)
	must(t, core.Set(0, circuit.Shift(2, 1), "test"))
	reach(t, c, 0, 1)
	snapshot, err := core.Snapshot()
	must(t, err)
	if who := snapshot.Ports[1].Who; len(who) < 10 || who[len(who)-9:] != " CN=node7" || who[:15] != "grpc 127.0.0.1:" {
		t.Errorf("who: %q", who)
	}
	elsewhere := serve(t, core, secure(options("a", 2, 1), ours, "elsewhere"))
	stale := serve(t, core, secure(options("a", 2, 1), ours, "stale-controller"))
	plain := serve(t, core, options("a", 2, 1))
	stranger := as(theirs, "alice")
	stranger.CA = ours.Path("ca.pem")
	for _, c := range []struct {
		name string
		o    rpc.Options
		s    *site
		says string
	}{
		{"client without TLS", rpc.Options{}, s, "do both ends agree on TLS?"},
		{"server without TLS", as(ours, "alice"), plain, "first record does not look like a TLS handshake"},
		{"other authority's client", stranger, s, "unknown certificate authority"},
		{"other authority's server", as(theirs, "alice"), s, "unknown authority"},
		{"expired client", as(ours, "expired"), s, "expired certificate"},
		{"expired server", as(ours, "alice"), stale, "expired"},
		{"another host's server", as(ours, "alice"), elsewhere, "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := rpc.Dial(context.Background(), []string{c.s.address}, 0, c.o)
			wants(t, err, nil, c.says, "port 0", c.s.address)
		})
	}
	move(t, 0, 0, c, dial(t, 0, as(ours, "alice"), s.address)) // the server is none the worse
}

// TestOffLoopback: neither end leaves this host without certificates.
func TestOffLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	must(t, err)
	o := options("a", 2, 1)
	o.Controller = (&site{}).none
	_, err = rpc.Serve(l, o)
	wants(t, err, nil, "listen", "ca, cert and key are required")
	if _, err := l.Accept(); err == nil {
		t.Error("the listener is open")
	}
	for _, address := range []string{"10.0.0.1:7443", "ocs.example:7443", "0.0.0.0:1"} {
		_, err = rpc.Dial(context.Background(), []string{address}, 0, rpc.Options{})
		wants(t, err, nil, address, "ca, cert and key are required")
		_, err = rpc.DialOperator([]string{address}, rpc.Options{})
		wants(t, err, nil, address, "ca, cert and key are required")
	}
}

// TestBadFiles: the error names the file and nothing that is in it.
func TestBadFiles(t *testing.T) {
	a := lab(t)
	must(t, os.WriteFile(a.Path("junk.pem"), []byte("secret material\n"), 0o600))
	o := as(a, "alice")
	o.CA = a.Path("junk.pem")
	_, err := rpc.Dial(context.Background(), []string{"127.0.0.1:1"}, 0, o)
	wants(t, err, nil, "junk.pem")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	so := secure(options("a", 2, 1), a, "controller")
	so.Controller, so.Key = (&site{}).none, ""
	_, err = rpc.Serve(l, so)
	wants(t, err, nil, "no key file")
}
