package shim

import (
	"fmt"
	"math/bits"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// room is page-locked host memory.
type room struct {
	at   unsafe.Pointer
	size int
}

// wordRoom is what a word takes, so that it has a cache line of its own.
const wordRoom = 64

func (r room) word() *uint32 { return (*uint32)(r.at) }

// rooms keeps page-locked memory for the next who needs some: drivers take milliseconds for it, and none may be
// freed where a driver calls back. The sizes are powers of two.
type rooms struct {
	mu   sync.Mutex
	free [64][]room // by the logarithm of the size
}

var pinned rooms

func (p *rooms) take(size int) (room, error) {
	class := bits.Len(uint(max(size, os.Getpagesize()) - 1))
	p.mu.Lock()
	if n := len(p.free[class]); n > 0 {
		r := p.free[class][n-1]
		p.free[class] = p.free[class][:n-1]
		p.mu.Unlock()
		return r, nil
	}
	p.mu.Unlock()
	at, err := devices.Alloc(1 << class)
	if err != nil {
		return room{}, fmt.Errorf("shim: %d bytes of page-locked memory: %w", 1<<class, err)
	}
	return room{at, 1 << class}, nil
}

func (p *rooms) give(r room) {
	if r.at == nil {
		return
	}
	class := bits.Len(uint(r.size - 1))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free[class] = append(p.free[class], r)
}

// mapped reports whether the first and the last byte of a buffer can be read: device memory that has been freed
// looks like host memory to a driver.
func mapped(p unsafe.Pointer, size int64) bool {
	var b [1]byte
	for _, at := range []unsafe.Pointer{p, unsafe.Add(p, size-1)} {
		local := []unix.Iovec{{Base: &b[0], Len: 1}}
		if n, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(at), Len: 1}}, 0); n != 1 || err != nil {
			return err == unix.EPERM || err == unix.ENOSYS // nothing can be said
		}
	}
	return true
}
