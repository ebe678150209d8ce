package nic

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"lightpath/internal/require"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestFaults cuts an interface in each way, and checks what a socket on it and its address show.
func TestFaults(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with its network namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_SYS_ADMIN, for a network namespace")
	} else {
		require.NoError(t, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "near"
	near := netlink.NewVeth(attrs)
	near.PeerName = "far"
	require.NoError(t, netlink.LinkAdd(near))
	far, err := netlink.LinkByName("far")
	require.NoError(t, err)
	local := netip.MustParseAddr("10.9.8.7")
	require.NoError(t, netlink.AddrAdd(near, &netlink.Addr{
		IPNet: &net.IPNet{IP: local.AsSlice(), Mask: net.CIDRMask(24, 32)}}))
	require.NoError(t, netlink.LinkSetUp(near))
	require.NoError(t, netlink.LinkSetUp(far))
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	if s := FaultOfSocket(fd); s != "" {
		t.Errorf("a socket without an interface: %q", s)
	}
	require.NoError(t, unix.BindToDevice(fd, "near"))
	for _, c := range []struct {
		cut                 func() error
		ofSocket, ofAddress string
	}{
		{func() error { return nil }, "", ""},
		{func() error { return netlink.LinkSetDown(far) }, "interface near has no carrier", "interface near has no carrier"},
		{func() error { return netlink.LinkSetUp(far) }, "", ""},
		{func() error { return netlink.LinkSetDown(near) }, "interface near is down", "interface near is down"},
		{func() error { return netlink.LinkDel(near) }, "its interface does not exist any more",
			"no interface has its address 10.9.8.7 any more"},
	} {
		require.NoError(t, c.cut())
		// The kernel updates the state of a carrier a little later.
		var socket, address string
		for range 1000 {
			if socket, address = FaultOfSocket(fd), FaultOfAddress(local); socket == c.ofSocket && address == c.ofAddress {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if socket != c.ofSocket || address != c.ofAddress {
			t.Errorf("socket: %q, not %q; address: %q, not %q", socket, c.ofSocket, address, c.ofAddress)
		}
	}
	if s := FaultOfAddress(netip.IPv4Unspecified()); s != "" {
		t.Errorf("an unspecified address: %q", s)
	}
}
