package ebpf

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/wire"
)

// mmsghdr is the kernel's struct mmsghdr on 64-bit machines.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   uint32
}

// sendBatch is the memory of a sendmmsg: frames to one rank.
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

// add makes frame i of payload, which stays the caller's.
func (b *sendBatch) add(i int, to *counts.RawAddr, h *wire.Header, sequence uint32, payload []byte) {
	encode(h, sequence, &b.heads[i])
	b.iovs[i][1].Base = &payload[0]
	b.iovs[i][1].SetLen(len(payload))
	b.msgs[i].hdr.Name = &to.Raw[0]
	b.msgs[i].hdr.Namelen = to.Len
}

// send gives the first n frames to the kernel and returns how many it has taken.
func (b *sendBatch) send(fd, n int) (int, unix.Errno) {
	taken, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])),
		uintptr(n), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	for i := range n {
		b.iovs[i][1].Base = nil // the caller's memory is not ours to keep
	}
	if errno != 0 {
		return 0, errno
	}
	return int(taken), 0
}

// frame is a received datagram.
type frame struct {
	hdr  wire.Header
	data []byte // the payload, in buf
	buf  []byte
	next *frame // of the pool
}

// pool is the frames of a plane that hold nothing. It grows to what was once needed and keeps
// that, so the steady state does not allocate; windows bound it.
type pool struct {
	free *frame
	size int // of a buffer
}

func (p *pool) get() *frame {
	f := p.free
	if f == nil {
		return &frame{buf: make([]byte, p.size)}
	}
	p.free = f.next
	return f
}

func (p *pool) put(f *frame) {
	f.data = nil
	f.next = p.free
	p.free = f
}

// recvBatch is the memory of a recvmmsg: frames that datagrams are received into, and replaced
// by others once they are in a queue.
type recvBatch struct {
	msgs   [recvFrames]mmsghdr
	iovs   [recvFrames]unix.Iovec
	names  [recvFrames]counts.RawAddr
	frames [recvFrames]*frame
}

func (b *recvBatch) init(p *pool) {
	for i := range b.msgs {
		b.msgs[i].hdr.Iov = &b.iovs[i]
		b.msgs[i].hdr.SetIovlen(1)
		b.msgs[i].hdr.Name = &b.names[i].Raw[0]
		b.use(i, p.get())
	}
}

// use receives message i into f from now on.
func (b *recvBatch) use(i int, f *frame) {
	b.frames[i] = f
	b.iovs[i].Base = &f.buf[0]
	b.iovs[i].SetLen(len(f.buf))
}

// receive returns how many datagrams it got.
func (b *recvBatch) receive(fd int) (int, unix.Errno) {
	for i := range b.msgs {
		b.msgs[i].hdr.Namelen = uint32(len(b.names[i].Raw))
		b.msgs[i].hdr.Flags = 0
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])),
		recvFrames, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// datagram returns message i, and false where it was longer than a frame may be.
func (b *recvBatch) datagram(i int) ([]byte, bool) {
	m := &b.msgs[i]
	return b.frames[i].buf[:m.len], m.hdr.Flags&unix.MSG_TRUNC == 0
}
