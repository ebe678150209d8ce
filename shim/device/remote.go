package device

import "unsafe"

// Remote is a driver whose devices' memory other devices of the host can read and write, NICs above all. Its methods
// belong between Enter, or EnterContext, and Leave; errors wrap [ErrDriver].
type Remote interface {
	Peers

	// RemoteWrites fails where the current device cannot be reached, and says why. flush is set where what others have
	// written is not seen by its streams before FlushRemote.
	RemoteWrites() (flush bool, err error)
	// FlushRemote makes what other devices have written to the current device, as far as the CPU knows of it, visible to
	// all that streams do after it. It waits for nothing else.
	FlushRemote() error
	// ExportBuf returns a descriptor of a dma-buf with a range of the device's memory, and the range's offset in it. The
	// caller closes the descriptor. The memory stays in place while a registration of it exists, even after it was freed.
	ExportBuf(at unsafe.Pointer, size int) (fd int, offset uint64, err error)
}
