package calls

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
)

// Kind is the kind of a call. Its values are shared with cgo/front (lp_core.h).
type Kind uint32

// The kinds of calls.
const (
	AllReduce Kind = iota
	Broadcast
	Reduce
	AllGather
	ReduceScatter
	AllToAll
	Gather
	Scatter
	Send
	Recv
	NumKinds // one-sided kinds follow
)

// The kinds of one-sided calls. Their values too are shared with cgo/front. A put takes its data from Send, Count and
// Type, and its place from Peer, Window and Offset. A wait takes Count signals of Peer.
const (
	PutSignal Kind = NumKinds + iota
	Signal
	WaitSignal
	EndOfKinds
)

// Info describes a kind of call.
type Info struct {
	Name       string
	Collective schedule.Collective // undefined for Send and Recv
	Rooted     bool
	Reduces    bool
	// Blocks of count elements in the buffers: 0 none, 1 one, -1 one per rank.
	Send, Recv         int
	sendRoot, recvRoot bool // only the root has the send, or receive, buffer
}

// Kinds describes each kind that is not one-sided.
var Kinds = [NumKinds]Info{
	AllReduce: {Name: "AllReduce", Collective: schedule.AllReduce, Reduces: true, Send: 1, Recv: 1},
	Broadcast: {Name: "Broadcast", Collective: schedule.Broadcast, Rooted: true, Send: 1, Recv: 1, sendRoot: true},
	Reduce: {
		Name: "Reduce", Collective: schedule.Reduce, Rooted: true, Reduces: true, Send: 1, Recv: 1, recvRoot: true,
	},
	AllGather:     {Name: "AllGather", Collective: schedule.AllGather, Send: 1, Recv: -1},
	ReduceScatter: {Name: "ReduceScatter", Collective: schedule.ReduceScatter, Reduces: true, Send: -1, Recv: 1},
	AllToAll:      {Name: "AlltoAll", Collective: schedule.AllToAll, Send: -1, Recv: -1},
	Gather:        {Name: "Gather", Collective: schedule.Gather, Rooted: true, Send: 1, Recv: -1, recvRoot: true},
	Scatter:       {Name: "Scatter", Collective: schedule.Scatter, Rooted: true, Send: -1, Recv: 1, sendRoot: true},
	Send:          {Name: "Send", Send: 1},
	Recv:          {Name: "Recv", Recv: 1},
}

// P2P reports whether the call is a send or a receive.
func (k Kind) P2P() bool { return k == Send || k == Recv }

// Reduces reports whether calls of the kind have an operator.
func (k Kind) Reduces() bool { return k < NumKinds && Kinds[k].Reduces }

// String returns NCCL's name of the call.
func (k Kind) String() string {
	if k.OneSided() {
		return [...]string{"PutSignal", "Signal", "WaitSignal"}[k-PutSignal]
	}
	if k >= NumKinds {
		return fmt.Sprintf("call kind %d", uint32(k))
	}
	return Kinds[k].Name
}

// OneSided reports whether the peer of the call takes no part in it.
func (k Kind) OneSided() bool { return k >= PutSignal && k < EndOfKinds }

// Call is one call of a communicator. Count is NCCL's: elements per block of a rank (AllGather: of the send buffer;
// ReduceScatter: of the receive buffer; AllToAll, Gather, Scatter: per peer). The buffers belong to the caller, and
// must stay valid until the group that holds the call returns or, for calls on streams, has run.
type Call struct {
	Comm  *comm.Core
	Kind  Kind
	Type  datatype.Type
	Op    datatype.Op
	Peer  int32 // the root, or the peer
	Count uint64
	Send  unsafe.Pointer
	Recv  unsafe.Pointer
	// Window is the caller's handle of the window that a put writes to, at byte Offset of the peer's window.
	Window, Offset uint64
	// Stream orders the call on the communicator's device. 0 is the default stream if a buffer is device memory,
	// otherwise the calling thread.
	Stream device.Stream
	// Scalar is the element by which [OpPreMulSum] multiplies this rank's contribution. It has type Type and any
	// alignment. The call reads it when it runs.
	Scalar unsafe.Pointer
	// Operator is the number of the user's operator for which [OpPreMulSum] stands; 0: none. Recipes of calls that C
	// makes carry it.
	Operator int32
	Options  Options

	Whole uint64 // Count of the call that this one is a piece of; 0: it is no piece

	// Set by Check and Resolve.
	inPlace              bool
	sendBytes, recvBytes int64
}

// String describes the values that ranks must agree on, for messages.
func (c *Call) String() string {
	if c.Kind.OneSided() {
		return DescribeOneSided(c.Kind, c.Count, c.Type, c.Peer)
	}
	if c.Kind >= NumKinds {
		return c.Kind.String()
	}
	k := &Kinds[c.Kind]
	s := fmt.Sprintf("%s(count %d, type %v", k.Name, max(c.Count, c.Whole), c.Type)
	if k.Reduces {
		s += ", op " + opName(c.Op)
	}
	if k.Rooted {
		s += fmt.Sprintf(", root %d", c.Peer)
	}
	if c.Kind.P2P() {
		s += fmt.Sprintf(", peer %d", c.Peer)
	}
	w := Request{c.Options.Plan, planeset.Set(c.Options.Planes)}
	return s + w.String() + ")"
}

// Invalid returns the error of an argument.
func (c *Call) Invalid(format string, args ...any) error {
	return fmt.Errorf("shim: %v: %s: %w", c.Kind, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// Extents returns the bytes of the send and receive buffer at this rank, 0 for one that it does not have.
func (c *Call) Extents() (send, recv int64) { return c.sendBytes, c.recvBytes }

// InPlace reports whether the call is in place.
func (c *Call) InPlace() bool { return c.inPlace }

// DescribeOneSided describes a one-sided call for messages.
func DescribeOneSided(k Kind, count uint64, typ datatype.Type, peer int32) string {
	switch k {
	case PutSignal:
		return fmt.Sprintf("PutSignal(count %d, type %v, peer %d)", count, typ, peer)
	case Signal:
		return fmt.Sprintf("Signal(peer %d)", peer)
	}
	return fmt.Sprintf("WaitSignal(%d signals, peer %d)", count, peer)
}

// Misuse returns the error of calls that cannot be in one group.
func (c *Call) Misuse(err error) error {
	return fmt.Errorf("shim: %v: %w: %w", c.Kind, err, errdefs.ErrInvalidUsage)
}

// Facts are values that the ranks of a communicator agreed on when they met. Checks and paths of calls need them.
type Facts struct {
	Circuits    bool              // the communicator has planes with circuits
	Planes      planeset.Set      // planes that a call may name: those with circuits, otherwise the packet planes
	CircuitKind plans.CircuitKind // of planes with circuits
	Cut         int64             // bytes of a buffer that a call moves in one piece; 0: any
	Launches    Launches          // how calls run on streams if no CPU touches their data
	Foreign     bool              // another libnccl executes collectives on streams
	NoDevice    error             // why this rank has no device, perhaps unlike others; nil: it has one
}

// Launches is the way in which calls run on streams without a CPU touching their data.
type Launches uint8

// The ways. With ByPortsOverCircuits only collectives with a script run on streams.
const (
	NoLaunches          Launches = iota // calls on streams are staged
	ByPeers                             // ranks access the memory of each other's devices
	ByPorts                             // RDMA ports access device memory, over packet planes
	ByPortsOverCircuits                 // RDMA ports access device memory, over planes with circuits
)

// state is what a communicator's calls need.
type state struct {
	facts     Facts
	operators operators
}

var slot = comm.NewSlot[state]()

// FactsOf returns the facts of a communicator.
func FactsOf(c *comm.Core) *Facts { return &slot.Of(c).facts }

// Setup prepares a communicator for calls.
func Setup(c *comm.Core) {
	slot.Set(c, &state{facts: Facts{CircuitKind: plans.Simplex, NoDevice: errNoDevice}})
}

var errNoDevice = errors.New("no device was looked for")

// Options are a call's requests beyond NCCL's arguments. The zero value requests nothing. All ranks must request the
// same plan and planes. Each rank has its own deadline.
type Options struct {
	// Plan begins the digest of the plan that the call must run. It needs planes with circuits.
	Plan DigestPrefix
	// Planes has a bit for each plane that the call may use, 0 for all: planes with circuits if the communicator has
	// some, else packet planes. If none of them is in service, the call runs on packet planes.
	Planes uint64
	// Deadline bounds the time of the call's group. 0 means no bound except LIGHTPATH_TIMEOUT without progress. A
	// missed deadline fails the communicator on all ranks, since no rank knows the progress of the others.
	Deadline time.Duration
}

// DigestPrefix is the first hexadecimal digits of a plan's digest, up to 16.
type DigestPrefix struct {
	Bits   uint64 // the first digit in the most significant bits; 0 beyond the last
	Digits uint8
}

// String returns the digits.
func (p DigestPrefix) String() string {
	return fmt.Sprintf("%016x", p.Bits)[:min(p.Digits, 16)]
}

// Matches reports whether a plan's digest begins with p.
func (p DigestPrefix) Matches(digest string) bool { return strings.HasPrefix(digest, p.String()) }

// Request is the part of options that ranks must agree on.
type Request struct {
	Plan   DigestPrefix
	Planes planeset.Set
}

// String describes a request for messages; "" for none.
func (w *Request) String() (s string) {
	if w.Plan.Digits > 0 {
		s += ", plan " + w.Plan.String()
	}
	if w.Planes != 0 {
		s += fmt.Sprintf(", planes %#x", uint64(w.Planes))
	}
	return s
}

// DeadlineOf returns the deadline of a group that begins now, the zero time for none.
func DeadlineOf(calls []Call) (t time.Time) {
	least := time.Duration(0)
	for i := range calls {
		if d := calls[i].Options.Deadline; d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	if least > 0 {
		t = time.Now().Add(least)
	}
	return t
}
