package kernel

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// probeTime bounds a probe. A token takes microseconds, so only a wrong circuit or a very busy machine takes as long.
const probeTime = 500 * time.Millisecond

// Prober sends tokens over the circuits of a fabric on this host. Unlike light, a token proves that a circuit leads to
// the right port. Tokens have an Ethernet type of their own: they bypass the queues and counters of data, are never
// forwarded, and never reach a rank's socket. Safe for concurrent use, until Close.
type Prober struct {
	state *State
	mu    sync.Mutex // one probe at a time
	// ends holds sockets at the ranks' ends, by slot. They are opened at first use and kept, because closing one makes
	// the kernel wait for all its readers.
	ends map[int]int
}

// NewProber returns the prober of a fabric that is up. Needs CAP_SYS_ADMIN and CAP_NET_RAW.
func NewProber(s *State) *Prober { return &Prober{state: s, ends: make(map[int]int)} }

// ProberOf returns the prober of a fabric that is up on this host; false if it is not.
func ProberOf(f *fabric.Fabric) (*Prober, bool) {
	s, err := Load(Name(f))
	if err != nil || s.Digest != f.Digest() {
		return nil, false
	}
	return NewProber(s), true
}

// Close closes the prober's sockets.
func (p *Prober) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, fd := range p.ends {
		err = errors.Join(err, unix.Close(fd))
	}
	p.ends = nil
	return err
}

// token is the frame of a probe: IEEE's experimental Ethernet type, then these bytes.
type token struct {
	nonce    [16]byte
	from, to uint32
}

const tokenSize = 60 // the smallest Ethernet frame

func (t token) frame(plane int) []byte {
	f := make([]byte, 0, tokenSize)
	f = append(f, rankMAC(plane, int(t.to))...)
	f = append(f, rankMAC(plane, int(t.from))...)
	f = binary.BigEndian.AppendUint16(f, etherToken)
	f = append(f, t.nonce[:]...)
	f = binary.BigEndian.AppendUint32(f, t.from)
	f = binary.BigEndian.AppendUint32(f, t.to)
	return f[:tokenSize]
}

// Probe sends one token over each of a plane's circuits, and reports which tokens arrived at the right port before the
// context ended or probeTime had passed. The circuits must begin and end at different ports.
func (p *Prober) Probe(ctx context.Context, plane int, circuits []circuit.Pair) ([]bool, error) {
	s := p.state
	if plane < 0 || plane >= len(s.Planes) {
		return nil, fmt.Errorf("kernel: fabric %s: plane %d is outside 0..%d", s.Name, plane, len(s.Planes)-1)
	}
	fail := func(c circuit.Pair, err error) ([]bool, error) {
		return nil, fmt.Errorf("kernel: fabric %s: plane %s: token from port %d to %d: %w", s.Name, s.Planes[plane].Name,
			c.From, c.To, err)
	}
	var nonce [16]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, fmt.Errorf("kernel: token: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Open all receiving sockets first, so that no token arrives before its socket exists.
	ears := make([]unix.PollFd, len(circuits))
	mouths := make([]int, len(circuits))
	for i, c := range circuits {
		ear, err := p.end(plane, c.To)
		if err == nil {
			mouths[i], err = p.end(plane, c.From)
		}
		if err != nil {
			return fail(c, err)
		}
		ears[i] = unix.PollFd{Fd: int32(ear), Events: unix.POLLIN}
	}
	want := make([][]byte, len(circuits))
	for i, c := range circuits {
		want[i] = token{nonce, uint32(c.From), uint32(c.To)}.frame(plane)
		if _, err := unix.Write(mouths[i], want[i]); err != nil {
			return fail(c, err)
		}
	}
	return listen(ctx, ears, want, time.Now().Add(probeTime))
}

// listen waits until every socket has received its token, or until the deadline. It reads once more after the deadline,
// in case this process was stopped until then.
func listen(ctx context.Context, ears []unix.PollFd, want [][]byte, deadline time.Time) ([]bool, error) {
	heard := make([]bool, len(want))
	left := len(want)
	var buffer [2 * tokenSize]byte
	for over := false; left > 0 && !over; {
		wait := time.Until(deadline)
		over = wait <= 0 || ctx.Err() != nil
		if over {
			wait = 0
		}
		// Wait in slices, to notice the end of the context.
		timeout := unix.NsecToTimespec(int64(min(wait, 20*time.Millisecond)))
		if _, err := unix.Ppoll(ears, &timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("kernel: tokens: %w", err)
		}
		for i := range ears {
			for { // skip tokens of earlier probes
				n, _, err := unix.Recvfrom(int(ears[i].Fd), buffer[:], unix.MSG_DONTWAIT)
				if err != nil {
					break
				}
				if !heard[i] && bytes.Equal(buffer[:n], want[i]) {
					heard[i] = true
					left--
				}
			}
		}
	}
	return heard, nil
}

// end returns the socket at a rank's end of a plane, which receives only tokens.
func (p *Prober) end(plane, rank int) (int, error) {
	s := p.state
	if rank < 0 || rank >= s.Ranks {
		return -1, fmt.Errorf("port %d is outside 0..%d", rank, s.Ranks-1)
	}
	if !s.local(rank) {
		return -1, fmt.Errorf("port %d is not one of host %s", rank, s.Host)
	}
	if p.ends == nil {
		return -1, errors.New("the prober is closed")
	}
	if fd, ok := p.ends[s.slot(plane, rank)]; ok {
		return fd, nil
	}
	fd := -1
	err := within(s.Namespaces[rank], func() error {
		device, err := net.InterfaceByName(s.Planes[plane].Interface)
		if err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(native(etherToken)),
			Ifindex: device.Index}); err != nil {
			shutFD(fd)
			return fmt.Errorf("packet socket: %w", err)
		}
		p.ends[s.slot(plane, rank)] = fd
		return nil
	})
	return fd, err
}
