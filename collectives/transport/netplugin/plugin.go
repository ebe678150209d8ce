package netplugin

import (
	"errors"
	"fmt"
	"unsafe"

	"lightpath/collectives/transport"
)

// handleSize is the size of a listener's handle in bytes.
const handleSize = 128

// Plugin is a plugin that is ready for one communicator. One goroutine at a time uses a plugin and its objects.
type Plugin interface {
	// Name returns the plugin's name and the version of its interface, as "Socket (v11)".
	Name() string
	Devices() []Device
	// Listen returns a listener for one connection to a device, and its handle.
	Listen(device int) (Listener, []byte, error)
	// Dial prepares a connection from a device to the listener of a handle.
	Dial(device int, handle []byte) Dialer
	// Close ends the use by the communicator. The caller closes all objects before.
	Close() error
}

// Device describes a network device of a plugin.
type Device struct {
	Name        string
	Rail, Plane int   // -1: not known
	MaxBytes    int64 // of a message; 0: no limit is known
	// How the device reaches memory of GPUs: by dma-bufs, and by addresses. Both are false if the plugin cannot flush.
	DMABufs, Addresses bool
	// MustFlush: received bytes must be flushed, also if the GPU orders writes.
	MustFlush bool
}

// Loader opens plugins.
type Loader interface {
	// Open loads the first of the files that exists, and makes the plugin in it ready for a communicator. Names are
	// those of dlopen.
	Open(files []string, o OpenOptions) (Plugin, error)
}

// OpenOptions describe the use of a plugin by a communicator.
type OpenOptions struct {
	// Comm is the number of the communicator.
	Comm uint64
	// Want is the name that the plugin must have; "" stands for any.
	Want string
	// Log gets the plugin's lines until Close. warn is set for warnings. Plugins call it on any thread.
	Log func(warn bool, line string)
}

// Listener waits for a connection.
type Listener interface {
	// Accept returns the receiving end of the connection, and nil while there is none. It never blocks.
	Accept() (Conn, error)
	Close() error
}

// Dialer makes a connection.
type Dialer interface {
	// Connect returns the sending end of the connection, and nil while there is none. It never blocks.
	Connect() (Conn, error)
	Close()
}

// Memory is the plugin's handle of registered memory. It may be 0.
type Memory uintptr

// Request is the plugin's handle of an unfinished message; 0 stands for none.
type Request uintptr

// Conn is an end of a connection, which carries messages in one direction. Its methods never block or allocate, except
// Register, RegisterDevice and Close.
type Conn interface {
	// Register registers memory outside Go's heap, until Deregister.
	Register(mem []byte) (Memory, error)
	// RegisterDevice registers memory of a GPU: of a dma-buf from an offset, or, if fd is negative, by its address.
	RegisterDevice(at unsafe.Pointer, size int, fd int, offset uint64) (Memory, error)
	Deregister(m Memory) error
	// Send and Receive post a message in registered memory. They return no request if that is not possible now. A
	// message may be shorter than its receive.
	Send(at unsafe.Pointer, size int, m Memory) (Request, error)
	Receive(at unsafe.Pointer, size int, m Memory) (Request, error)
	// Flush makes received bytes visible to the GPU. It returns no request if there is nothing to wait for.
	Flush(at unsafe.Pointer, size int, m Memory) (Request, error)
	// Test advances a request and reports whether it is complete, and the bytes of its message. A complete request
	// does not exist any more.
	Test(r Request) (size int, done bool, err error)
	Close() error
}

// CallError is the error of a call of a plugin's function.
type CallError struct {
	Plugin, Function string
	Code             int // ncclResult_t
}

// ErrPlugin is wrapped by all errors of plugins, except errors that mean a lost peer.
var ErrPlugin = errors.New("network plugin failed")

var codes = [...]string{"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
	"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress", "ncclTimeout"}

// The codes that mean a fault of the peer or of the network between.
const (
	systemError = 2
	remoteError = 6
)

// Error names the plugin, the function and its result.
func (e *CallError) Error() string {
	name := "unknown"
	if e.Code >= 0 && e.Code < len(codes) {
		name = codes[e.Code]
	}
	return fmt.Sprintf("network plugin %s: %s returned %d (%s)", e.Plugin, e.Function, e.Code, name)
}

// Unwrap returns [transport.ErrPeerLost] if the function moves messages and its code says that the peer or the network
// failed, else [ErrPlugin].
func (e *CallError) Unwrap() error {
	switch e.Function {
	case "isend", "irecv", "test":
		if e.Code == systemError || e.Code == remoteError {
			return transport.ErrPeerLost
		}
	}
	return ErrPlugin
}
