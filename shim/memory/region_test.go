package memory_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim/memory"
)

// TestFindMemory compares with a search through all regions.
func TestFindMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	// Above what any process has mapped.
	const space = uintptr(0xffff) << 48
	var known []memory.Region
	defer func() {
		for _, r := range known {
			assert.NoError(t, memory.Remove(r.Base))
		}
	}()
	for i := range 200 {
		r := memory.Region{Base: space + uintptr(i)<<20, Size: uintptr(1+rng.IntN(256)) << 12, FD: i}
		if rng.IntN(4) == 0 {
			continue // a gap
		}
		if rng.IntN(8) == 0 {
			r.Size = 1 << 20 // up to the next
		}
		known = append(known, r)
	}
	for _, i := range rng.Perm(len(known)) {
		memory.Add(known[i])
	}
	for range 10000 {
		p, n := space+uintptr(rng.IntN(201<<20))-uintptr(rng.IntN(4096)), int64(rng.IntN(1<<rng.IntN(22)))
		want := memory.Region{}
		for _, r := range known {
			if p >= r.Base && p+uintptr(n) <= r.Base+r.Size {
				want = r
			}
		}
		r, off, ok := memory.Find(fake(p), n)
		if ok != (r.Number > 0) {
			t.Fatalf("region %+v, %v", r, ok)
		}
		r.Number = 0
		if ok != (want.Size != 0) || r != want || ok && off != int64(p-want.Base) {
			t.Fatalf("%d bytes at %#x: %+v + %d, %v, want %+v", n, p, r, off, ok, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { memory.Find(fake(space+5), 10) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// fake is an address that no code reads.
func fake(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// TestSharedMemory: what FindMemory says is enough for another mapping of the same bytes.
func TestSharedMemory(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip("memfd_create:", err)
	}
	defer func() { _ = unix.Close(fd) }()
	require.NoError(t, unix.Ftruncate(fd, 8192))
	mine, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(mine) }()
	base := uintptr(unsafe.Pointer(&mine[0]))
	memory.Add(memory.Region{Base: base, Size: 8192, FD: fd})
	r, off, ok := memory.Find(unsafe.Pointer(&mine[5000]), 100)
	if !ok || off != 5000 {
		t.Fatal(r, off, ok)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), r.FD), os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	other, err := unix.Mmap(int(f.Fd()), 0, int(r.Size), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(other) }()
	mine[5000] = 77
	if other[off] != 77 {
		t.Error("another memory")
	}
	assert.NoError(t, memory.Remove(base))
	if _, _, ok := memory.Find(unsafe.Pointer(&mine[0]), 1); ok {
		t.Error("found after it was removed")
	}
}
