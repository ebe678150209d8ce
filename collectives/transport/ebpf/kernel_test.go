package ebpf

import (
	"testing"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/require"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/circuit"
)

// inKernel describes kernel planes.
type inKernel struct {
	maps       []circuit.Permutation // by plane; the default is a ring
	rate       string
	forwarding bool
	window     int
}

// build creates a fabric and removes it when the test ends. It needs root.
func (k inKernel) build(t testing.TB, ranks, planes int) (*kernel.State, *kernel.Board) {
	t.Helper()
	s := transporttest.KernelFabric(t, ranks, planes, k.rate, k.forwarding)
	b, err := kernel.Open(s)
	require.NoError(t, err)
	t.Cleanup(func() { transporttest.Close(t, b) })
	for j := range planes {
		m := circuit.Shift(ranks, 1)
		if j < len(k.maps) {
			m = k.maps[j]
		}
		require.NoError(t, b.Install(j, m))
	}
	return s, b
}

// attach returns the endpoints of all ranks.
func (k inKernel) attach(t testing.TB, s *kernel.State) []transport.Endpoint {
	t.Helper()
	var ls []*Listener
	var addrs []Addrs
	for rank := range s.Ranks {
		p, err := kernel.Attach(s, rank)
		require.NoError(t, err)
		t.Cleanup(func() { transporttest.Close(t, p) })
		o := ListenOptions{Control: "127.0.0.1:0"}
		for j, rp := range p.Planes {
			o.Planes = append(o.Planes, PlaneOptions{
				FD: rp.FD, MTU: rp.MTU, Counters: rp.Counters, BitsPerSecond: float64(s.Planes[j].Rate),
			})
		}
		l, err := Listen(o)
		require.NoError(t, err)
		ls, addrs = append(ls, l), append(addrs, l.Addrs())
	}
	var endpoints []transport.Endpoint
	for rank, l := range ls {
		e, err := Connect(l, Options{Rank: rank, Addrs: addrs, Comm: 0xc0, Secret: secret, Window: k.window})
		require.NoError(t, err)
		endpoints = append(endpoints, e)
		t.Cleanup(func() { transporttest.Close(t, e) })
	}
	return endpoints
}

// TestKernelSmallestWindow runs random traffic over a ring in which the kernel forwards, with a window of two frames.
func TestKernelSmallestWindow(t *testing.T) {
	k := inKernel{rate: "5Gbps", forwarding: true, window: minWindow}
	s, _ := k.build(t, 3, 1)
	transporttest.Config{}.Exchange(t, k.attach(t, s), 8)
}

// TestKernelConformance runs the suite, with one fabric for all tests of the same shape. So the counters of later
// endpoints begin with the frames of earlier ones.
func TestKernelConformance(t *testing.T) {
	k := inKernel{rate: "20Gbps", forwarding: true}
	built := make(map[[2]int]*kernel.State)
	transporttest.Run(t, transporttest.Config{Open: func(sub testing.TB, ranks, planes int) []transport.Endpoint {
		shape := [2]int{ranks, planes}
		if built[shape] == nil {
			built[shape], _ = k.build(t, ranks, planes)
		}
		return k.attach(sub, built[shape])
	}})
}
