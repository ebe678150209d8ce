package rdma_test

import (
	"testing"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/collectives/transport/transporttest"
)

// network returns a network that is checked when the test ends.
func network(t testing.TB) *verbstest.Network {
	t.Helper()
	n := verbstest.New(uint64(len(t.Name())))
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// connect makes a whole communicator on a network, each rank with devices of its own.
func connect(t testing.TB, n *verbstest.Network, ranks, planes int, o rdma.ListenOptions) []transport.Endpoint {
	t.Helper()
	listeners := make([]*rdma.Listener, ranks)
	addrs := make([]rdma.Addrs, ranks)
	for r := range listeners {
		o.Rank, o.Ranks, o.Planes = r, ranks, nil
		for range planes {
			o.Planes = append(o.Planes, rdma.PlaneOptions{Device: n.Add("mem"), Port: 1, GIDIndex: -1})
		}
		l, err := rdma.Listen(o)
		if err != nil {
			t.Fatal(err)
		}
		listeners[r], addrs[r] = l, l.Addrs()
	}
	endpoints := make([]transport.Endpoint, ranks)
	for r, l := range listeners {
		e, err := rdma.Connect(l, rdma.Options{Addrs: addrs})
		if err != nil {
			t.Fatal(err)
		}
		endpoints[r] = e
	}
	return endpoints
}

func suite(o rdma.ListenOptions) transporttest.Config {
	return transporttest.Config{
		PeerLoss: true,
		Open: func(t testing.TB, ranks, planes int) []transport.Endpoint {
			return connect(t, network(t), ranks, planes, o)
		},
	}
}

func TestConformance(t *testing.T) { transporttest.Run(t, suite(rdma.ListenOptions{})) }

// TestSmallestRings runs the suite where there is least room.
func TestSmallestRings(t *testing.T) {
	if testing.Short() {
		t.Skip("the same suite again")
	}
	transporttest.Run(t, suite(rdma.ListenOptions{Slots: 2, Payload: 1 << 10}))
}
