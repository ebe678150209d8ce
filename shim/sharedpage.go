package shim

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/sharedmem/memfile"
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
const pageBytes = memfile.Page

// counter is the one of a source.
func (p *sharedPage) counter(source int) *uint64 { return (*uint64)(unsafe.Pointer(&p.mem[8*source])) }

func (p *sharedPage) free() {
	if p != nil {
		_ = unix.Munmap(p.mem)
		_ = unix.Close(p.fd)
	}
}
