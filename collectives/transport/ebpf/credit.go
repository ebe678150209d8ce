package ebpf

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A credit message says how many frames of its receiver the sender has consumed, by plane:
//
//	0 magic u32    4 version u16    6 flags u16 (1: the same is wanted in return)
//	8 comm u64    16 src u16       18 dst u16      20 planes u16    22 zero u16
//	24 consumed u64 per plane, then 16 bytes of HMAC-SHA256 under the communicator's secret
//
// little endian. Counts only rise, so the largest is the latest.
const (
	creditMagic   = 0x5243504c // "LPCR"
	creditVersion = 1
	creditAsk     = 1
	creditHead    = 24
	creditMAC     = 16
	// creditParts: consuming this part of a window is worth a message.
	creditParts = 4
	// creditBurst bounds the messages that one sweep reads.
	creditBurst = 64
)

// control is an endpoint's socket on the control network.
type control struct {
	fd    int
	comm  uint64
	names []name // of the ranks' control sockets
	mac   hash.Hash
	sum   [sha256.Size]byte
	out   []byte
	in    []byte // with room for one byte more than a message has
	from  name
	bad   uint64 // messages that were not credits of this communicator
}

func (c *control) init(fd int, o *Options) {
	c.fd, c.comm = fd, o.Comm
	for r := range o.Addrs {
		c.names = append(c.names, newName(o.Addrs[r].Control))
	}
	c.mac = hmac.New(sha256.New, o.Secret[:])
	size := creditHead + 8*len(o.Addrs[o.Rank].Planes) + creditMAC
	c.out, c.in = make([]byte, size), make([]byte, size+1)
}

// sign returns the MAC of a message's body, valid until the next.
func (c *control) sign(body []byte) []byte {
	c.mac.Reset()
	_, _ = c.mac.Write(body) // never fails
	return c.mac.Sum(c.sum[:0])[:creditMAC]
}

// tell sends a rank what has been consumed of its frames. A message that does not get through
// is asked for.
// Hot path: no allocation, no logging.
func (e *Endpoint) tell(rank int, ask bool) {
	c, le := &e.control, binary.LittleEndian
	b := c.out
	le.PutUint32(b[0:], creditMagic)
	le.PutUint16(b[4:], creditVersion)
	le.PutUint16(b[6:], 0)
	if ask {
		le.PutUint16(b[6:], creditAsk)
	}
	le.PutUint64(b[8:], c.comm)
	le.PutUint16(b[16:], uint16(e.rank))
	le.PutUint16(b[18:], uint16(rank))
	le.PutUint16(b[20:], uint16(len(e.planes)))
	le.PutUint16(b[22:], 0)
	for i, p := range e.planes {
		from := &p.peers[rank]
		from.told = from.next
		le.PutUint64(b[creditHead+8*i:], from.told)
	}
	end := len(b) - creditMAC
	copy(b[end:], c.sign(b[:end]))
	to := &c.names[rank]
	_, _, _ = unix.Syscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(&to.raw[0])), uintptr(to.len))
}

// askForCredits asks every rank that this one waits for.
func (e *Endpoint) askForCredits() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return
	}
	for rank := range e.control.names {
		for _, p := range e.planes {
			if p.peers[rank].blocked {
				e.tell(rank, true)
				break
			}
		}
	}
}

// readCredits takes the messages that have come. The caller holds mu.
// Hot path: no allocation, no logging.
func (e *Endpoint) readCredits() {
	c := &e.control
	for range creditBurst {
		size := uint32(len(c.from.raw))
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&c.in[0])), uintptr(len(c.in)),
			unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&c.from.raw[0])), uintptr(unsafe.Pointer(&size)))
		if errno == unix.EAGAIN {
			return
		}
		if errno != 0 || !e.credit(c.in[:n]) {
			c.bad++
		}
	}
	e.Wake() // there may be more, and no edge will say so
}

// credit acts on one message from the socket named c.from, and reports whether it was one.
func (e *Endpoint) credit(b []byte) bool {
	c, le := &e.control, binary.LittleEndian
	if len(b) != len(c.out) {
		return false
	}
	src := int(le.Uint16(b[16:]))
	end := len(b) - creditMAC
	switch {
	case le.Uint32(b[0:]) != creditMagic || le.Uint16(b[4:]) != creditVersion || le.Uint16(b[6:])&^creditAsk != 0,
		le.Uint64(b[8:]) != c.comm || int(le.Uint16(b[18:])) != e.rank,
		src >= len(c.names) || src == e.rank || !c.from.same(&c.names[src]),
		int(le.Uint16(b[20:])) != len(e.planes) || le.Uint16(b[22:]) != 0,
		!hmac.Equal(b[end:], c.sign(b[:end])):
		return false
	}
	for i, p := range e.planes {
		to := &p.peers[src]
		if n := le.Uint64(b[creditHead+8*i:]); n > to.consumed && n <= to.sent {
			to.consumed, to.blocked = n, false
			e.pace.credited()
		}
	}
	if le.Uint16(b[6:]) == creditAsk {
		e.tell(src, false)
	}
	return true
}
