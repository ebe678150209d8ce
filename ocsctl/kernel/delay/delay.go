package delay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lightpath/ocsctl/kernel/loss"
)

const (
	frameBytes  = 10 + 18 + 1<<16 // header of an offload, Ethernet header with a tag, the longest joined frame
	sourceAt    = 10 + 6          // address of the sender
	queueBytes  = 32 << 20        // of a socket
	mostWaiting = 4096            // frames on the way; more are lost
)

// Delay delays the frames that arrive at ports of bridges.
type Delay struct {
	time    time.Duration
	links   *netlink.Handle
	ports   []port
	polls   []unix.PollFd // by port
	free    [][]byte
	waiting []frame // in the order in which they leave
	control [64]byte
	passed  uint64
	lost    uint64
}

// port is a port of a bridge. The kernel drops what arrives there, after this process has got a copy.
type port struct {
	link    netlink.Link
	drop    *loss.Interface
	in, out int // sockets: arriving frames, the bridge
	known   map[[6]byte]bool
}

// frame is a frame on its way.
type frame struct {
	data []byte
	due  int64 // ns, CLOCK_REALTIME
	out  int
}

// New begins to take frames from ports of bridges in the calling thread's namespace. They wait until Run. Close gives
// the ports back. It needs Linux 6.6, CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
func New(interfaces []string, by time.Duration) (*Delay, error) {
	links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("delay: %w", err)
	}
	d := &Delay{time: by, links: links}
	for _, name := range interfaces {
		p := port{in: -1, out: -1, known: map[[6]byte]bool{}}
		err := p.open(links, name)
		d.ports = append(d.ports, p)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("delay: interface %s: %w", name, err), d.Close())
		}
		d.polls = append(d.polls, unix.PollFd{Fd: int32(p.in), Events: unix.POLLIN})
	}
	return d, nil
}

func (p *port) open(links *netlink.Handle, name string) (err error) {
	if p.link, err = links.LinkByName(name); err != nil {
		return err
	}
	bridge, err := links.LinkByIndex(p.link.Attrs().MasterIndex)
	if err != nil || bridge.Type() != "bridge" {
		return errors.New("is no port of a bridge")
	}
	if p.in, err = packets(p.link.Attrs().Index, unix.ETH_P_ALL); err != nil {
		return err
	}
	if p.out, err = packets(bridge.Attrs().Index, 0); err != nil {
		return err
	}
	if p.drop, err = loss.Attach(name); err != nil {
		return err
	}
	return p.drop.Set(1)
}

// packets opens a socket for whole frames of an interface, each behind a virtio_net_hdr, so that joined frames stay
// joined. protocol 0: it gets none.
func packets(index, protocol int) (fd int, err error) {
	order := int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, uint16(protocol))))
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queueBytes},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, queueBytes},
	} {
		err = errors.Join(err, unix.SetsockoptInt(fd, o.level, o.name, o.value))
	}
	err = errors.Join(err, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(order), Ifindex: index}))
	if err != nil {
		return fd, fmt.Errorf("packet socket: %w", err)
	}
	return fd, nil
}

// Run delays frames until ctx ends. Only one goroutine may call it.
func (d *Delay) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The kernel may otherwise wake this thread 50 us late.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return err
	}
	for ctx.Err() == nil {
		wait := int64(100 * time.Millisecond) // then look at ctx
		if len(d.waiting) > 0 {
			wait = min(wait, max(0, d.waiting[0].due-time.Now().UnixNano()))
		}
		limit := unix.NsecToTimespec(wait)
		if _, err := unix.Ppoll(d.polls, &limit, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		d.send()
		for i := range d.ports {
			if d.polls[i].Revents == 0 {
				continue
			}
			if err := d.receive(&d.ports[i]); err != nil {
				return fmt.Errorf("delay: interface %s: %w", d.ports[i].link.Attrs().Name, err)
			}
		}
	}
	return nil
}

// receive takes the frames of a port. Between them it sends the frames that are due.
func (d *Delay) receive(p *port) error {
	for {
		b := d.buffer()
		n, m, _, _, err := unix.Recvmsg(p.in, b, d.control[:], 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			d.free = append(d.free, b)
			return nil
		case err != nil:
			return err
		case n < sourceAt+6 || len(d.waiting) >= mostWaiting:
			d.free = append(d.free, b)
			d.lost++
			continue
		}
		if err := d.learn(p, [6]byte(b[sourceAt:])); err != nil {
			return err
		}
		d.waiting = append(d.waiting, frame{b[:n], arrival(d.control[:m]) + int64(d.time), p.out})
		d.send()
	}
}

func (d *Delay) buffer() []byte {
	if n := len(d.free); n > 0 {
		b := d.free[n-1]
		d.free = d.free[:n-1]
		return b
	}
	return make([]byte, frameBytes)
}

// arrival returns the time of arrival in a control message, in ns.
func arrival(control []byte) int64 {
	if len(control) < unix.CmsgLen(int(unsafe.Sizeof(unix.Timespec{}))) {
		return time.Now().UnixNano()
	}
	t := (*unix.Timespec)(unsafe.Pointer(&control[unix.CmsgLen(0)]))
	return t.Nano()
}

// learn tells the bridge which hosts its port leads to. The bridge does not see the frames, so it cannot learn it.
func (d *Delay) learn(p *port, source [6]byte) error {
	if p.known[source] {
		return nil
	}
	p.known[source] = true
	return d.links.NeighSet(&netlink.Neigh{
		LinkIndex: p.link.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP, Flags: netlink.NTF_MASTER,
		HardwareAddr: net.HardwareAddr(source[:]),
	})
}

// send gives the bridge the frames that are due. A frame for which a queue has no room is lost, as in a switch.
func (d *Delay) send() {
	now, n := time.Now().UnixNano(), 0
	for ; n < len(d.waiting); n++ {
		f := &d.waiting[n]
		if left := f.due - now; left > 0 && left <= int64(d.time) { // longer: the clock was set back
			break
		}
		if _, err := unix.Write(f.out, f.data); err != nil {
			d.lost++
		} else {
			d.passed++
		}
		d.free = append(d.free, f.data[:frameBytes])
	}
	d.waiting = d.waiting[:copy(d.waiting, d.waiting[n:])]
}

// Counts returns how many frames have passed, and how many were lost on the way. Call it after Run has returned.
func (d *Delay) Counts() (passed, lost uint64) { return d.passed, d.lost }

// Close gives the ports back to the kernel. Frames on the way are lost.
func (d *Delay) Close() (err error) {
	for i := range d.ports {
		p := &d.ports[i]
		if p.drop != nil {
			err = errors.Join(err, p.drop.Close())
		}
		for _, fd := range []int{p.in, p.out} {
			if fd >= 0 {
				err = errors.Join(err, unix.Close(fd))
			}
		}
	}
	d.links.Close()
	return err
}
