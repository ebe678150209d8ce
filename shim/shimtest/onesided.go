package shimtest

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/memory"
)

// FakeAddress returns a pointer that no code may read.
func FakeAddress(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// WindowMemory returns memory for a window: shared memory, as ncclMemAlloc makes it, which peers can map, or private
// memory of this process. The test frees it.
func WindowMemory(t testing.TB, size int, shared bool) []byte {
	t.Helper()
	fd, flags := -1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS
	if shared {
		var err error
		if fd, err = unix.MemfdCreate("test", unix.MFD_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, unix.Ftruncate(fd, int64(size)))
		flags = unix.MAP_SHARED
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	require.NoError(t, err)
	base := unsafe.Pointer(unsafe.SliceData(mem))
	if shared {
		memory.Add(memory.Region{Base: uintptr(base), Size: uintptr(size), FD: fd})
	}
	t.Cleanup(func() {
		if shared {
			if err := memory.Remove(uintptr(base)); err != nil {
				t.Error(err)
			}
			_ = unix.Close(fd)
		}
		_ = unix.Munmap(mem)
	})
	return mem
}

// WindowWorld is a world in which every rank has registered a window.
type WindowWorld struct {
	*World
	Mem     [][]byte
	Handles []uint64
}

// Register registers the window memory of a rank again and returns the handle.
func (w *WindowWorld) Register(c *shim.Comm) uint64 {
	w.t.Helper()
	m := w.Mem[c.Rank]
	h, err := shim.Register(c, unsafe.Pointer(unsafe.SliceData(m)), uintptr(len(m)), true, 0)
	require.NoError(w.t, err)
	return h
}

// Put returns a call that writes data into the window of peer and signals it.
func (w *WindowWorld) Put(c *shim.Comm, peer int, offset uint64, data []byte) calls.Call {
	return calls.Call{
		Comm: c, Kind: calls.PutSignal, Type: datatype.Uint8, Peer: int32(peer), Window: w.Handles[c.Rank], Offset: offset,
		Send: unsafe.Pointer(unsafe.SliceData(data)), Count: uint64(len(data)),
	}
}

// SignalTo returns a call that signals peer.
func SignalTo(c *shim.Comm, peer int) calls.Call {
	return calls.Call{Comm: c, Kind: calls.Signal, Peer: int32(peer)}
}

// SignalsFrom returns a call that waits for count signals of peer.
func SignalsFrom(c *shim.Comm, peer, count int) calls.Call {
	return calls.Call{Comm: c, Kind: calls.WaitSignal, Peer: int32(peer), Count: uint64(count)}
}
