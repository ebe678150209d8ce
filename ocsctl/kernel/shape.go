package kernel

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/vishvananda/netlink"
)

// queueLength is the limit of a port's queue, in frames. It is never reached: send buffers limit the frames of sockets,
// also frames that others forward, and credits limit both. So a queue never drops.
const queueLength = 100_000

// queues returns the number of queues of a port: a power of two. With forwarding there is at least one per source.
func (s *State) queues() int {
	if !s.Forwarding {
		return 1
	}
	return min(1<<bits.Len(uint(s.Ranks-1)), maxQueues)
}

// wireRate returns the rate to which a port is shaped, in bits per second of whole frames. At this rate, the payload of
// full frames has the plane's rate.
func (s *State) wireRate(plane int) int64 {
	frame := float64(s.MTU + ethHeader)
	return int64(float64(s.Planes[plane].Rate) * frame / (frame - float64(s.Overhead)))
}

// shape limits an interface to a rate in bits per second, including Ethernet headers. The qdisc is HTB: one class has
// the rate, and its leaves, one per source, share it by deficit round robin. The direct queue bypasses the class. Only
// HTB is part of all kernels, has a token bucket, and is fair.
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

// bucket returns the size in bytes of a class's bucket: two frames, or the bytes that pass while a timer is late. With
// a smaller bucket, late timers reduce the rate, and steps of few frames take 5 to 15 % longer than planned. With a
// larger one, frames after a pause exceed the rate.
func bucket(rate, frame int64) uint32 {
	return uint32(max(2*frame, int64(float64(rate)/8*timerLag.Seconds())))
}

// timerLag is the usual delay of the kernel's timers on a busy machine.
const timerLag = 50 * time.Microsecond
