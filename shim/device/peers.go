package device

import (
	"fmt"
	"unsafe"
)

// Context is a handle of the driver. Memory and streams of a device belong to a context.
type Context uintptr

// Address is the address of a word for a device. The CPU must not use it.
type Address uintptr

// Handle identifies memory of a device for other processes of the host.
type Handle [64]byte

// Piece is physical memory of a device that a program maps by itself, as a descriptor.
type Piece struct {
	FD   int
	Size int64 // in bytes
}

// ErrNotMapped reports memory that no program has mapped by itself.
var ErrNotMapped = fmt.Errorf("the program has not mapped this memory by itself: %w", ErrDriver)

// MaxWords is the largest number of words of one [Peers.Words].
const MaxWords = 255

// Word is an operation on a word of registered memory or device memory: a wait until the word equals a value, or a
// write.
type Word struct {
	At    Address
	Value uint32
	Wait  uint32 // 0: write
}

// Peers is a driver whose devices reach each other's memory. Call its methods between Enter, or EnterContext, and
// Leave, except Context and Identity, which use the calling thread's context, PrimaryContext and ContextID. Safe for
// concurrent use. Errors wrap [ErrDriver].
type Peers interface {
	Driver

	// Identity returns a name of the device, equal in all processes of the host. It fails if the driver lacks a
	// function that the other methods need.
	Identity() (string, error)
	Context() (Context, error)
	// PrimaryContext returns the default context of a device, and keeps it alive.
	PrimaryContext(device int) (Context, error)
	// ContextID returns a number that no other context of the process has, now or later. A later context may have the
	// handle of one that has ended.
	ContextID(ctx Context) (uint64, error)
	// StreamID returns a number that no other stream of the process has, now or later. It is 0 if the driver numbers no
	// streams. The stream is not a default stream. The thread need not have a context.
	StreamID(s Stream) (uint64, error)
	// EnterContext is Enter with a context of Context or PrimaryContext.
	EnterContext(ctx Context) error

	// TotalMemory returns the bytes of memory of the device.
	TotalMemory() (int64, error)
	// Allocation returns the beginning and the size, in bytes, of the allocation that contains an address.
	Allocation(at unsafe.Pointer) (base unsafe.Pointer, size int64, err error)
	// Export returns a handle of an allocation, given its beginning, for other processes. Some memory of a device
	// cannot be exported.
	Export(at unsafe.Pointer) (Handle, error)
	// Import maps an allocation that another process has exported, until Close. It may be imported several times.
	Import(h *Handle) (unsafe.Pointer, error)
	Close(at unsafe.Pointer) error
	// RetainPiece returns the number of the piece that is mapped at an address, and keeps its memory until ReleasePiece.
	// Until then no other piece has the number. Other memory gives [ErrNotMapped].
	RetainPiece(at unsafe.Pointer) (piece uint64, err error)
	ReleasePiece(piece uint64) error
	// IsPiece reports whether a piece is mapped at an address. It allocates nothing.
	IsPiece(at unsafe.Pointer, piece uint64) bool
	// ExportPiece returns a descriptor of a piece for other processes. The caller closes it.
	ExportPiece(piece uint64) (fd int, err error)
	// ImportPieces maps pieces of another process one behind the other, until ClosePieces. The caller keeps the
	// descriptors. The memory stays allocated until both processes have unmapped it.
	ImportPieces(pieces []Piece) (unsafe.Pointer, error)
	ClosePieces(at unsafe.Pointer, size int64) error
	// Reach gives the context access to memory of another context of this process.
	Reach(at unsafe.Pointer) error

	// Register makes words in host memory usable by streams. Other processes may share the memory.
	Register(mem []byte) (Address, error)
	Unregister(mem []byte) error

	// Words enqueues operations, which run in their order. A write becomes visible after all earlier work of the
	// stream. Words reads the slice only during the call. It allocates nothing, and may be part of a capture.
	Words(s Stream, words []Word) error
}

// RemoteAccess is how other devices of the host reach a device's memory.
type RemoteAccess struct {
	DMABufs bool // ExportBuf works
	Ordered bool // the device's streams see the writes of others without a flush
	Flushes bool // FlushRemote works
}

// Remote is a driver whose devices' memory NICs and other devices of the host can read and write. Call its methods
// between Enter, or EnterContext, and Leave. Errors wrap [ErrDriver].
type Remote interface {
	Peers

	// RemoteAccess returns how other devices reach the current device's memory.
	RemoteAccess() (RemoteAccess, error)
	// FlushRemote makes writes of other devices to the current device visible to later work on its streams, if the CPU
	// knows of these writes. It waits for nothing else.
	FlushRemote() error
	// ExportBuf returns a descriptor of a dma-buf with a range of the device's memory, and the range's offset in it. The
	// caller closes the descriptor. The memory stays in place while a registration of it exists, even after it was freed.
	ExportBuf(at unsafe.Pointer, size int) (fd int, offset uint64, err error)
}
