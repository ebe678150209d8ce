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
	// ExportBuf returns a descriptor of a dma-buf that holds a stretch of the device's memory, and where that begins in
	// it. The descriptor is the caller's, to be closed; the memory stays where it is as long as somebody has it
	// registered, also when it has been freed.
	ExportBuf(at unsafe.Pointer, size int) (fd int, offset uint64, err error)
}
