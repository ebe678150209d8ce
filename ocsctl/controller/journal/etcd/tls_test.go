package etcd

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/ocsctl/controller/rpc/labcerts"
	"lightpath/ocsctl/internal/direct"
)

// authority makes an authority that has issued certificates to etcd and to a controller.
func authority(t *testing.T) *labcerts.Authority {
	t.Helper()
	a, err := labcerts.Create(t.TempDir(), time.Hour)
	require.NoError(t, err)
	for _, s := range []labcerts.Subject{{Name: "etcd", Hosts: []string{"127.0.0.1"}, Life: time.Hour},
		{Name: "ocsd", Life: time.Hour}} {
		require.NoError(t, a.Issue(s))
	}
	return a
}

// with has a client show a's certificate to the etcd at an address.
func with(a *labcerts.Authority, address string) Config {
	return Config{Name: "a", Lease: time.Minute, Endpoints: []string{address}, CA: a.Path("ca.pem"),
		Cert: a.Path("ocsd.pem"), Key: a.Path("ocsd.key")}
}

// TestTLS: a cluster elsewhere takes controllers with its authority's certificates, and no others;
// and they take no other cluster.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := authority(t), authority(t)
	address := cluster(t, ours)
	c, err := Open(t.Context(), with(ours, address))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	l := lead(t, c)
	require.NoError(t, journaltest.Intend(t, l, intent(0)))
	mixed := with(theirs, address)
	mixed.CA = ours.Path("ca.pem") // trusts the cluster, and is not trusted
	var cases sync.WaitGroup
	for name, test := range map[string]struct {
		conf Config
		why  string
	}{
		"plain":           {Config{Name: "a", Endpoints: []string{"http://" + address}}, "connection"},
		"other authority": {with(theirs, address), "unknown authority"},
		// a write may meet the closed end before the alert is read
		"not trusted":  {mixed, "unknown certificate authority|broken pipe|reset by peer"},
		"nobody there": {Config{Name: "a", Endpoints: []string{"127.0.0.1:1"}}, "refused"},
	} {
		cases.Go(func() {
			why := regexp.MustCompile(test.why)
			// Open tries until its time is over. On a busy host, the time may be over before the first answer.
			for limit := 3 * time.Second; ; limit *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				c, err := Open(ctx, test.conf)
				cancel()
				if err == nil {
					_ = c.Close()
					t.Errorf("%s: is let in", name)
					return
				}
				text := err.Error()
				if why.MatchString(text) && strings.Contains(text, test.conf.Endpoints[0]) && !strings.Contains(text, "\n") {
					return
				}
				if limit > journaltest.Patience {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	cases.Wait()
}

// TestNoProxy: a controller reaches etcd without the proxy of its environment.
func TestNoProxy(t *testing.T) {
	direct.Test(t, func(ctx context.Context) error {
		_, err := Open(ctx, with(authority(t), "etcd.invalid:1"))
		return err
	})
}

// cluster runs an etcd that demands certificates of an authority, and returns its address.
func cluster(t *testing.T, a *labcerts.Authority) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	l.Close()
	h := &host{conf: Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, stop: make(chan struct{})}
	h.streams, h.cut = context.WithCancel(context.Background())
	conf := h.embedded(newLastWords())
	u := url.URL{Scheme: "https", Host: address}
	conf.ListenClientUrls, conf.AdvertiseClientUrls = []url.URL{u}, []url.URL{u}
	conf.ClientTLSInfo = transport.TLSInfo{
		CertFile: a.Path("etcd.pem"), KeyFile: a.Path("etcd.key"),
		TrustedCAFile: a.Path("ca.pem"), ClientCertAuth: true,
	}
	server, err := embed.StartEtcd(conf)
	require.NoError(t, err)
	t.Cleanup(func() {
		h.cut()
		server.Close()
	})
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(journaltest.Patience):
		t.Fatal("the server is not ready")
	}
	return address
}
