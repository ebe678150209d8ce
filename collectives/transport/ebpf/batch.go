package ebpf

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/transport/internal/frames"
	"lightpath/collectives/wire"
)

// mmsghdr is the kernel's struct mmsghdr on 64-bit machines.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   uint32
}

// sendBatch is the memory of a sendmmsg call, whose frames all go to one rank.
type sendBatch struct {
	msgs  [sendFrames]mmsghdr
	iovs  [sendFrames][2]unix.Iovec
	heads [sendFrames][headSize]byte
}

func (b *sendBatch) init() {
	for i := range b.msgs {
		b.iovs[i][0].Base = &b.heads[i][0]
		b.iovs[i][0].SetLen(headSize)
		b.msgs[i].hdr.Iov = &b.iovs[i][0]
		b.msgs[i].hdr.SetIovlen(2)
	}
}

// add sets frame i. The caller still owns the payload.
func (b *sendBatch) add(i int, to *counts.RawAddr, h *wire.Header, sequence uint32, payload []byte) {
	encode(h, sequence, &b.heads[i])
	b.iovs[i][1].Base = &payload[0]
	b.iovs[i][1].SetLen(len(payload))
	b.msgs[i].hdr.Name = &to.Raw[0]
	b.msgs[i].hdr.Namelen = to.Len
}

// send sends the first n frames and returns the number that the kernel accepted.
func (b *sendBatch) send(fd, n int) (int, unix.Errno) {
	taken, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])),
		uintptr(n), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	for i := range n {
		b.iovs[i][1].Base = nil // do not keep a reference to the caller's memory
	}
	if errno != 0 {
		return 0, errno
	}
	return int(taken), 0
}

// recvBatch is the memory of a recvmmsg call. A frame that enters a queue is replaced by a free one.
type recvBatch struct {
	msgs   [recvFrames]mmsghdr
	iovs   [recvFrames]unix.Iovec
	addrs  [recvFrames]counts.RawAddr
	frames [recvFrames]*frames.Frame
}

func (b *recvBatch) init(p *frames.Pool) {
	for i := range b.msgs {
		b.msgs[i].hdr.Iov = &b.iovs[i]
		b.msgs[i].hdr.SetIovlen(1)
		b.msgs[i].hdr.Name = &b.addrs[i].Raw[0]
		b.use(i, p.Get())
	}
}

// use makes f the buffer of message i.
func (b *recvBatch) use(i int, f *frames.Frame) {
	b.frames[i] = f
	b.iovs[i].Base = &f.Buf[0]
	b.iovs[i].SetLen(len(f.Buf))
}

// receive receives datagrams and returns their number.
func (b *recvBatch) receive(fd int) (int, unix.Errno) {
	for i := range b.msgs {
		b.msgs[i].hdr.Namelen = uint32(len(b.addrs[i].Raw))
		b.msgs[i].hdr.Flags = 0
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])),
		recvFrames, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// datagram returns message i, and false if it was longer than a frame may be.
func (b *recvBatch) datagram(i int) ([]byte, bool) {
	m := &b.msgs[i]
	return b.frames[i].Buf[:m.len], m.hdr.Flags&unix.MSG_TRUNC == 0
}
