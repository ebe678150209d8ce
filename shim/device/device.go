package device

import (
	"errors"
	"sync/atomic"
	"unsafe"
)

// ErrDriver reports that the accelerator's driver has refused a request. The message contains the driver's text.
var ErrDriver = errors.New("device driver")

// Stream is a handle of the driver. Values up to [LastDefault] name default streams.
type Stream uintptr

// LastDefault is the last handle of a default stream of the current context. In CUDA, 0 and 1 are the context's default
// stream, and 2 is that of the calling thread.
const LastDefault Stream = 2

// Event is a handle of the driver.
type Event uintptr

// Kind is the kind of memory that a pointer points to.
type Kind uint8

// The kinds.
const (
	Host    Kind = iota // the driver does not know it
	Pinned              // host memory that the driver knows
	Managed             // memory that moves between host and device
	Memory              // memory of a device: the CPU must not touch it
)

// Place is where memory is.
type Place struct {
	Kind   Kind
	Device int // Managed and Memory: the device
	// ID identifies the allocation: a later allocation at the same address has another one. 0: the driver does not know
	// the memory.
	ID uint64
	// End is the address after the allocation, 0 if the driver does not know it.
	End uintptr
}

// Capture is a graph into which the work of a stream is recorded. The zero value stands for none.
type Capture struct {
	ID    uint64
	Graph uintptr
}

// Driver is the driver of a program's devices. Methods that enqueue work return before it is done. Call them between
// Enter and Leave, on one goroutine. Memory and events may be used in all contexts. Safe for concurrent use. Errors
// wrap [ErrDriver].
type Driver interface {
	// Current returns the device of the calling thread's context. Without a context, it returns the device of which the
	// thread would get one, or -1. ok is false if the program does not use the driver.
	Current() (device int, ok bool, err error)
	// Locate returns the kind of memory that a pointer points to.
	Locate(p unsafe.Pointer) (Place, error)

	// Enter makes a stream's context current on the goroutine until Leave, and returns its device. In between, the
	// driver also accepts calls that are not part of a capture which another thread has begun.
	Enter(s Stream) (device int, err error)
	Leave()

	// Alloc returns page-locked host memory.
	Alloc(size int) (unsafe.Pointer, error)
	Free(p unsafe.Pointer) error
	// AllocExchange returns memory of the device that can be exported.
	AllocExchange(size int) (unsafe.Pointer, error)
	FreeExchange(at unsafe.Pointer) error
	// NewStream returns a stream that does not synchronize with the default stream.
	NewStream() (Stream, error)
	FreeStream(s Stream) error
	NewEvent() (Event, error)
	FreeEvent(e Event) error
	// Reached reports whether the work before the last Record of an event is done.
	Reached(e Event) (bool, error)

	// Capturing returns the graph that a stream is captured into.
	Capturing(s Stream) (Capture, error)
	// Retain makes the driver call the handler's Ready with job when a graph and all its copies have been destroyed.
	Retain(c Capture, job uintptr) error

	// CopyOut enqueues a copy from device memory to page-locked memory. CopyIn enqueues the opposite copy.
	CopyOut(to, from unsafe.Pointer, size int, s Stream) error
	CopyIn(to, from unsafe.Pointer, size int, s Stream) error
	// Copy enqueues a copy between page-locked memory and memory of devices, in any direction.
	Copy(dst, src unsafe.Pointer, size int, s Stream) error
	// CopyRows is Copy for rows. A pitch is the distance in bytes between the beginnings of two rows.
	CopyRows(dst unsafe.Pointer, dstPitch int, src unsafe.Pointer, srcPitch, width, rows int, s Stream) error
	// Reduce enqueues one kernel. The first Reduce of a type in a context loads the type's kernels, unless LoadKernels
	// has. Later ones allocate nothing. Copy and Reduce may be part of a capture.
	Reduce(r *Reduction, s Stream) error
	// LoadCopies uses each kind of copy in the entered context, once. The driver may wait for all work of the device.
	LoadCopies() error
	// LoadKernels loads all kernels of Reduce into the entered context, once, and uses each of them and each kind of copy.
	// That takes device memory and up to seconds, and the driver may wait for all work of the device. So ranks call it
	// before their work on the device waits for each other.
	LoadKernels() error
	// Signal makes the driver call the handler's Ready with job when all earlier work of the stream is done.
	Signal(s Stream, job uintptr) error
	// Await makes the stream wait until a word of page-locked memory has reached a value (numbers wrap around) or, if
	// equal is set, equals it.
	Await(s Stream, word *uint32, value uint32, equal bool) error
	// Store makes the stream write a word of page-locked memory.
	Store(s Stream, word *uint32, value uint32) error
	Record(e Event, s Stream) error
	// Follow makes the stream wait until the last Record of an event is done.
	Follow(s Stream, e Event) error
}

// Handler gets a driver's reports on the progress of streams. The driver calls its methods on its own threads. They
// must not block, and must not call the driver.
type Handler interface {
	Ready(job uintptr)
}

// active is the driver of the program's devices, generation the number of drivers and of [Forget] so far.
var (
	active     Driver
	generation atomic.Uint64
)

// Use sets the driver of the program's devices, before the first communicator is made. A nil driver stands for a
// program without devices. The driver must tell its handler of streams ([Handler]).
func Use(d Driver) {
	active = d
	Forget()
}

// Forget makes this process keep no memory and streams for later communicators. A context has ended, and with it what
// the driver made there.
func Forget() { generation.Add(1) }

// Active returns the driver that [Use] has set, nil for a program without devices.
func Active() Driver { return active }

// Generation returns a number that each [Use] and [Forget] changes. Unused memory from before must not be used again.
func Generation() uint64 { return generation.Load() }
