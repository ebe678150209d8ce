package kernel

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/vishvananda/netlink"
)

// queueLength is the most frames that wait in a queue of a port. It is out of reach: sockets stop
// at their send buffers, steered frames count against those of their senders, and credits bound
// both. So a queue never drops.
const queueLength = 100_000

// queues returns how many queues a port has: a power of two, enough for one per source of the
// frames that pass where ranks steer frames on.
func (s *State) queues() int {
	if !s.Forwarding {
		return 1
	}
	return min(1<<bits.Len(uint(s.Ranks-1)), maxQueues)
}

// wireRate is what a port of a plane is shaped to, in bits per second of whole frames: as much as
// gives full frames the plane's rate in payload.
func (s *State) wireRate(plane int) int64 {
	frame := float64(s.MTU + ethHeader)
	return int64(float64(s.Planes[plane].Rate) * frame / (frame - float64(s.Overhead)))
}

// shape gives an interface its rate in bits per second, Ethernet headers included. The qdisc is
// HTB: one class has the rate, and its leaves, one per source, share it by deficit round robin; the
// direct queue passes it by. Of the kernel's qdiscs it is the only one that is in all of them, has a
// bucket like TBF's and is fair.
func shape(h *netlink.Handle, index int, rate int64, mtu, queues int) error {
	root := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(queueMajor, 0),
		Parent: netlink.HANDLE_ROOT})
	root.Defcls = queueFirst
	if err := h.QdiscAdd(root); err != nil {
		return fmt.Errorf("qdisc htb: %w", err)
	}
	frame := int64(mtu + ethHeader)
	class := func(parent, minor uint16, assured int64) error {
		err := h.ClassAdd(netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: index, Parent: netlink.MakeHandle(queueMajor, parent),
				Handle: netlink.MakeHandle(queueMajor, minor)},
			netlink.HtbClassAttrs{
				Rate: uint64(assured), Ceil: uint64(rate), Quantum: uint32(frame),
				Buffer: bucket(assured, frame), Cbuffer: bucket(rate, frame),
			},
		))
		if err != nil {
			return fmt.Errorf("class %d:%d: %w", queueMajor, minor, err)
		}
		return nil
	}
	if err := class(0, queueRoot, rate); err != nil {
		return err
	}
	for q := range queues {
		if err := class(queueRoot, queueFirst+uint16(q), rate/int64(queues)); err != nil {
			return err
		}
	}
	return nil
}

// bucket is the depth in bytes of the bucket of a class: two frames, or what passes while a timer is
// late. With less, late timers cost rate; with more, what follows a pause is faster than the wire.
func bucket(rate, frame int64) uint32 {
	return uint32(max(2*frame, int64(float64(rate)/8*timerLag.Seconds())))
}

// timerLag is how late the kernel's timers are on a busy machine, as a rule.
const timerLag = 50 * time.Microsecond
