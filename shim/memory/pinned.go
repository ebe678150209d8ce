package memory

import (
	"fmt"
	"math/bits"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/shim/device"
)

// Pinned is page-locked host memory.
type Pinned struct {
	At   unsafe.Pointer
	Size int
}

// WordSize is the bytes that a word for streams takes: a cache line of its own.
const WordSize = 64

// Word returns the word at the beginning of p.
func (p Pinned) Word() *uint32 { return (*uint32)(p.At) }

// pinned keeps page-locked memory for the next user. A driver takes milliseconds to lock pages, and refuses to free
// them inside its callbacks.
var pinned struct {
	mu         sync.Mutex
	free       [64][]Pinned // by the logarithm of the size
	generation uint64       // of the driver that the memory is from
}

// forgetOld drops memory of an earlier driver. The caller holds pinned.mu.
func forgetOld() {
	if now := device.Generation(); pinned.generation != now {
		pinned.generation = now
		clear(pinned.free[:])
	}
}

// Pin returns page-locked memory of at least size bytes. Sizes are powers of two, one page at least.
func Pin(size int) (Pinned, error) {
	class := bits.Len(uint(max(size, os.Getpagesize()) - 1))
	pinned.mu.Lock()
	forgetOld()
	if n := len(pinned.free[class]); n > 0 {
		p := pinned.free[class][n-1]
		pinned.free[class] = pinned.free[class][:n-1]
		pinned.mu.Unlock()
		return p, nil
	}
	pinned.mu.Unlock()
	at, err := device.Active().Alloc(1 << class)
	if err != nil {
		return Pinned{}, fmt.Errorf("shim: %d bytes of page-locked memory: %w", 1<<class, err)
	}
	return Pinned{at, 1 << class}, nil
}

// Unpin keeps memory of [Pin] for the next user.
func Unpin(p Pinned) {
	if p.At == nil {
		return
	}
	class := bits.Len(uint(p.Size - 1))
	pinned.mu.Lock()
	defer pinned.mu.Unlock()
	forgetOld()
	pinned.free[class] = append(pinned.free[class], p)
}

// Readable reports whether the first and the last byte of a buffer can be read. A driver reports freed device memory as
// host memory. Only this check tells them apart.
func Readable(p unsafe.Pointer, size int64) bool {
	var b [1]byte
	for _, at := range []unsafe.Pointer{p, unsafe.Add(p, size-1)} {
		local := []unix.Iovec{{Base: &b[0], Len: 1}}
		n, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(at), Len: 1}}, 0)
		if n != 1 || err != nil {
			return err == unix.EPERM || err == unix.ENOSYS // the system forbids this check
		}
	}
	return true
}
