package kernel

import (
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Check tests the requirements of a fabric on this host, in a temporary namespace: root, a bpf file system, TCX, veth
// and HTB. It leaves nothing behind.
func Check() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("kernel: not root")
	}
	if _, err := os.Stat(bpfDir); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked, see within
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("kernel: namespace: %w", err)
			return
		}
		done <- try()
	}()
	return <-done
}

// try builds one port in the thread's namespace.
func try() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index = "lp0", indexBase
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "lp1"
	if err := h.LinkAdd(veth); err != nil {
		return fmt.Errorf("kernel: veth: %w", err)
	}
	if err := shape(h, indexBase, 1e9, DefaultMTU, 1); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: countersSize, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return fmt.Errorf("kernel: eBPF map: %w", err)
	}
	defer shut(m)
	p, err := load(egressProgram(tables{counters: m.FD()}, 0, 0, 0, 1))
	if err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	defer shut(p)
	l, err := link.AttachTCX(link.TCXOptions{Interface: indexBase, Program: p, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return fmt.Errorf("kernel: TCX (Linux 6.6): %w", err)
	}
	return l.Close()
}
