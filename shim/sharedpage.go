package shim

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sharedPage is a file in memory that this process has made for others to map: counters, say.
type sharedPage struct {
	fd  int
	mem []byte
}

func newSharedPage(name string, size int) (*sharedPage, error) {
	size = (size + pageBytes - 1) / pageBytes * pageBytes
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("shim: %s: %w", name, os.NewSyscallError("memfd_create", err))
	}
	p := &sharedPage{fd: fd}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		p.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("shim: %s: %w", name, err)
	}
	return p, nil
}

// pageBytes is what mappings are aligned to, and windows begin at multiples of.
const pageBytes = 4096

// counter is the one of a source.
func (p *sharedPage) counter(source int) *uint64 { return (*uint64)(unsafe.Pointer(&p.mem[8*source])) }

func (p *sharedPage) free() {
	if p != nil {
		_ = unix.Munmap(p.mem)
		_ = unix.Close(p.fd)
	}
}

// whereabouts is where another process of the host finds memory of this one: a part of a file that it
// can open by the number that this process has for it. Device and inode tell that it is that file.
type whereabouts struct {
	pid, fd  int32 // fd -1: nowhere
	dev, ino uint64
	offset   uint64
}

// whereIs describes memory to others.
func whereIs(fd int, offset int64) whereabouts {
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil {
		return whereabouts{fd: -1}
	}
	return whereabouts{pid: int32(os.Getpid()), fd: int32(fd), dev: st.Dev, ino: st.Ino, offset: uint64(offset)}
}

// mapShared maps memory of another process, nil where that cannot be.
func mapShared(w whereabouts, size int64) []byte {
	if w.fd < 0 || size <= 0 || size != int64(int(size)) || w.offset%pageBytes != 0 {
		return nil
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", w.pid, w.fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	// A file that is shorter than its part is said to be would be a trap.
	if unix.Fstat(fd, &st) != nil || st.Dev != w.dev || st.Ino != w.ino || uint64(st.Size) < w.offset || uint64(st.Size)-w.offset < uint64(size) {
		return nil
	}
	mem, err := unix.Mmap(fd, int64(w.offset), int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return mem
}
