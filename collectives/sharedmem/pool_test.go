package sharedmem

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
)

// pool is memory in regions, as ncclMemAlloc makes it.
type pool struct {
	t     testing.TB
	known []poolRegion
}

type poolRegion struct {
	Region
	mem []byte
}

var lastRegion atomic.Uint64

// alloc makes a region, at address at unless that is nil.
func (m *pool) alloc(n int, at unsafe.Pointer) []byte {
	m.t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		m.t.Skip("memfd_create:", err)
	}
	require.NoError(m.t, unix.Ftruncate(fd, int64(n)))
	flags := unix.MAP_SHARED
	if at != nil {
		flags |= unix.MAP_FIXED
	}
	p, err := unix.MmapPtr(fd, 0, at, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, flags)
	require.NoError(m.t, err)
	r := poolRegion{Region{lastRegion.Add(1), fd, int64(n)}, unsafe.Slice((*byte)(p), n)}
	m.known = append(m.known, r)
	return r.mem
}

// free releases a region as ncclMemFree does.
func (m *pool) free(mem []byte) {
	m.t.Helper()
	for i, r := range m.known {
		if pointer(r.mem) == pointer(mem) {
			Forget(r.Number)
			m.known = append(m.known[:i], m.known[i+1:]...)
			require.NoError(m.t, errors.Join(unix.MunmapPtr(pointer(r.mem), uintptr(len(r.mem))), unix.Close(r.FD)))
			return
		}
	}
	m.t.Fatal("no such region")
}

func (m *pool) find(p unsafe.Pointer, n int64) (Region, int64, bool) {
	for i := range m.known {
		r := &m.known[i]
		if at := uintptr(p) - uintptr(pointer(r.mem)); at < uintptr(r.Size) && n <= r.Size-int64(at) {
			return r.Region, int64(at), true
		}
	}
	return Region{}, 0, false
}

// newMapping returns a group whose ranks know the pool's regions.
func newMapping(t testing.TB, ranks int) (*group, *pool) {
	g, m := newGroup(t, ranks, 1), &pool{t: t}
	for _, a := range g.arenas {
		a.UseRegions(m.find, func(rank int, err error) { t.Errorf("rank %d's memory: %v", rank, err) })
	}
	t.Cleanup(func() {
		for _, a := range g.arenas {
			a.Close()
		}
		for len(m.known) > 0 {
			m.free(m.known[0].mem)
		}
	})
	return g, m
}

// move puts a rank's buffers of a job into one region, at odd offsets.
func (m *pool) move(j *job, rank int) {
	in, out := j.in[rank], j.out[rank]
	const gap = 4096 + 8
	room := m.alloc((len(in)+len(out)+3*gap+4095)&^4095, nil)
	op := j.ops[rank]
	// In place one buffer is a part of the other.
	d, s := uintptr(pointer(out)), uintptr(pointer(in))
	switch {
	case len(out) > 0 && len(in) > 0 && s >= d && s+uintptr(len(in)) <= d+uintptr(len(out)):
		j.out[rank] = room[gap:][:len(out)]
		copy(j.out[rank], out)
		j.in[rank] = j.out[rank][s-d:][:len(in)]
	case len(out) > 0 && len(in) > 0 && d >= s && d+uintptr(len(out)) <= s+uintptr(len(in)):
		j.in[rank] = room[gap:][:len(in)]
		copy(j.in[rank], in)
		j.out[rank] = j.in[rank][d-s:][:len(out)]
	default:
		j.in[rank] = room[gap:][:len(in)]
		j.out[rank] = room[2*gap+len(in):][:len(out)]
		copy(j.in[rank], in)
		copy(j.out[rank], out)
	}
	op.Send, op.Recv = pointer(j.in[rank]), pointer(j.out[rank])
}

// repeat runs a job several times with the same inputs, and checks each result.
func (g *group) repeat(t *testing.T, j *job, times int) {
	t.Helper()
	input, output := make([][]byte, len(j.ops)), make([][]byte, len(j.ops))
	for r := range j.ops {
		input[r], output[r] = bytes.Clone(j.in[r]), bytes.Clone(j.out[r])
	}
	for i := range times {
		for r, op := range j.ops {
			copy(j.out[r], output[r])
			copy(j.in[r], input[r])
			if i > 0 {
				g.seq[r]++
				call := op.Call
				call.Seq = g.seq[r]
				op.Bind(g.arenas[r], &call)
			}
		}
		g.drive(t, []*job{j})
		j.check(t)
	}
}

// rebind prepares a job's operations for another run.
func (g *group) rebind(j *job) {
	for r, op := range j.ops {
		g.seq[r]++
		call := op.Call
		call.Seq = g.seq[r]
		op.Bind(g.arenas[r], &call)
	}
}
