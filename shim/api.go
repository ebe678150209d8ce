// Package shim is what stands behind the NCCL ABI: communicators, groups, dispatch from
// a call to a program, tickets. What of it can stand alone is in the packages below it:
// bootstrap, control connections, settings, log, devices, status.
//
// Layer: above collectives, below cgo/core, bench and cmd. It contains no C
// and works on host memory.
package shim

import (
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/bootstrap"
	"lightpath/shim/device"
)

// UniqueID names a communicator that is being made; it is ncclUniqueId's 128 bytes.
type UniqueID = bootstrap.UniqueID

// UniqueIDSize is NCCL_UNIQUE_ID_BYTES.
const UniqueIDSize = bootstrap.UniqueIDSize

// NewUniqueID makes an id and starts its rendezvous in this process; see [bootstrap.NewUniqueID].
func NewUniqueID() (UniqueID, error) { return bootstrap.NewUniqueID() }

// CallKind is what a queued call does; the values are shared with cgo/front (lp_core.h).
type CallKind uint32

// The kinds of calls.
const (
	CallAllReduce CallKind = iota
	CallBroadcast
	CallReduce
	CallAllGather
	CallReduceScatter
	CallAllToAll
	CallGather
	CallScatter
	CallSend
	CallRecv
	NumCallKinds // the one-sided ones follow
)

// Call is one collective or point-to-point call. Count is NCCL's: elements per rank block
// (AllGather: of the send buffer; ReduceScatter: of the receive buffer; AllToAll, Gather,
// Scatter: per peer). Peer is the root or the peer. The buffers belong to the caller and
// must stay valid until the group that holds the call returns.
type Call struct {
	Comm  *Comm
	Kind  CallKind
	Type  datatype.Type
	Op    datatype.Op
	Peer  int32
	Count uint64
	Send  unsafe.Pointer
	Recv  unsafe.Pointer
	// Window is the caller's handle of the window that a put writes to, at byte Offset of the peer's.
	Window, Offset uint64
	// Stream is what the call is in the order of, on the communicator's device; 0 is the default stream where
	// a buffer is device memory, and the calling thread where none is.
	Stream device.Stream
	// Scalar is the element, of type Type and any alignment, by which [OpPreMulSum]
	// multiplies this rank's contribution. It is read when the call runs.
	Scalar unsafe.Pointer
	// Operator is the number that [OpPreMulSum] stands for, by which calls made without this package are
	// recognized ([Comm.UseGate]); 0: none.
	Operator int32
	Options  Options

	// crossing is set where the call is interposed, on streams already, and runs on planes with circuits.
	crossing *crossing
	// scripted: it has a plan that goes on streams, over RDMA ports.
	scripted bool
	whole    uint64 // Count of the call that this one is a piece of; 0: it is none
}
