package shm

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/mesh"

	"golang.org/x/sys/unix"
)

// DefaultDir is the directory for segments.
const DefaultDir = "/dev/shm"

// Errors of Create and Attach.
var (
	// ErrNoSpace reports that the memory file system cannot hold even the smallest segment.
	ErrNoSpace = errors.New("shm: not enough shared memory")
	// ErrNotSegment reports a file that is not a segment of this version, user and communicator.
	ErrNotSegment = errors.New("shm: not a segment of this communicator")
)

// Options describe one rank's view of a segment.
type Options struct {
	Ranks, Planes int
	Rank          int
	// Shared is the size of the memory of [transport.Sharer] in bytes, a multiple of 64. If the file system has too
	// little room, the endpoint has none. Attach ignores this field.
	Shared int

	// Tests set these: the directory, and the size of the rings in bytes, which is exceeded only if the smallest rings do
	// not fit.
	dir    string
	budget int
}

func (o *Options) fill() {
	o.dir = cmp.Or(o.dir, DefaultDir)
	o.budget = cmp.Or(o.budget, o.Ranks*mesh.BudgetPerRank)
}

// Create creates a segment and attaches to it as o.Rank. The other ranks pass the name to Attach. Results of Peek are
// valid only as long as the endpoint is reachable.
func Create(o Options) (name string, e transport.Endpoint, err error) {
	o.fill()
	probe := mesh.Geometry{Ranks: o.Ranks, Planes: o.Planes, Slots: 1, Payload: 8}
	if err := probe.Check(); err != nil {
		return "", nil, fmt.Errorf("shm: %w", err)
	}
	removeAbandoned(o.dir)
	name, f, err := newFile(o.dir)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			f.Close()
		}
	}()
	g, err := reserve(f, o)
	if errors.Is(err, ErrNoSpace) && o.Shared > 0 {
		o.Shared = 0
		g, err = reserve(f, o)
	}
	if err != nil {
		return "", nil, err
	}
	m, err := mapFile(f, segmentSize(g, o.Shared))
	if err != nil {
		return "", nil, err
	}
	format(m.bytes(), g)
	if e, err = attach(m, g, o.Rank, f); err != nil {
		m.free()
		return "", nil, err
	}
	return name, e, nil
}

// reserve allocates the file's memory. It tries smaller geometries until one fits.
func reserve(f *os.File, o Options) (mesh.Geometry, error) {
	for budget, last := o.budget, -1; ; budget = last - segmentSize(mesh.Geometry{}, o.Shared) - 1 {
		g := mesh.Fit(o.Ranks, o.Planes, budget)
		size := segmentSize(g, o.Shared)
		if size == last {
			return g, fmt.Errorf("%w: %s cannot hold the %d bytes that %d ranks and %d planes need "+
				"(in a container: raise --shm-size)", ErrNoSpace, o.dir, size, o.Ranks, o.Planes)
		}
		last = size
		err := allocate(f, int64(size))
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, unix.ENOSPC) {
			return g, fmt.Errorf("shm: allocate %d bytes in %s: %w", size, o.dir, err)
		}
		if err := f.Truncate(0); err != nil {
			return g, fmt.Errorf("shm: %w", err)
		}
	}
}

// allocate is a variable so that tests can simulate a full file system.
var allocate = func(f *os.File, size int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Attach joins the segment that Create named. The last rank to attach removes the name.
func Attach(name string, o Options) (transport.Endpoint, error) {
	o.fill()
	f, size, err := openFile(o.dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := mapFile(f, size)
	if err != nil {
		return nil, err
	}
	g, err := parse(m.bytes())
	if err == nil && (g.Ranks != o.Ranks || g.Planes != o.Planes) {
		err = fmt.Errorf("%w: it has %d ranks and %d planes, this rank expects %d and %d",
			ErrNotSegment, g.Ranks, g.Planes, o.Ranks, o.Planes)
	}
	if err != nil {
		m.free()
		return nil, err
	}
	e, err := attach(m, g, o.Rank, nil)
	if err != nil {
		m.free()
		return nil, err
	}
	return e, nil
}

// attach returns the endpoint. keep is the creator's open file, which holds the lock on it; nil at the other ranks.
func attach(m *mapping, g mesh.Geometry, rank int, keep *os.File) (transport.Endpoint, error) {
	e, err := mesh.Attach(m.bytes()[headerSize:], g, rank, func() {
		if keep != nil {
			os.Remove(keep.Name())
			keep.Close()
		}
		m.drop()
	})
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	e.Share(m.bytes()[segmentSize(g, 0):])
	if arrivals(m.bytes()).Add(1) == uint32(g.Ranks) {
		os.Remove(m.path)
	}
	// The planes refer to e, so the addresses stay mapped as long as a caller holds a plane.
	runtime.AddCleanup(e, (*mapping).free, m)
	return e, nil
}
