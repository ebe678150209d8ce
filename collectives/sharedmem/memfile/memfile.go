// Package memfile finds files in memory by what another process of the host says of them, and maps them.
//
// Layer: inside collectives; it imports nothing of them.
package memfile

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Place is where another process of the host finds memory of this one: a part of a file that it
// can open by the number that this process has for it. Device and inode tell that it is that file.
type Place struct {
	PID, FD  int32 // FD -1: nowhere
	Dev, Ino uint64
	Offset   uint64
}

// Page is what mappings are aligned to: places that can be mapped begin at multiples of it.
const Page = 4096

// hugePage is what large mappings are aligned to, like their files, so that these can have pages as large.
const hugePage = 2 << 20

// Errors of [Map].
var (
	ErrNowhere = errors.New("memory that is in no file")
	ErrChanged = errors.New("not the file that was meant")
)

// Find describes memory at an offset of a file of this process to others.
func Find(fd int, offset int64) Place {
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil {
		return Place{FD: -1}
	}
	return Place{PID: int32(os.Getpid()), FD: int32(fd), Dev: st.Dev, Ino: st.Ino, Offset: uint64(offset)}
}

// Map maps size bytes at a place, to be read, and written where writable. A child of fork does not get them. [Unmap] gives them back.
func Map(p Place, size int64, writable bool) ([]byte, error) {
	if p.FD < 0 || size <= 0 || size != int64(int(size)) || p.Offset%Page != 0 {
		return nil, fmt.Errorf("memfile: %d bytes at %d: %w", size, p.Offset, ErrNowhere)
	}
	flags, prot := unix.O_RDONLY, unix.PROT_READ
	if writable {
		flags, prot = unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", p.PID, p.FD)
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0) // whatever it is by now
	if err != nil {
		return nil, fmt.Errorf("memfile: %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	// A file that is shorter than its part is said to be would be a trap.
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != p.Dev || st.Ino != p.Ino || uint64(st.Size) < p.Offset || uint64(st.Size)-p.Offset < uint64(size) {
		return nil, fmt.Errorf("memfile: %s: %w", path, ErrChanged)
	}
	at, err := place(fd, p.Offset, uintptr(size), prot)
	if err != nil {
		return nil, fmt.Errorf("memfile: %d bytes of %s: %w", size, path, err)
	}
	mem := unsafe.Slice((*byte)(at), size)
	_ = unix.Madvise(mem, unix.MADV_DONTFORK) // it would only keep the file
	return mem, nil
}

// place maps a file where its large pages can be mapped as such.
func place(fd int, offset uint64, size uintptr, prot int) (unsafe.Pointer, error) {
	if size < hugePage || offset%hugePage != 0 {
		return unix.MmapPtr(fd, int64(offset), nil, size, prot, unix.MAP_SHARED)
	}
	room, err := unix.MmapPtr(-1, 0, nil, size+hugePage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	before := -uintptr(room) % hugePage
	at, err := unix.MmapPtr(fd, int64(offset), unsafe.Add(room, before), size, prot, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.MunmapPtr(room, size+hugePage)
		return nil, err
	}
	if before > 0 {
		_ = unix.MunmapPtr(room, before)
	}
	if end := (size + Page - 1) / Page * Page; before+end < size+hugePage {
		_ = unix.MunmapPtr(unsafe.Add(at, end), size+hugePage-before-end)
	}
	return at, nil
}

// Unmap ends a mapping of [Map].
func Unmap(mem []byte) {
	if len(mem) > 0 {
		_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
	}
}
