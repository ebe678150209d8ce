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
	devices := make([][]rdma.Device, ranks)
	for r := range devices {
		for range planes {
			devices[r] = append(devices[r], n.Add("mem"))
		}
	}
	return connectWith(t, devices, o, nil)
}

// connectWith makes a communicator on devices by rank and plane. Where edit is given it says what each
// rank believes of the others' addresses.
func connectWith(t testing.TB, devices [][]rdma.Device, o rdma.ListenOptions, edit func(rank int, a []rdma.Addrs) []rdma.Addrs) []transport.Endpoint {
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
		if err != nil {
			t.Fatal(err)
		}
		listeners[r], addrs[r] = l, l.Addrs()
	}
	endpoints := make([]transport.Endpoint, ranks)
	for r, l := range listeners {
		known := addrs
		if edit != nil {
			known = edit(r, addrs)
		}
		e, err := rdma.Connect(l, rdma.Options{Addrs: known, Comm: 0xc0, Secret: [rdma.SecretSize]byte{7}})
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

// Counts over the control network: with acknowledgements, and without.
var (
	aside = rdma.ListenOptions{Control: "127.0.0.1:0", Timeout: 18, Retries: 6}
	bare  = rdma.ListenOptions{Control: "127.0.0.1:0", Timeout: 18, Retries: 6, Unacknowledged: true}
)

func TestConformanceAside(t *testing.T) { transporttest.Run(t, suite(aside)) }

func TestConformanceUnacknowledged(t *testing.T) { transporttest.Run(t, suite(bare)) }

// TestSmallestRings runs the suite where there is least room.
func TestSmallestRings(t *testing.T) {
	if testing.Short() {
		t.Skip("the same suite again")
	}
	for name, o := range map[string]rdma.ListenOptions{"acknowledged": {}, "unacknowledged": bare} {
		o.Slots, o.Payload = 2, 1<<10
		if o.Unacknowledged {
			o.Payload = 16 << 10 // every frame waits for a message
		}
		t.Run(name, func(t *testing.T) { transporttest.Run(t, suite(o)) })
	}
}
