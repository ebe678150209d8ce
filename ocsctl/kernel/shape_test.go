package kernel

import (
	"math"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lightpath/internal/require"
)

// Ports are shaped so that the payload of full frames has the plane's bandwidth.
func TestRateIsOfPayload(t *testing.T) {
	needRoot(t)
	f := fabricFile(t, 2, 1, "1Gbps", false)
	t.Cleanup(func() {
		if _, err := Down(f.Name, true); err != nil {
			t.Error(err)
		}
	})
	const overhead, mtu = 114, 1500
	s, _, err := Up(f, Options{MTU: mtu, Overhead: overhead})
	require.NoError(t, err)
	for _, namespace := range s.Namespaces {
		var shaped float64 // bits per second
		err := within(namespace, func() error {
			h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer h.Close()
			l, err := h.LinkByName(s.Planes[0].Interface)
			if err != nil {
				return err
			}
			classes, err := h.ClassList(l, netlink.HANDLE_NONE)
			for _, c := range classes {
				if htb, ok := c.(*netlink.HtbClass); ok && c.Attrs().Handle == netlink.MakeHandle(queueMajor, queueRoot) {
					shaped = 8 * float64(htb.Rate)
				}
			}
			return err
		})
		require.NoError(t, err)
		if payload := shaped * (mtu + ethHeader - overhead) / (mtu + ethHeader); math.Abs(payload-1e9) > 1e4 {
			t.Errorf("%s: full frames carry %.0f bits of payload per second", namespace, payload)
		}
	}
	if _, _, err := Up(f, Options{MTU: mtu}); err == nil || !strings.Contains(err.Error(), "down first") {
		t.Errorf("built for another overhead: %v", err)
	}
	for _, bad := range []int{-1, minMTU} {
		if _, _, err := Up(f, Options{Overhead: bad}); err == nil || !strings.Contains(err.Error(), "overhead") {
			t.Errorf("overhead %d: %v", bad, err)
		}
	}
}
