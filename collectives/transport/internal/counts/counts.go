package counts

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The encoding of a message, little endian:
//
//	0 magic u32    4 version u16    6 flags u16
//	8 comm u64     16 src u16       18 dst u16      20 counts u16    22 zero u16
//	24 count u64 each, then 16 bytes of HMAC-SHA256 under the communicator's secret
//
// Counts only rise, so the largest is the latest. Messages may be lost, repeated or late.
const (
	magic    = 0x5243504c // "LPCR"
	version  = 1
	headSize = 24
	macSize  = 16
	// SecretSize is the size of a communicator's secret in bytes.
	SecretSize = 32
)

// Flags of a message.
const (
	Request  = 1 << iota // the receiver shall answer with its counts
	Closing              // the sender closes; these are its last counts
	allFlags = Request | Closing
)

// Options describe a rank's socket. All fields except Rank are the same at all ranks of the communicator.
type Options struct {
	Rank   int
	Addrs  []netip.AddrPort // of all ranks' sockets
	Comm   uint64
	Counts int // number of counts in a message
	Secret [SecretSize]byte
}

// Socket exchanges counts with all other ranks. One goroutine at a time uses it.
type Socket struct {
	fd      int
	rank    int
	comm    uint64
	addrs   []RawAddr
	mac     hash.Hash
	sum     [sha256.Size]byte
	out, in []byte // in is one byte longer than a message, to detect longer ones
	from    RawAddr
}

// Listen opens a non-blocking socket at "host:port" and returns its address. Port 0 picks a free port.
func Listen(addr string) (fd int, at netip.AddrPort, err error) {
	ua, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return -1, at, fmt.Errorf("control address %q: %w", addr, err)
	}
	at = ua.AddrPort()
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if !at.Addr().IsValid() || at.Addr().IsUnspecified() {
		return -1, at, fmt.Errorf("control address %q names no host", addr)
	}
	raw := NewRawAddr(at)
	if fd, err = unix.Socket(raw.Family(), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, at, fmt.Errorf("control socket: %w", err)
	}
	if err = unix.Bind(fd, Sockaddr(at)); err == nil {
		var sa unix.Sockaddr
		if sa, err = unix.Getsockname(fd); err == nil {
			at, err = AddrPort(sa)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, at, fmt.Errorf("control address %q: %w", addr, err)
	}
	return fd, at, nil
}

// New returns a Socket that uses a descriptor of [Listen]. The caller still owns the descriptor.
func New(fd int, o Options) *Socket {
	s := &Socket{fd: fd, rank: o.Rank, comm: o.Comm, mac: hmac.New(sha256.New, o.Secret[:])}
	for _, a := range o.Addrs {
		s.addrs = append(s.addrs, NewRawAddr(a))
	}
	size := headSize + 8*o.Counts + macSize
	s.out, s.in = make([]byte, size), make([]byte, size+1)
	return s
}

// FD returns the descriptor.
func (s *Socket) FD() int { return s.fd }

// Put sets the i-th count of the next message.
func (s *Socket) Put(i int, count uint64) { binary.LittleEndian.PutUint64(s.out[headSize+8*i:], count) }

// Send sends the counts to a rank. The network may lose them.
// Hot path: no allocation, no logging.
func (s *Socket) Send(rank int, flags uint16) {
	s.encode(rank, flags)
	b, to := s.out, &s.addrs[rank]
	_, _, _ = unix.Syscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(&to.Raw[0])), uintptr(to.Len))
}

// encode completes the message in s.out: the header before the counts and the MAC behind them.
func (s *Socket) encode(rank int, flags uint16) {
	b, le := s.out, binary.LittleEndian
	le.PutUint32(b[0:], magic)
	le.PutUint16(b[4:], version)
	le.PutUint16(b[6:], flags)
	le.PutUint64(b[8:], s.comm)
	le.PutUint16(b[16:], uint16(s.rank))
	le.PutUint16(b[18:], uint16(rank))
	le.PutUint16(b[20:], uint16((len(b)-headSize-macSize)/8))
	le.PutUint16(b[22:], 0)
	end := len(b) - macSize
	copy(b[end:], s.sign(b[:end]))
}

// sign returns the MAC of a message's body, valid until the next call.
func (s *Socket) sign(body []byte) []byte {
	s.mac.Reset()
	_, _ = s.mac.Write(body) // never fails
	return s.mac.Sum(s.sum[:0])[:macSize]
}

// Receive reads the next message and returns its sender and flags; Count then returns its counts. If no message has
// arrived, more is false. If the message is not one of this communicator, src is -1.
// Hot path: no allocation, no logging.
func (s *Socket) Receive() (src int, flags uint16, more bool) {
	size := uint32(len(s.from.Raw))
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&s.in[0])),
		uintptr(len(s.in)), unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&s.from.Raw[0])), uintptr(unsafe.Pointer(&size)))
	switch errno {
	case 0:
		if src = s.sender(s.in[:n]); src < 0 {
			return -1, 0, true
		}
		return src, binary.LittleEndian.Uint16(s.in[6:]), true
	case unix.EAGAIN, unix.EBADF:
		return -1, 0, false
	}
	return -1, 0, true // the kernel reports an error of an earlier message; the next message may have arrived
}

// Count returns the i-th count of the message that Receive read last.
func (s *Socket) Count(i int) uint64 { return binary.LittleEndian.Uint64(s.in[headSize+8*i:]) }

// sender checks a message that came from the address s.from. It returns the rank that sent the message, or -1.
func (s *Socket) sender(b []byte) int {
	le := binary.LittleEndian
	if len(b) != len(s.out) {
		return -1
	}
	src, end := int(le.Uint16(b[16:])), len(b)-macSize
	switch {
	case le.Uint32(b[0:]) != magic || le.Uint16(b[4:]) != version || le.Uint16(b[6:])&^allFlags != 0,
		le.Uint64(b[8:]) != s.comm || int(le.Uint16(b[18:])) != s.rank,
		src >= len(s.addrs) || src == s.rank || !s.from.Equal(&s.addrs[src]),
		int(le.Uint16(b[20:])) != (end-headSize)/8 || le.Uint16(b[22:]) != 0,
		!hmac.Equal(b[end:], s.sign(b[:end])):
		return -1
	}
	return src
}
