package rdma

import "fmt"

// Verbs opens RDMA devices. Package cgo/verbs implements it with libibverbs, and package verbstest in memory. An
// implementation needs goroutines or threads only to make descriptors readable.
type Verbs interface {
	// Open opens a device by name ("mlx5_0") and allocates a protection domain on it.
	Open(name string) (Device, error)
	// Names returns the devices of this host. The error says why the host has none.
	Names() ([]string, error)
}

// Device is an open device with a protection domain. The caller closes all objects of a device before the device.
type Device interface {
	// Port describes a port, counted from 1.
	Port(port int) (PortInfo, error)
	// GID returns an entry of a port's table, and the zero Entry for an unused one.
	GID(port, index int) (Entry, error)
	// Register registers memory for the device. If written is set, peers may write to it. The memory must not be on
	// Go's heap, and the caller unmaps it after it has closed the region.
	Register(mem []byte, written bool) (Region, error)
	// RegisterBuf registers size bytes of a dma-buf from an offset, for the device and for writes of peers. Requests
	// use the address at, which has the same position in a page as the offset. The caller may close the descriptor
	// afterwards; the region keeps the memory. It returns an error if the device, its driver or the library do not
	// support dma-bufs.
	RegisterBuf(fd int, offset uint64, size int, at uint64) (Region, error)
	// NewCQ creates a completion queue for entries completions.
	NewCQ(entries int) (CQ, error)
	// NewQP creates a queue pair in the state INIT, in which receives may be posted.
	NewQP(o QPOptions) (QP, error)
	// Event returns the next event of the device, and false if there is none. It never blocks.
	Event() (Event, bool, error)
	// EventFD returns a descriptor that is readable while an Event is pending. The device owns it.
	EventFD() int
	Close() error
}

// PortInfo describes a port.
type PortInfo struct {
	Active   bool
	State    string // "ACTIVE", "DOWN", ...
	MTU      int    // active path MTU, bytes
	LID      uint16
	Ethernet bool // RoCE, which addresses peers by GID; InfiniBand addresses them by LID
	GIDs     int  // length of the table
	Soft     bool // soft-RoCE (Linux's rxe): see [ListenOptions]
}

// GID is the address of a port. On RoCE it is an IPv6 address or a mapped IPv4 address.
type GID [16]byte

// EntryType is the kind of an entry of a port's table of GIDs.
type EntryType uint8

// Kinds of entries. None is an unused entry.
const (
	None EntryType = iota
	InfiniBand
	RoCEv1
	RoCEv2
)

// Entry is one entry of a port's table of GIDs.
type Entry struct {
	GID  GID
	Type EntryType
}

// EventKind is the kind of an asynchronous event of a device.
type EventKind uint8

// Kinds of events. The numbers are not those of libibverbs.
const (
	OtherEvent   EventKind = iota // needs no reaction
	DeviceFatal                   // the device has failed or was removed
	QueueFailed                   // queue pair QPN has failed
	CQFailed                      // a completion queue has failed
	PortDown                      // of Port
	PortUp                        // of Port
	AddressMoved                  // a GID, LID or key of Port has changed
)

var eventNames = [...]string{"an event", "the device has failed or was removed", "a queue pair has failed",
	"a completion queue has failed", "the port went down", "the port came up", "an address of the port changed"}

// String describes the kind.
func (k EventKind) String() string { return eventNames[k] }

// Event is an asynchronous event of a device.
type Event struct {
	Kind EventKind
	Port int    // if the event concerns a port
	QPN  uint32 // if the event concerns a queue pair
}

// Region is registered memory.
type Region interface {
	Keys() (local, remote uint32)
	Close() error
}

// CQ is a completion queue. One goroutine at a time uses it.
type CQ interface {
	// Poll writes completions into c and returns their number. It never blocks or allocates.
	Poll(c []Completion) (int, error)
	// Arm makes FD readable at the next completion.
	Arm() error
	// FD returns a descriptor for poll(2). The queue owns it.
	FD() int
	// Quiet removes the event from FD, so that it is no longer readable, and reports whether there was one.
	Quiet() (bool, error)
	Close() error
}

// QPOptions describe a queue pair: reliable connected (RC) or unreliable connected (UC).
type QPOptions struct {
	// Unacknowledged selects UC. The device does not detect a lost write, or a write without a receive. A write is
	// complete when it has left the port.
	Unacknowledged bool
	CQ             CQ // for sends and receives
	Port           int
	Sends, Recvs   int // largest numbers of outstanding requests
	Inline         int // requested limit of SendInline in bytes
}

// QP is a queue pair. One goroutine at a time uses it.
type QP interface {
	Number() uint32
	// MaxInline returns the limit of SendInline in bytes, which may differ from the requested one.
	MaxInline() int
	// Connect changes the state from INIT over RTR to RTS.
	Connect(p *Path) error
	// PostSend posts writes in order and returns the number posted. It never allocates. A request with SendInline has
	// one piece.
	PostSend(r []SendRequest) (int, error)
	// PostRecv posts n receives without memory, for immediates. Their completions carry id.
	PostRecv(id uint64, n int) error
	Close() error
}

// Path describes the connection of a queue pair to its peer.
type Path struct {
	Port     int // local port
	GIDIndex int // in the local port's table
	Ethernet bool
	PeerGID  GID
	PeerLID  uint16
	PeerQPN  uint32
	PeerPSN  uint32 // number of the first packet that the peer sends
	PSN      uint32 // number of the first packet that this queue pair sends
	MTU      int    // bytes: 256, 512, ... 4096
	Service
}

// Service says when a peer is lost, and which priority packets have.
type Service struct {
	// A packet is lost after Retries timeouts of 4.096 us * 2^Timeout each.
	Timeout, Retries uint8
	// TrafficClass and ServiceLevel are the packets' priority.
	TrafficClass, ServiceLevel uint8
}

// Flags of a [SendRequest].
const (
	SendSignaled  = 1 << iota // causes a completion
	SendInline                // PostSend copies the payload, whose memory is free afterwards
	SendImmediate             // consumes a receive of the peer and carries Imm
)

// SendRequest is an RDMA write of Length bytes at Local, followed by DataLength bytes at Data. It holds addresses and
// no pointers, because the memory is registered.
type SendRequest struct {
	ID                  uint64
	Local, Remote, Data uint64 // addresses
	LKey, RKey, DataKey uint32
	Length, DataLength  uint32
	Imm                 uint32
	Flags               uint32
	_                   uint32
}

// Completion reports that a request has ended.
type Completion struct {
	ID     uint64
	Status Status
	Vendor uint32 // vendor's error code
	Bytes  uint32 // of a receive: bytes written
	Imm    uint32
	QPN    uint32
	_      uint32
}

// Status is the status of a completion, with the numbers of libibverbs.
type Status uint32

// Statuses that this package handles.
const (
	Success      Status = 0
	FlushErr     Status = 5
	RemInvReqErr Status = 9
	AccessErr    Status = 10
	RemOpErr     Status = 11
	RetryExc     Status = 12
	RNRExc       Status = 13
)

var statusNames = [...]string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
	"BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
	"RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
	"INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
}

// String returns the name of libibverbs without IBV_WC_.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}
