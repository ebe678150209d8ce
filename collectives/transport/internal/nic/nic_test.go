package nic

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFaults cuts an interface in each way, and checks what a socket on it and its address show.
func TestFaults(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with its network namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_SYS_ADMIN, for a network namespace")
	} else {
		must(t, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "near"
	near := netlink.NewVeth(attrs)
	near.PeerName = "far"
	must(t, netlink.LinkAdd(near))
	far, err := netlink.LinkByName("far")
	must(t, err)
	local := netip.MustParseAddr("10.9.8.7")
	must(t, netlink.AddrAdd(near, &netlink.Addr{IPNet: &net.IPNet{IP: local.AsSlice(), Mask: net.CIDRMask(24, 32)}}))
	must(t, netlink.LinkSetUp(near))
	must(t, netlink.LinkSetUp(far))
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer func() { must(t, unix.Close(fd)) }()
	if s := FaultOfSocket(fd); s != "" {
		t.Errorf("a socket without an interface: %q", s)
	}
	must(t, unix.BindToDevice(fd, "near"))
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
		must(t, c.cut())
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
