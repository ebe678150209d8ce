package foreign

import (
	"lightpath/shim/device"
	"lightpath/shim/stream"
)

// Comm is a communicator of the other library.
type Comm uintptr

// IDBytes is the size of the library's unique ids.
const IDBytes = 128

// Init asks for one communicator. Net is the library's name of the network to use; "" lets the library choose.
type Init struct {
	ID          [IDBytes]byte
	Ranks, Rank int
	Device      int
	Name, Net   string
}

// Library is the other library. cgo/core implements it with LIGHTPATH_NCCL_FALLBACK_LIB. Errors wrap
// [errdefs.ErrLibrary]. Safe for concurrent use.
type Library interface {
	NewID() ([IDBytes]byte, error)
	// Make makes communicators of this process, all in one group, and returns when all their ranks have come. If it
	// returns an error, it has made none.
	Make(inits []Init) ([]Comm, error)
	// Exchange puts messages on a stream as one group, and returns before they have completed. The stream's context is
	// current on the thread. It allocates nothing.
	Exchange(c Comm, list []stream.Transfer, s device.Stream) error
	// AsyncError returns the failure of a communicator, nil while it is healthy.
	AsyncError(c Comm) error
	// Abort ends a communicator and its work on streams. Destroy ends a communicator without work on streams.
	Abort(c Comm) error
	Destroy(c Comm) error
}
