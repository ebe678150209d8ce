package ebpf

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/require"
)

var secret = [SecretSize]byte{1, 2, 3}

// socket opens a UDP socket on the loopback interface.
func socket(t testing.TB, host string) int {
	t.Helper()
	addr := netip.AddrPortFrom(netip.MustParseAddr(host), 0)
	n := counts.NewRawAddr(addr)
	fd, err := unix.Socket(n.Family(), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, counts.Sockaddr(addr)))
	// The kernel may grant less to an unprivileged user; that is enough.
	require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20))
	return fd
}

// loopback describes a communicator on the loopback interface.
type loopback struct {
	host     string
	mtu      int
	window   int
	counters func(rank, plane int) Counters // may be nil
}

func (l loopback) listen(t testing.TB, ranks, planes int) ([]*Listener, []Addrs) {
	t.Helper()
	var ls []*Listener
	var addrs []Addrs
	for rank := range ranks {
		o := ListenOptions{Control: "127.0.0.1:0"}
		for plane := range planes {
			po := PlaneOptions{FD: socket(t, l.host), MTU: l.mtu}
			if l.counters != nil {
				po.Counters = l.counters(rank, plane)
			}
			o.Planes = append(o.Planes, po)
		}
		ln, err := Listen(o)
		require.NoError(t, err)
		t.Cleanup(func() { transporttest.Close(t, ln) })
		ls, addrs = append(ls, ln), append(addrs, ln.Addrs())
	}
	return ls, addrs
}

func (l loopback) open(t testing.TB, ranks, planes int) []transport.Endpoint {
	t.Helper()
	ls, addrs := l.listen(t, ranks, planes)
	var endpoints []transport.Endpoint
	for rank := range ranks {
		e, err := Connect(ls[rank], Options{Rank: rank, Addrs: addrs, Comm: 0xc0, Secret: secret, Window: l.window})
		require.NoError(t, err)
		endpoints = append(endpoints, e)
	}
	return endpoints
}

func TestConformance(t *testing.T) {
	for _, l := range []loopback{
		{host: "127.0.0.1", mtu: 9000},
		{host: "127.0.0.1", mtu: 1500, window: 2},
		{host: "127.0.0.1", mtu: 4000, window: 5},
	} {
		t.Run(fmt.Sprintf("mtu%d-window%d", l.mtu, l.window), func(t *testing.T) {
			transporttest.Run(t, transporttest.Config{Open: l.open})
		})
	}
}
