package shm

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/collectives/transport/internal/mesh"

	"golang.org/x/sys/unix"
)

// A segment begins with a header, little endian: magic u64, version u32, ranks u32, planes u32, slots u32,
// payload u32, arrivals u32 (atomic), shared u64. Then come the memory of the geometry and the shared bytes of
// [transport.Sharer].
const (
	headerSize    = 4096
	magic         = 0x0031474553485054 // "TPHSEG1"
	version       = 2
	atVersion     = 8
	atGeometry    = 12
	atArrivals    = 28
	atShared      = 32
	maxSegment    = 1 << 40
	namePrefix    = "lightpath-"
	abandonedTime = time.Minute
)

var nameForm = regexp.MustCompile(`^` + namePrefix + `[0-9a-f]{32}$`)

// segmentSize returns the size of a segment with shared bytes behind the rings.
func segmentSize(g mesh.Geometry, shared int) int { return headerSize + g.Size() + shared }

func arrivals(seg []byte) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&seg[atArrivals]))
}

// format writes the header of a new segment. The bytes behind the geometry's memory are shared.
func format(seg []byte, g mesh.Geometry) {
	le := binary.LittleEndian
	le.PutUint32(seg[atVersion:], version)
	for i, v := range []int{g.Ranks, g.Planes, g.Slots, g.Payload} {
		le.PutUint32(seg[atGeometry+4*i:], uint32(v))
	}
	le.PutUint64(seg[atShared:], uint64(len(seg)-segmentSize(g, 0)))
	le.PutUint64(seg, magic)
}

// parse checks the header of a segment against its size.
func parse(seg []byte) (mesh.Geometry, error) {
	le := binary.LittleEndian
	if len(seg) < headerSize || le.Uint64(seg) != magic {
		return mesh.Geometry{}, fmt.Errorf("%w: no segment header", ErrNotSegment)
	}
	if v := le.Uint32(seg[atVersion:]); v != version {
		return mesh.Geometry{}, fmt.Errorf("%w: version %d, want %d", ErrNotSegment, v, version)
	}
	var v [4]int
	for i := range v {
		v[i] = int(le.Uint32(seg[atGeometry+4*i:]))
	}
	g := mesh.Geometry{Ranks: v[0], Planes: v[1], Slots: v[2], Payload: v[3]}
	if err := g.Check(); err != nil {
		return g, fmt.Errorf("%w: %w", ErrNotSegment, err)
	}
	if shared := le.Uint64(seg[atShared:]); shared > maxSegment || segmentSize(g, int(shared)) != len(seg) {
		return g, fmt.Errorf("%w: %d bytes, its header says %d and %d shared",
			ErrNotSegment, len(seg), segmentSize(g, 0), shared)
	}
	return g, nil
}

// newFile creates and locks a file under a random name.
func newFile(dir string) (string, *os.File, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", nil, fmt.Errorf("shm: %w", err)
	}
	name := namePrefix + hex.EncodeToString(id[:])
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("shm: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		os.Remove(f.Name())
		f.Close()
		return "", nil, fmt.Errorf("shm: lock %s: %w", f.Name(), err)
	}
	return name, f, nil
}

// openFile opens the file of an existing segment and returns its size. It rejects files that cannot be segments.
func openFile(dir, name string) (*os.File, int, error) {
	if !nameForm.MatchString(name) {
		return nil, 0, fmt.Errorf("%w: bad name %q", ErrNotSegment, name)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("shm: %w", err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	switch {
	case err != nil:
		err = fmt.Errorf("shm: %w", err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid():
		err = fmt.Errorf("%w: %s is not a private file of this user", ErrNotSegment, f.Name())
	case st.Size < headerSize || st.Size > maxSegment:
		err = fmt.Errorf("%w: %s has %d bytes", ErrNotSegment, f.Name(), st.Size)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, int(st.Size), nil
}

// removeAbandoned removes the files in dir of processes that died before all their peers had attached. A file is
// abandoned if no process locks it. removeAbandoned skips young files, whose creator may not have locked them yet.
func removeAbandoned(dir string) {
	paths, err := filepath.Glob(filepath.Join(dir, namePrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		if !nameForm.MatchString(filepath.Base(path)) {
			continue
		}
		if st, err := os.Lstat(path); err != nil || time.Since(st.ModTime()) < abandonedTime {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue // the file belongs to another user
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(path)
		}
		f.Close()
	}
}

// mapping is a shared mapping of a whole file.
type mapping struct {
	path string
	at   unsafe.Pointer
	size uintptr
}

func mapFile(f *os.File, size int) (*mapping, error) {
	at, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shm: map %s: %w", f.Name(), err)
	}
	m := &mapping{f.Name(), at, uintptr(size)}
	// Forked children do not use the segment, and would keep its memory allocated.
	_ = unix.Madvise(m.bytes(), unix.MADV_DONTFORK)
	return m, nil
}

func (m *mapping) bytes() []byte { return unsafe.Slice((*byte)(m.at), m.size) }

// drop releases the segment's memory but keeps the addresses mapped to empty pages, because another goroutine may
// still be inside a call when the endpoint is closed.
func (m *mapping) drop() {
	// If this fails, the segment stays mapped until the endpoint is unreachable.
	_, _ = unix.MmapPtr(-1, 0, m.at, m.size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
}

// free unmaps the segment. No code may access it afterwards.
func (m *mapping) free() { _ = unix.MunmapPtr(m.at, m.size) }
