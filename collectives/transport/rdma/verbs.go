package rdma

import "fmt"

// Verbs opens RDMA devices. Package cgo/verbs implements it over libibverbs, verbstest in
// memory. Nothing but CQ.FD's readability depends on goroutines or threads of its own.
type Verbs interface {
	// Open opens a device by its name, "mlx5_0", and allocates a protection domain on it.
	Open(name string) (Device, error)
	// Names lists the devices of this host. The error says why there can be none.
	Names() ([]string, error)
}

// Device is an open device with a protection domain. What is made from it is closed before it.
type Device interface {
	// Port describes a port, counted from 1.
	Port(port int) (PortInfo, error)
	// GID returns an entry of a port's table; one that is not in use is the zero Entry.
	GID(port, index int) (Entry, error)
	// Register makes memory known to the device, for its own use, and if written says so for
	// writes of peers. The memory is not on Go's heap and outlives the region.
	Register(mem []byte, written bool) (Region, error)
	// RegisterBuf makes known size bytes of a dma-buf, from an offset in it, for the device's own use and for writes of
	// peers: they are at address at in what is posted and told, as far into a page as the offset is. The descriptor
	// may be closed then; the memory stays until the region is closed. It fails where the device, its driver or
	// the library take no dma-buf.
	RegisterBuf(fd int, offset uint64, size int, at uint64) (Region, error)
	// NewCQ makes a completion queue with room for entries completions.
	NewCQ(entries int) (CQ, error)
	// NewQP makes a queue pair in the state INIT: receives may be posted.
	NewQP(o QPOptions) (QP, error)
	// Event returns the next thing that has befallen the device, and false where there is none. It
	// never blocks.
	Event() (Event, bool, error)
	// EventFD is a descriptor that poll(2) finds readable where there is an Event. It stays the
	// device's.
	EventFD() int
	Close() error
}

// PortInfo is what a port says of itself.
type PortInfo struct {
	Active   bool
	State    string // "ACTIVE", "DOWN", ...
	MTU      int    // active path MTU, bytes
	LID      uint16
	Ethernet bool // RoCE: peers are addressed by GID; else by LID
	GIDs     int  // length of the table
	Soft     bool // soft-RoCE, Linux's rxe: see [ListenOptions]
}

// GID addresses a port; on RoCE it is an IPv6 address, or an IPv4 one mapped into it.
type GID [16]byte

// EntryType is the kind of an entry of a port's table of GIDs.
type EntryType uint8

// Kinds of entries. None is an entry that is not in use.
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

// EventKind is what has befallen a device.
type EventKind uint8

// Kinds of events. The numbers are this package's.
const (
	OtherEvent   EventKind = iota // nothing to act on
	DeviceFatal                   // the device is gone, or of no use any more
	QueueFailed                   // a queue pair, QPN
	CQFailed                      // a completion queue
	PortDown                      // Port
	PortUp                        // Port
	AddressMoved                  // a GID, LID or key of Port is another now
)

var eventNames = [...]string{"an event", "the device has failed or was removed", "a queue pair has failed", "a completion queue has failed",
	"the port went down", "the port came up", "an address of the port changed"}

// String says what it is, in words.
func (k EventKind) String() string { return eventNames[k] }

// Event is something that befell a device, a port or a queue of it.
type Event struct {
	Kind EventKind
	Port int    // where it is about one
	QPN  uint32 // where it is about one
}

// Region is registered memory.
type Region interface {
	Keys() (local, remote uint32)
	Close() error
}

// CQ is a completion queue. One goroutine at a time uses it.
type CQ interface {
	// Poll writes completions into c and returns how many; it never blocks or allocates.
	Poll(c []Completion) (int, error)
	// Arm has FD become readable at the next completion.
	Arm() error
	// FD is a descriptor for poll(2). It stays the queue's.
	FD() int
	// Quiet takes what Arm asked for off FD, and reports whether there was anything.
	Quiet() (bool, error)
	Close() error
}

// QPOptions describe a queue pair: reliable and connected (RC), or not (UC).
type QPOptions struct {
	// Unacknowledged makes it UC: a write that is lost, or finds no receive, is lost silently, and is
	// complete when it has left the port.
	Unacknowledged bool
	CQ             CQ // for both directions
	Port           int
	Sends, Recvs   int // requests that may be outstanding
	Inline         int // bytes that SendInline should take
}

// QP is a queue pair. One goroutine at a time uses it.
type QP interface {
	Number() uint32
	// MaxInline is how many bytes SendInline takes; it may be more or less than was asked for.
	MaxInline() int
	// Connect takes the pair from INIT over RTR to RTS.
	Connect(p *Path) error
	// PostSend posts writes, in order, and returns how many were. It never allocates. What is
	// inlined is in one piece.
	PostSend(r []SendRequest) (int, error)
	// PostRecv posts n receives without memory, for immediates; their completions carry id.
	PostRecv(id uint64, n int) error
	Close() error
}

// Path is how one queue pair reaches another.
type Path struct {
	Port     int // the local one
	GIDIndex int // of the local port's table
	Ethernet bool
	PeerGID  GID
	PeerLID  uint16
	PeerQPN  uint32
	PeerPSN  uint32 // number of the first packet that the peer sends
	PSN      uint32 // and that this end does
	MTU      int    // bytes: 256, 512, ... 4096
	// TrafficClass and ServiceLevel are the packets' priority.
	TrafficClass, ServiceLevel uint8
	// Timeout is 4.096 us times two to its power; Retries is how many of them a packet gets.
	Timeout, Retries uint8
}

// Flags of a [SendRequest].
const (
	SendSignaled  = 1 << iota // completes visibly
	SendInline                // the memory is free again when PostSend returns
	SendImmediate             // consumes a receive of the peer, which sees Imm
)

// SendRequest is an RDMA write of Length bytes at Local, followed by DataLength ones at Data. It
// holds addresses and no pointers: its memory is registered.
type SendRequest struct {
	ID                  uint64
	Local, Remote, Data uint64 // addresses
	LKey, RKey, DataKey uint32
	Length, DataLength  uint32
	Imm                 uint32
	Flags               uint32
	_                   uint32
}

// Completion is the end of a request.
type Completion struct {
	ID     uint64
	Status Status
	Vendor uint32 // the device's own code of an error
	Bytes  uint32 // of a receive: what the write brought
	Imm    uint32
	QPN    uint32
	_      uint32
}

// Status is how a request ended; the numbers are libibverbs'.
type Status uint32

// Those that this package tells apart.
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
	"BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR",
	"LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR",
	"RESP_TIMEOUT_ERR", "GENERAL_ERR",
}

// String returns the name in libibverbs, without IBV_WC_.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}
