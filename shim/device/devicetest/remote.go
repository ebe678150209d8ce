package devicetest

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/shim/device"
)

// Remote is [Peers] whose memory other devices reach ([device.Remote]). A dma-buf is a file in memory.
type Remote struct {
	Peers
	*remote
}

type remote struct {
	late     atomic.Bool
	flushes  atomic.Int64
	exported atomic.Int64
	hold     atomic.Pointer[chan struct{}]
}

var _ device.Remote = Remote{}

// NewRemote is [New] for Remote.
func NewRemote(handler device.Handler, devices int) Remote {
	return Remote{NewPeers(handler, devices), &remote{}}
}

// NeedFlush makes the driver report that streams see writes of other devices only after FlushRemote, which waits for
// hold if hold is not nil.
func (r Remote) NeedFlush(hold chan struct{}) {
	if hold != nil {
		r.hold.Store(&hold)
	}
	r.late.Store(true)
}

// Flushes returns the number of calls of FlushRemote.
func (r Remote) Flushes() int { return int(r.flushes.Load()) }

// Exported returns the number of dma-bufs so far.
func (r Remote) Exported() int { return int(r.exported.Load()) }

// RemoteAccess implements [device.Remote].
func (r Remote) RemoteAccess() (device.RemoteAccess, error) {
	return device.RemoteAccess{DMABufs: true, Ordered: !r.late.Load(), Flushes: true}, r.entered("RemoteAccess")
}

// FlushRemote implements [device.Remote].
func (r Remote) FlushRemote() error {
	if hold := r.hold.Load(); hold != nil {
		<-*hold
	}
	r.flushes.Add(1)
	return r.entered("FlushRemote")
}

// ExportBuf implements [device.Remote].
func (r Remote) ExportBuf(at unsafe.Pointer, size int) (int, uint64, error) {
	if err := r.entered("ExportBuf"); err != nil {
		return -1, 0, err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	b := r.find(uintptr(at))
	if b == nil || b.fd == nil || uintptr(at)+uintptr(size) > b.at+uintptr(len(b.alias)) {
		return -1, 0, fmt.Errorf("ExportBuf: %p: %w", at, device.ErrDriver)
	}
	fd, err := unix.FcntlInt(b.fd.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		r.exported.Add(1)
	}
	return fd, uint64(uintptr(at) - b.at), err
}

// file is a file in memory.
func file(size int) (*os.File, error) {
	fd, err := unix.MemfdCreate("devicetest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "devicetest")
	return f, f.Truncate(int64(size))
}
