// Package kerneltest simulates several hosts on one machine for tests: namespaces whose interfaces are connected to one
// bridge per plane.
//
// Layer: ocsctl/kernel, for tests only.
package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/kernel/delay"
	"lightpath/ocsctl/kernel/loss"
)

// made numbers the namespaces of this process.
var made atomic.Int32

// Hosts makes n hosts, joined by an Ethernet per plane, and returns their namespaces. [Interface] names their
// interfaces. The end of the test removes them.
func Hosts(t testing.TB, n, planes, mtu int) []string {
	t.Helper()
	hosts, _ := Wired(t, n, planes, mtu)
	return hosts
}

// Ethernet joins hosts.
type Ethernet struct {
	h     *netlink.Handle
	name  string // of its namespace
	hosts int
}

// Plug connects or disconnects a plane's Ethernet, which then loses all frames silently.
func (e *Ethernet) Plug(t testing.TB, plane int, in bool) {
	t.Helper()
	br, err := e.h.LinkByName(bridge(plane))
	require.NoError(t, err)
	if in {
		require.NoError(t, e.h.LinkSetUp(br))
	} else {
		require.NoError(t, e.h.LinkSetDown(br))
	}
}

// Cut ends a host's connection to a plane. The host's interface loses its carrier, unless the cut is silent.
func (e *Ethernet) Cut(t testing.TB, host, plane int, silent bool) {
	t.Helper()
	l, err := e.h.LinkByName(socket(host, plane))
	require.NoError(t, err)
	if silent {
		require.NoError(t, e.h.LinkSetNoMaster(l))
	} else {
		require.NoError(t, e.h.LinkSetDown(l))
	}
}

// Lossy makes a plane lose frames of each host, at the rate of [loss.Interface.Set].
func (e *Ethernet) Lossy(t testing.TB, plane int) []*loss.Interface {
	t.Helper()
	all := make([]*loss.Interface, e.hosts)
	Within(t, e.name, func() (err error) {
		for host := 0; host < len(all) && err == nil; host++ {
			all[host], err = loss.Attach(socket(host, plane))
		}
		return err
	})
	t.Cleanup(func() {
		for _, l := range all {
			require.NoError(t, l.Close())
		}
	})
	return all
}

// Slow makes a plane delay the frames of each host, until the end of the test.
func (e *Ethernet) Slow(t testing.TB, plane int, by time.Duration) {
	t.Helper()
	var d *delay.Delay
	Within(t, e.name, func() (err error) {
		var ports []string
		for host := range e.hosts {
			ports = append(ports, socket(host, plane))
		}
		d, err = delay.New(ports, by)
		return err
	})
	await.Background(t, func(ctx context.Context) error { return errors.Join(d.Run(ctx), d.Close()) })
}

// Within runs f in a namespace. Sockets that f opens stay there.
func Within(t testing.TB, name string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread is in another namespace
		ns, err := netns.GetFromName(name)
		if err == nil {
			err = errors.Join(netns.Set(ns), ns.Close())
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	require.NoError(t, <-done)
}

// Sent returns the number of bytes that a host has sent on a plane.
func (e *Ethernet) Sent(t testing.TB, host, plane int) uint64 {
	t.Helper()
	l, err := e.h.LinkByName(socket(host, plane))
	require.NoError(t, err)
	return l.Attrs().Statistics.RxBytes
}

func bridge(plane int) string { return fmt.Sprintf("br%d", plane) }

// socket returns the name of the bridge's port for a host.
func socket(host, plane int) string { return fmt.Sprintf("h%dp%d", host, plane) }

// Wired is [Hosts] that also returns the Ethernet.
func Wired(t testing.TB, n, planes, mtu int) ([]string, *Ethernet) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	ethernet := namespace(t)
	h := handle(t, ethernet)
	for j := range planes {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = bridge(j), mtu
		br := &netlink.Bridge{LinkAttrs: attrs}
		require.NoError(t, errors.Join(h.LinkAdd(br), h.LinkSetUp(br)))
	}
	var all []string
	for i := range n {
		host := namespace(t)
		all = append(all, host)
		ns, err := netns.GetFromName(host)
		require.NoError(t, err)
		for j := range planes {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MTU = socket(i, j), mtu
			veth := netlink.NewVeth(attrs)
			veth.PeerName, veth.PeerNamespace, veth.PeerMTU = Interface(j), netlink.NsFd(ns), uint32(mtu)
			require.NoError(t, h.LinkAdd(veth))
			br, err := h.LinkByName(bridge(j))
			require.NoError(t, err)
			require.NoError(t, errors.Join(h.LinkSetMaster(veth, br), h.LinkSetUp(veth)))
		}
		require.NoError(t, ns.Close())
	}
	return all, &Ethernet{h, ethernet, n}
}

// Interface returns the name of a host's interface of a plane.
func Interface(plane int) string { return fmt.Sprintf("e%d", plane) }

// Links returns the names of a host's interfaces.
func Links(t testing.TB, host string) []string {
	t.Helper()
	links, err := handle(t, host).LinkList()
	require.NoError(t, err)
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return names
}

// namespace makes a namespace that the end of the test removes.
func namespace(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("lpt%d-%d", os.Getpid(), made.Add(1))
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with its namespace
		ns, err := netns.NewNamed(name)
		if err == nil {
			err = ns.Close()
		}
		done <- err
	}()
	require.NoError(t, <-done)
	t.Cleanup(func() {
		if err := netns.DeleteNamed(name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// handle returns a netlink handle of a namespace.
func handle(t testing.TB, name string) *netlink.Handle {
	t.Helper()
	ns, err := netns.GetFromName(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, ns.Close()) }()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}
