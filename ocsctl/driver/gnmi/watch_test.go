package gnmi

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/openconfig/gnmi/cache"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/subscribe"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"lightpath/internal/require"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/plans/circuit"
)

// collector serves OpenConfig's cache by OpenConfig's subscription server: a peer that is not ours.
func collector(t *testing.T, target string) (endpoint string, c *cache.Cache) {
	t.Helper()
	c = cache.New([]string{target})
	peer, err := subscribe.NewServer(c)
	require.NoError(t, err)
	c.SetClient(peer.Update)
	g := grpc.NewServer()
	gpb.RegisterGNMIServer(g, peer)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go g.Serve(l) //nolint:errcheck // it ends by Stop
	t.Cleanup(g.Stop)
	return l.Addr().String(), c
}

// through names the switch meant in requests: a collector has several.
func through(target string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
		opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, cc, method, opts...)
		return &named{stream, target}, err
	}
}

type named struct {
	grpc.ClientStream
	target string
}

func (n *named) SendMsg(m any) error {
	if r, ok := m.(*gpb.SubscribeRequest); ok {
		r.GetSubscribe().Prefix = &gpb.Path{Target: n.target}
	}
	return n.ClientStream.SendMsg(m)
}

// TestWatchCollector follows a circuit through a collector until it is up.
func TestWatchCollector(t *testing.T) {
	const target = "ocs-1"
	endpoint, c := collector(t, target)
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStreamInterceptor(through(target)))
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // the test is over
	words, err := dialect.Lookup("ocp")
	require.NoError(t, err)
	s := &swtch{client: gpb.NewGNMIClient(conn), words: words, ports: driver.Ports{In: []string{"1", "2"},
		Out: []string{"3", "4"}}}
	tell := func(word string) {
		v := words.Vars("", "1", "4")
		v["status"] = word
		n := &gpb.Notification{Timestamp: time.Now().UnixNano(), Prefix: &gpb.Path{Target: target}}
		for _, l := range append(words.Config.EntryLeaves(v), words.Status.EntryLeaves(v)...) {
			n.Update = append(n.Update, &gpb.Update{Path: &gpb.Path{Elem: l.Elems},
				Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: l.Value}}})
		}
		require.NoError(t, c.GnmiUpdate(n))
	}
	tell("PENDING_CONNECTION")
	w := s.subscribe(t.Context())
	defer w.stop()
	pairs := []circuit.Pair{{From: 0, To: 1}}
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if w.wait(brief, pairs) && time.Since(began) < silence {
		t.Fatal("a circuit that is pending passes for decided")
	}
	tell("CONNECTED")
	up := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return s.states(w.store, pairs)[0] == driver.Up
	}
	patient, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for !up() {
		if !w.wait(patient, pairs) {
			t.Fatal("the subscription ended, or says nothing of the circuit")
		}
	}
}
