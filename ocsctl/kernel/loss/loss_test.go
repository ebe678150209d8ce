package loss_test

import (
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lightpath/internal/require"
	"lightpath/ocsctl/kernel/loss"
)

// apart takes the test's thread into a namespace of its own, whose loopback interface is up. The
// thread ends with the test, and the namespace with it.
func apart(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	runtime.LockOSThread() // and not unlocked
	require.NoError(t, unix.Unshare(unix.CLONE_NEWNET))
	lo, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetUp(lo))
}

// TestRates sends datagrams over an interface at several rates: as many arrive as are not counted as
// lost, and those are about as many as asked for: all, none, or within six standard deviations.
func TestRates(t *testing.T) {
	apart(t)
	l, err := loss.Attach("lo")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	in, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, in.Close()) }()
	out, err := net.Dial("udp4", in.LocalAddr().String())
	require.NoError(t, err)
	defer out.Close()
	const frames = 2000
	for _, rate := range []float64{0, 0.01, 0.3, 1, 0} {
		require.NoError(t, l.Set(rate))
		seen, lost := l.Counts()
		arrived := 0
		var b [16]byte
		for range frames { // one by one, so that no queue overflows
			count, before := l.Counts()
			_, err := out.Write(b[:8])
			require.NoError(t, err)
			for now := count; now == count; now, _ = l.Counts() {
				runtime.Gosched()
			}
			if _, after := l.Counts(); after > before {
				continue
			}
			require.NoError(t, in.SetReadDeadline(time.Now().Add(time.Minute)))
			_, _, err = in.ReadFrom(b[:])
			require.NoError(t, err)
			arrived++
		}
		seenAfter, lostAfter := l.Counts()
		seen, lost = seenAfter-seen, lostAfter-lost
		if seen != frames || int(lost)+arrived != frames {
			t.Errorf("rate %v: %d frames seen, %d lost and %d arrived of %d", rate, seen, lost, arrived, frames)
		}
		if want, slack := rate*frames, 6*math.Sqrt(rate*(1-rate)*frames); math.Abs(float64(lost)-want) > slack {
			t.Errorf("rate %v: %d of %d frames lost, want %.0f give or take %.0f", rate, lost, frames, want, slack)
		}
	}
}

// TestRefusals: bad rates and bad interfaces.
func TestRefusals(t *testing.T) {
	apart(t)
	if _, err := loss.Attach("none"); err == nil || !strings.Contains(err.Error(), "interface none") {
		t.Errorf("interface none: %v", err)
	}
	l, err := loss.Attach("lo")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	for _, rate := range []float64{-0.01, 1.01, math.NaN(), math.Inf(1)} {
		if err := l.Set(rate); err == nil {
			t.Errorf("rate %v is accepted", rate)
		}
	}
}
