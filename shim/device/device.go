// Package device is what the runtime asks of accelerators: whose memory a pointer is, and a place in the
// order of a stream. cgo/cuda answers for CUDA.
//
// Layer: shim. It knows nothing of communicators.
package device

import (
	"errors"
	"unsafe"
)

// ErrDriver reports that the accelerator's driver has refused a request; the message has its words.
var ErrDriver = errors.New("device driver")

// Stream is a handle of the driver's; up to [LastDefault] they are names of default streams.
type Stream uintptr

// LastDefault is the last handle that stands for a stream of whatever context is current: CUDA's are 0 and 1, the
// context's, and 2, the calling thread's own.
const LastDefault Stream = 2

// Event is a handle of the driver's.
type Event uintptr

// Kind is whose memory a pointer is.
type Kind uint8

// The kinds.
const (
	Host    Kind = iota // the driver does not know it
	Pinned              // host memory that the driver knows
	Managed             // memory that moves between host and device
	Memory              // a device's own: the CPU must not touch it
)

// Place is where memory is.
type Place struct {
	Kind   Kind
	Device int // Managed and Memory: the device
	// ID is the allocation's, which no later one has in its place; 0 for memory that the driver does not know.
	ID uint64
}

// Capture is a graph that a stream's work is being recorded into; the zero value is none.
type Capture struct {
	ID    uint64
	Graph uintptr
}

// Driver is the driver of a program's devices. Methods that enqueue return before what they enqueue is
// done. They belong between Enter and Leave, on one goroutine; memory and events may be used in all
// contexts. Safe for concurrent use. Errors wrap [ErrDriver].
type Driver interface {
	// Current is the device of the calling thread's context, where it has none that which it would get one of, or -1. ok
	// is false where the program does not use the driver at all.
	Current() (device int, ok bool, err error)
	// Locate tells whose memory a pointer is.
	Locate(p unsafe.Pointer) (Place, error)

	// Enter makes the context of a stream the goroutine's until Leave, and returns its device. Between
	// them the driver takes calls that do not belong to a capture that another thread has begun.
	Enter(s Stream) (device int, err error)
	Leave()

	// Alloc returns page-locked host memory.
	Alloc(size int) (unsafe.Pointer, error)
	Free(p unsafe.Pointer) error
	// AllocExchange returns memory of the device that can be exported.
	AllocExchange(size int) (unsafe.Pointer, error)
	FreeExchange(at unsafe.Pointer) error
	// NewStream returns a stream that is in no order with the default stream.
	NewStream() (Stream, error)
	FreeStream(s Stream) error
	NewEvent() (Event, error)
	FreeEvent(e Event) error
	// Reached tells whether the work before the last Record of an event is done.
	Reached(e Event) (bool, error)

	// Capturing returns the graph that a stream is captured into.
	Capturing(s Stream) (Capture, error)
	// Retain has the handler's Forget called, with job, once a graph and all copies of it are gone.
	Retain(c Capture, job uintptr) error

	// CopyOut enqueues a copy from device memory to page-locked memory, CopyIn one back.
	CopyOut(to, from unsafe.Pointer, size int, s Stream) error
	CopyIn(to, from unsafe.Pointer, size int, s Stream) error
	// Copy enqueues a copy between any two of them, page-locked memory and memory of devices.
	Copy(dst, src unsafe.Pointer, size int, s Stream) error
	// CopyRows is Copy of rows, which begin so many bytes apart on either side.
	CopyRows(dst unsafe.Pointer, dstPitch int, src unsafe.Pointer, srcPitch, width, rows int, s Stream) error
	// Reduce enqueues one kernel. The first of a type in a context loads the type's kernels unless LoadKernels has;
	// later ones allocate nothing. Both Copy and Reduce may be part of a capture.
	Reduce(r *Reduction, s Stream) error
	// LoadKernels loads all kernels of Reduce into the context that has been entered, once. That takes memory there
	// and up to seconds, and a driver may wait for all work of the device meanwhile: ranks that wait for each other there
	// call it before they do.
	LoadKernels() error
	// Signal has the handler's Ready called, with job, when all work before it is done.
	Signal(s Stream, job uintptr) error
	// Await holds the stream up until a word of page-locked memory has reached a value, in the order of
	// numbers that wrap around, or equals it.
	Await(s Stream, word *uint32, value uint32, equal bool) error
	// Store has the stream write a word of page-locked memory.
	Store(s Stream, word *uint32, value uint32) error
	Record(e Event, s Stream) error
	// Follow holds the stream up until the last Record of an event is done.
	Follow(s Stream, e Event) error
}

// Handler is told by a driver how far streams have come. Its methods are called on threads of the
// driver's, which they must not keep, and make no calls of the driver.
type Handler interface {
	Ready(job uintptr)
	Forget(job uintptr)
}

// active is the driver of the program's devices, generation the number of drivers so far.
var (
	active     Driver
	generation uint64
)

// Use sets the driver of the program's devices, before the first communicator is made. A nil driver stands for a
// program without devices. The driver must tell its handler of streams ([Handler]).
func Use(d Driver) {
	active = d
	generation++
}

// Active returns the driver that [Use] has set, nil for a program without devices.
func Active() Driver { return active }

// Generation returns a number that each [Use] changes. Memory of an earlier driver must not be used again.
func Generation() uint64 { return generation }
