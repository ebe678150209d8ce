// Package other is what the interposer asks of the other libnccl, the one that executes plans as its sends and
// receives. cgo/core answers with the library of LIGHTPATH_NCCL_FALLBACK_LIB.
//
// Layer: shim. It knows nothing of plans.
package other

import (
	"errors"
	"unsafe"

	"lightpath/shim/device"
)

// ErrLibrary reports that the other library has refused a request, or failed; the message has its words.
var ErrLibrary = errors.New("the other library")

// Comm is a communicator of the other library.
type Comm uintptr

// IDBytes is the size of the library's unique ids.
const IDBytes = 128

// Init asks for one communicator. Net is the network that it is to use, by the library's name for it; "" is the library's choice.
type Init struct {
	ID          [IDBytes]byte
	Ranks, Rank int
	Device      int
	Name, Net   string
}

// Transfer is one message of a group: Bytes from At to Peer, or the other way round.
type Transfer struct {
	At    unsafe.Pointer
	Bytes int64
	Peer  int32
	Send  bool
}

// Library is the other library. Errors wrap [ErrLibrary]. Safe for concurrent use.
type Library interface {
	NewID() ([IDBytes]byte, error)
	// Make makes communicators of this process, all in one group, and returns when all their ranks have come. With
	// an error there are none.
	Make(inits []Init) ([]Comm, error)
	// Exchange enqueues messages on a stream as one group, and returns before they are through. The stream's
	// context is the thread's. It allocates nothing.
	Exchange(c Comm, list []Transfer, s device.Stream) error
	// AsyncError is what has happened to a communicator since it was made.
	AsyncError(c Comm) error
	// Abort ends a communicator and whatever of it is on streams, Destroy one that has nothing there.
	Abort(c Comm) error
	Destroy(c Comm) error
}
