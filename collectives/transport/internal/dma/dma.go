// Package dma maps the memory that devices and network plugins read and write.
//
// Layer: below the transports, without imports of the project.
package dma

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Map returns memory outside Go's heap, which forked children do not inherit. If they did, copy-on-write could give
// the parent new pages while the device still writes to the old ones.
func Map(size int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d bytes for rings: %w", size, err)
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		Unmap(mem)
		return nil, fmt.Errorf("%d bytes for rings: exclude from forked children: %w", size, err)
	}
	return mem, nil
}

// Unmap unmaps memory of Map.
func Unmap(mem []byte) { _ = unix.Munmap(mem) }
