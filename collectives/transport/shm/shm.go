// Package shm is the packet transport between processes of one host: the rings and
// doorbells of a communicator in one segment of shared memory, and memory for those that need no
// frames ([transport.Sharer]).
//
// The segment is a file in a memory file system. Rank 0 creates it under a random name,
// readable by its user alone, with all its memory allocated, so that a full file system is
// an error here and not a SIGBUS later. Whoever attaches last removes the name;
// the memory lives until the last rank closes. What a crash left behind is
// removed by the next Create: while a name stands, its creator holds a lock on the file.
//
// Layer: inside collectives/transport. It must not talk to other ranks but through the
// segment; the name travels by the bootstrap.
package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/mesh"

	"golang.org/x/sys/unix"
)

// DefaultDir is where segments are made.
const DefaultDir = "/dev/shm"

// budgetPerRank bounds the rings of a rank: 64 MiB for 8 ranks.
const budgetPerRank = 8 << 20

// Errors of Create and Attach.
var (
	// ErrNoSpace: the memory file system cannot hold even the smallest segment.
	ErrNoSpace = errors.New("shm: not enough shared memory")
	// ErrNotSegment: the file is not a segment of this version and user.
	ErrNotSegment = errors.New("shm: not a segment of this communicator")
)

// Options describe one rank's view of a segment.
type Options struct {
	Ranks, Planes int
	Rank          int
	Dir           string // "" is DefaultDir
	Budget        int    // most bytes of the rings, as far as possible; 0 is 8 MiB per rank
	// Shared is how many bytes the endpoint, a [transport.Sharer], is to have, a multiple of 64:
	// all of them, or none where they do not fit. Create's alone counts.
	Shared int
}

func (o *Options) fill() {
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Budget == 0 {
		o.Budget = o.Ranks * budgetPerRank
	}
}

// Create makes a segment and attaches to it as o.Rank. The name is what the other ranks
// need to Attach. Views of frames are valid only as long as the endpoint is reachable.
func Create(o Options) (name string, e transport.Endpoint, err error) {
	o.fill()
	probe := mesh.Geometry{Ranks: o.Ranks, Planes: o.Planes, Slots: 1, Payload: 8}
	if err := probe.Check(); err != nil {
		return "", nil, fmt.Errorf("shm: %w", err)
	}
	sweep(o.Dir)
	name, f, err := newFile(o.Dir)
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

// reserve allocates the file's memory, for a smaller geometry where there is too little.
func reserve(f *os.File, o Options) (mesh.Geometry, error) {
	for budget, last := o.Budget, -1; ; budget = last - segmentSize(mesh.Geometry{}, o.Shared) - 1 {
		g := mesh.Fit(o.Ranks, o.Planes, budget)
		size := segmentSize(g, o.Shared)
		if size == last {
			return g, fmt.Errorf("%w: %s cannot hold the %d bytes that %d ranks and %d planes need (in a container: raise --shm-size)",
				ErrNoSpace, o.Dir, size, o.Ranks, o.Planes)
		}
		last = size
		err := allocate(f, int64(size))
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, unix.ENOSPC) {
			return g, fmt.Errorf("shm: allocate %d bytes in %s: %w", size, o.Dir, err)
		}
		if err := f.Truncate(0); err != nil {
			return g, fmt.Errorf("shm: %w", err)
		}
	}
}

// allocate is a variable for tests of a full file system.
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
	f, size, err := openFile(o.Dir, name)
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

// attach makes the endpoint. keep, where not nil, is the creator's handle of the file: it
// holds the lock that says that the name is in use.
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
	// The planes hold on to e, so whoever can still call one keeps the addresses mapped.
	runtime.AddCleanup(e, (*mapping).free, m)
	return e, nil
}
