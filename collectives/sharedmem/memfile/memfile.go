package memfile

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Place describes memory to other processes of the host: a part of a file, which they open by this process's number of
// it. Device and inode identify the file.
type Place struct {
	PID, FD  int32 // FD is -1 for no place
	Dev, Ino uint64
	Offset   uint64
}

// Page is the alignment of mappings: the offset of a place that can be mapped is a multiple of it.
const Page = 4096

// hugePage is the alignment of large mappings and their files, so that they can have large pages.
const hugePage = 2 << 20

// Errors of [Map].
var (
	ErrNowhere = errors.New("memory that is in no file")
	ErrChanged = errors.New("another file has its number now")
)

// Find returns the place of memory at an offset of a file of this process.
func Find(fd int, offset int64) Place {
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil {
		return Place{FD: -1}
	}
	return Place{PID: int32(os.Getpid()), FD: int32(fd), Dev: st.Dev, Ino: st.Ino, Offset: uint64(offset)}
}

// Map maps size bytes at a place for reading, and for writing if writable. A child made by fork does not have the
// mapping. [Unmap] ends it.
func Map(p Place, size int64, writable bool) ([]byte, error) {
	if p.FD < 0 || size <= 0 || size != int64(int(size)) || p.Offset%Page != 0 {
		return nil, fmt.Errorf("memfile: %d bytes at %d: %w", size, p.Offset, ErrNowhere)
	}
	flags, prot := unix.O_RDONLY, unix.PROT_READ
	if writable {
		flags, prot = unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", p.PID, p.FD)
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0) // it may be another file by now
	if err != nil {
		return nil, fmt.Errorf("memfile: %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	// If the file were shorter, access behind its end would kill the process.
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != p.Dev || st.Ino != p.Ino || uint64(st.Size) < p.Offset ||
		uint64(st.Size)-p.Offset < uint64(size) {
		return nil, fmt.Errorf("memfile: %s: %w", path, ErrChanged)
	}
	at, err := place(fd, p.Offset, uintptr(size), prot)
	if err != nil {
		return nil, fmt.Errorf("memfile: %d bytes of %s: %w", size, path, err)
	}
	mem := unsafe.Slice((*byte)(at), size)
	_ = unix.Madvise(mem, unix.MADV_DONTFORK) // a child would only keep the file in use
	return mem, nil
}

// place maps a file at an address that allows large pages.
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
