package device

import "unsafe"

// Context is a handle of the driver's: where memory and streams of a device belong.
type Context uintptr

// Address is where a device finds a word. The CPU must not use it.
type Address uintptr

// Handle names memory of a device to other processes of the host.
type Handle [64]byte

// MaxWords is how many words one [Peers.Words] takes.
const MaxWords = 255

// Word is an operation on a word of registered memory, or a device's: a wait until it equals the value, or a write.
type Word struct {
	At    Address
	Value uint32
	Wait  uint32 // 0: write
}

// Peers is a driver with what ranks need to reach each other's memory. Its methods belong between
// Enter, or EnterContext, and Leave; but for Context and Identity, which are of the calling thread's context, and
// PrimaryContext. Safe for concurrent use; errors wrap [ErrDriver].
type Peers interface {
	Driver

	// Identity names the device, alike in all processes of the host. It fails where the driver lacks
	// something that the rest needs.
	Identity() (string, error)
	Context() (Context, error)
	// PrimaryContext returns the context that a program has of a device unless it makes others, and keeps it.
	PrimaryContext(device int) (Context, error)
	// EnterContext is Enter with a context.
	EnterContext(ctx Context) error

	// Allocation returns where the allocation that holds an address begins, and its size.
	Allocation(at unsafe.Pointer) (base unsafe.Pointer, size int64, err error)
	// Export names an allocation, by its beginning, to other processes. Not all memory of a device can be exported.
	Export(at unsafe.Pointer) (Handle, error)
	// Import maps what another process has exported, until Close. An allocation may be imported several times.
	Import(h *Handle) (unsafe.Pointer, error)
	Close(at unsafe.Pointer) error
	// Reach has the context reach memory of another one of this process.
	Reach(at unsafe.Pointer) error

	// Register makes host memory, which may be shared with other processes, a place for words.
	Register(mem []byte) (Address, error)
	Unregister(mem []byte) error

	// Words enqueues operations, which are carried out in their order: a write after all that was enqueued before it
	// can be seen by everyone. The slice is read in the call only. It allocates nothing, and may be part of a capture.
	Words(s Stream, words []Word) error
}

// Remote is a driver whose devices' memory NICs and other devices of the host can read and write. Call its methods
// between Enter, or EnterContext, and Leave. Errors wrap [ErrDriver].
type Remote interface {
	Peers

	// RemoteWrites returns an error if other devices cannot reach the current device's memory. flush: the device's
	// streams see the writes of others only after FlushRemote.
	RemoteWrites() (flush bool, err error)
	// FlushRemote makes writes of other devices to the current device visible to later work on its streams, if the CPU
	// knows of these writes. It waits for nothing else.
	FlushRemote() error
	// ExportBuf returns a descriptor of a dma-buf with a range of the device's memory, and the range's offset in it. The
	// caller closes the descriptor. The memory stays in place while a registration of it exists, even after it was freed.
	ExportBuf(at unsafe.Pointer, size int) (fd int, offset uint64, err error)
}
