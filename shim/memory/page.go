package memory

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/sharedmem/memfile"
)

// PageSize is the alignment of mappings.
const PageSize = memfile.Page

// Page is a file in memory, such as a page of counters, that this process has made for other processes to map.
type Page struct {
	FD  int
	Mem []byte
}

// NewPage makes a page of at least size bytes.
func NewPage(name string, size int) (*Page, error) {
	size = (size + PageSize - 1) / PageSize * PageSize
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("shim: %s: %w", name, os.NewSyscallError("memfd_create", err))
	}
	p := &Page{FD: fd}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		p.Mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("shim: %s: %w", name, err)
	}
	return p, nil
}

// Counter returns the i-th counter of a page of counters.
func (p *Page) Counter(i int) *uint64 { return (*uint64)(unsafe.Pointer(&p.Mem[8*i])) }

// Free unmaps the page here. Other processes keep their mappings. A nil page is no error.
func (p *Page) Free() {
	if p != nil {
		_ = unix.Munmap(p.Mem)
		_ = unix.Close(p.FD)
	}
}
