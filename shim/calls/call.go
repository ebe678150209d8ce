package calls

import (
	"fmt"
	"math"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/planeset"
)

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

// Check checks a call without running it. An error names the argument and wraps [errdefs.ErrInvalidArgument]. If the
// communicator has failed, the error is its failure.
func Check(c *Call) error {
	if c.Comm == nil {
		return fmt.Errorf("shim: %v: comm is NULL: %w", c.Kind, errdefs.ErrInvalidArgument)
	}
	if err := c.Comm.Usable(); err != nil {
		return err
	}
	return c.Validate()
}

// Validate is [Check] for a call that the communicator has accepted already.
func (c *Call) Validate() error {
	if c.Kind.OneSided() {
		return c.checkOneSided()
	}
	if err := c.validate(); err != nil {
		return err
	}
	return c.Resolve()
}

// Invalid returns the error of an argument.
func (c *Call) Invalid(format string, args ...any) error {
	return fmt.Errorf("shim: %v: %s: %w", c.Kind, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// validate checks the arguments, except that buffers overlap. Hot path: it allocates for errors only.
func (c *Call) validate() error {
	if c.Kind >= NumKinds {
		return c.Invalid("no such call")
	}
	k, n := &Kinds[c.Kind], c.Comm.Ranks
	switch {
	case c.Type >= datatype.NumTypes:
		return c.Invalid("datatype %d is none", c.Type)
	case k.Reduces && c.Op > OpPreMulSum:
		return c.Invalid("reduction operator %d is none", c.Op)
	case k.Reduces && c.Op == OpPreMulSum && c.Scalar == nil:
		return c.Invalid("the operator's scalar is NULL")
	case k.Rooted && (c.Peer < 0 || int(c.Peer) >= n):
		return c.Invalid("root %d is not a rank of 0..%d", c.Peer, n-1)
	case c.Kind.P2P() && (c.Peer < 0 || int(c.Peer) >= n):
		return c.Invalid("peer %d is not a rank of 0..%d", c.Peer, n-1)
	case c.Count > math.MaxInt64/uint64(8*n):
		return c.Invalid("count %d is negative or too large", int64(c.Count))
	}
	if err := c.checkStream(); err != nil {
		return err
	}
	if err := c.checkOptions(); err != nil {
		return err
	}
	send, recv := c.measure()
	switch {
	case send > 0 && c.Send == nil:
		return c.Invalid("sendbuff is NULL")
	case recv > 0 && c.Recv == nil:
		return c.Invalid("recvbuff is NULL")
	}
	return nil
}

// Resolve finds the sizes of the buffers and whether the call is in place. [Check] calls it. A call whose buffers or
// count have changed since needs it again. Hot path.
func (c *Call) Resolve() (err error) {
	c.sendBytes, c.recvBytes = c.measure()
	c.inPlace, err = c.Overlap(c.sendBytes, c.recvBytes)
	return err
}

// Extents returns the bytes of the send and receive buffer at this rank, 0 for one that it does not have.
func (c *Call) Extents() (send, recv int64) { return c.sendBytes, c.recvBytes }

// InPlace reports whether the call is in place.
func (c *Call) InPlace() bool { return c.inPlace }

func (c *Call) checkStream() error {
	if why := FactsOf(c.Comm).NoDevice; c.Stream != 0 && why != nil {
		return c.Invalid("stream is not NULL, and the communicator has no device: %v", why)
	}
	return nil
}

// measure returns the bytes of the buffers.
func (c *Call) measure() (send, recv int64) {
	if c.Count == 0 {
		return 0, 0
	}
	k := &Kinds[c.Kind]
	block := int64(c.Count) * int64(c.Type.Size())
	atRoot := int(c.Peer) == c.Comm.Rank
	if !k.sendRoot || atRoot {
		send = Blocks(k.Send, c.Comm.Ranks) * block
	}
	if !k.recvRoot || atRoot {
		recv = Blocks(k.Recv, c.Comm.Ranks) * block
	}
	return send, recv
}

// Blocks returns how many blocks a buffer has, as [Info] says it.
func Blocks(of, ranks int) int64 {
	if of < 0 {
		return int64(ranks)
	}
	return int64(of)
}

// Overlap reports whether the buffers overlap as those of an in-place call do. Any other overlap is an error: the
// result would depend on the order of transfers.
func (c *Call) Overlap(send, recv int64) (inPlace bool, err error) {
	if send == 0 || recv == 0 {
		return false, nil
	}
	s, r := uintptr(c.Send), uintptr(c.Recv)
	if s+uintptr(send) <= r || r+uintptr(recv) <= s {
		return false, nil
	}
	// The rank's own block of the larger buffer lies on the smaller one.
	own := uintptr(int64(c.Comm.Rank) * int64(c.Count) * int64(c.Type.Size()))
	k := &Kinds[c.Kind]
	switch {
	case k.Send == k.Recv && s == r,
		k.Send == 1 && k.Recv == -1 && s == r+own,
		k.Send == -1 && k.Recv == 1 && r == s+own:
		return true, nil
	}
	return false, c.Invalid("sendbuff and recvbuff overlap, and not as an in-place call does")
}

// checkOneSided checks the arguments of a one-sided call.
func (c *Call) checkOneSided() error {
	n := c.Comm.Ranks
	if c.Peer < 0 || int(c.Peer) >= n {
		return c.Invalid("peer %d is not a rank of 0..%d", c.Peer, n-1)
	}
	if c.Options != (Options{}) {
		return c.Invalid("one-sided calls have no options")
	}
	if err := c.checkStream(); err != nil {
		return err
	}
	switch {
	case c.Kind == Signal:
		return nil
	case c.Kind == WaitSignal && (c.Count < 1 || c.Count > 1<<31-1):
		return c.Invalid("opCnt %d is not positive", int64(c.Count))
	case c.Kind == WaitSignal:
		return nil
	}
	if c.Type.Size() == 0 {
		return c.Invalid("datatype %d is none", c.Type)
	}
	w, err := memory.Lookup(c.Comm, c.Window, true)
	switch {
	case err != nil:
		return err
	case c.Count > uint64(w.Size), c.Offset > uint64(w.Size), c.Offset+c.Count*uint64(c.Type.Size()) > uint64(w.Size):
		return c.Invalid("%d elements of %v at %d end beyond the window, of %d bytes", c.Count, c.Type, c.Offset, w.Size)
	case c.Send == nil && c.Count > 0:
		return c.Invalid("localbuff is NULL")
	}
	return nil
}

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
