package rdma_test

import (
	"testing"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/require"
)

// network returns a network. When the test ends, network checks that it was used correctly.
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

// connect returns the endpoints of all ranks of a communicator. Each rank has its own devices on the network.
func connect(t testing.TB, n *verbstest.Network, ranks, planes int, o rdma.ListenOptions) []transport.Endpoint {
	t.Helper()
	devices := make([][]rdma.Device, ranks)
	for r := range devices {
		for range planes {
			devices[r] = append(devices[r], n.Add("mem"))
		}
	}
	return connectWith(t, devices, o, nil)
}

// connectWith is like connect for given devices, by rank and plane. edit, if not nil, replaces the addresses that a
// rank gets.
func connectWith(t testing.TB, devices [][]rdma.Device, o rdma.ListenOptions,
	edit func(rank int, a []rdma.Addrs) []rdma.Addrs) []transport.Endpoint {
	t.Helper()
	ranks := len(devices)
	listeners := make([]*rdma.Listener, ranks)
	addrs := make([]rdma.Addrs, ranks)
	for r := range listeners {
		o.Rank, o.Ranks, o.Planes = r, ranks, nil
		for _, d := range devices[r] {
			o.Planes = append(o.Planes, rdma.PlaneOptions{Device: d, Port: 1, GIDIndex: -1})
		}
		l, err := rdma.Listen(o)
		require.NoError(t, err)
		listeners[r], addrs[r] = l, l.Addrs()
	}
	endpoints := make([]transport.Endpoint, ranks)
	for r, l := range listeners {
		known := addrs
		if edit != nil {
			known = edit(r, addrs)
		}
		e, err := rdma.Connect(l, rdma.Options{Addrs: known, Comm: 0xc0, Secret: [rdma.SecretSize]byte{7}})
		require.NoError(t, err)
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

// Options with out-of-band counts.
var (
	patient        = rdma.Service{Timeout: 18, Retries: 6}
	outOfBand      = rdma.ListenOptions{Control: "127.0.0.1:0", Service: patient}
	unacknowledged = rdma.ListenOptions{Control: "127.0.0.1:0", Service: patient, Unacknowledged: true}
)

func TestConformanceOutOfBand(t *testing.T) { transporttest.Run(t, suite(outOfBand)) }

func TestConformanceUnacknowledged(t *testing.T) { transporttest.Run(t, suite(unacknowledged)) }

// TestConformanceOfSmallRings runs the suite with two slots per ring.
func TestConformanceOfSmallRings(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the same suite again")
	}
	for name, o := range map[string]rdma.ListenOptions{"acknowledged": {}, "unacknowledged": unacknowledged} {
		o.Slots, o.Payload = 2, 8<<10
		t.Run(name, func(t *testing.T) { transporttest.Run(t, suite(o)) })
	}
}
