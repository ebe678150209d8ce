package calls

import (
	"fmt"

	"lightpath/collectives/datatype"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/planeset"
)

// maxBytes bounds the buffers of a call: no address space is larger, and programs can address twice that much.
const maxBytes = 1 << 55

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

// Validate is [Check] for a call that the communicator has accepted already. Hot path: it allocates for errors only.
func (c *Call) Validate() (err error) {
	if c.Kind.OneSided() {
		return c.checkOneSided()
	}
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
	case c.Count > maxBytes/uint64(8*n):
		return c.Invalid("count %d is negative or too large", int64(c.Count))
	}
	if err := c.checkStream(); err != nil {
		return err
	}
	if err := c.checkOptions(); err != nil {
		return err
	}
	c.sendBytes, c.recvBytes = c.measure()
	switch {
	case c.sendBytes > 0 && c.Send == nil:
		return c.Invalid("sendbuff is NULL")
	case c.recvBytes > 0 && c.Recv == nil:
		return c.Invalid("recvbuff is NULL")
	}
	c.inPlace, err = c.Overlap(c.sendBytes, c.recvBytes)
	return err
}

func (c *Call) checkStream() error {
	if why := FactsOf(c.Comm).NoDevice; c.Stream != 0 && why != nil {
		return c.Invalid("stream is not NULL, and the communicator has no device: %v", why)
	}
	return nil
}

// checkOptions checks the options of a call, by facts that are the same on all ranks.
func (c *Call) checkOptions() error {
	o := &c.Options
	if *o == (Options{}) {
		return nil
	}
	f := FactsOf(c.Comm)
	asked := planeset.Set(o.Planes)
	switch {
	case o.Deadline < 0:
		return c.Invalid("deadline of %v", o.Deadline)
	case c.Kind.P2P() && (o.Planes != 0 || o.Plan.Digits != 0):
		return c.Invalid("only collectives can ask for a plan or planes")
	case asked&^f.Planes != 0:
		return c.Invalid("planes %#x are not among the communicator's %#x", o.Planes, uint64(f.Planes))
	case asked.Usable(f.CircuitKind) != asked:
		return c.Invalid("planes %#x: interleaved planes serve in pairs", o.Planes)
	case o.Plan.Digits > 16:
		return c.Invalid("a plan is named by at most 16 digits of its digest, not %d", o.Plan.Digits)
	case o.Plan.Digits > 0 && !f.Circuits:
		return c.Invalid("plan %v: the communicator has no planes with circuits", o.Plan)
	}
	return nil
}

// measure returns the bytes of the buffers. Of one-sided calls only a put has one.
func (c *Call) measure() (send, recv int64) {
	block := int64(c.Count) * int64(c.Type.Size())
	switch {
	case c.Kind == PutSignal:
		return block, 0
	case c.Count == 0 || c.Kind.OneSided():
		return 0, 0
	}
	k := &Kinds[c.Kind]
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

// Resolve finds the sizes of the buffers and whether the call is in place, for a call whose buffers or count have
// changed since [Check].
func (c *Call) Resolve() (err error) {
	c.sendBytes, c.recvBytes = c.measure()
	c.inPlace, err = c.Overlap(c.sendBytes, c.recvBytes)
	return err
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

// Calls that need more staging memory than LIGHTPATH_STAGING are cut into pieces. A piece is some elements of each
// block. It is itself a call, which ranks number and compare like any other. The cut follows from the call and from
// values that ranks exchanged when they met: LIGHTPATH_STAGING, and whether some rank has a device. So ranks whose
// buffers are host memory cut in the same way. Calls on circuits are planned as a whole and never cut.

// MostPieces bounds the pieces of a call, and so the work of putting it on a stream. Larger calls have larger pieces.
const MostPieces = 128

// PieceAlign divides the size of pieces, in bytes of each block, so that their rows are aligned like the blocks.
const PieceAlign = 256

// PieceCount returns how many elements of each block a piece of the call has: all of them if the call is not cut.
// Hot path: no allocation.
func (c *Call) PieceCount() uint64 {
	if FactsOf(c.Comm).Cut == 0 || c.Kind >= NumKinds || !c.Type.Valid() || c.Whole != 0 {
		return c.Count
	}
	k, width := &Kinds[c.Kind], int64(c.Type.Size())
	if k.Send < 0 || k.Recv < 0 {
		width *= int64(c.Comm.Ranks)
	}
	size := int64(c.Count) * width // of the larger buffer
	if size <= FactsOf(c.Comm).Cut {
		return c.Count
	}
	n := uint64(max(FactsOf(c.Comm).Cut, (size+MostPieces-1)/MostPieces) / width)
	align := uint64(PieceAlign / c.Type.Size())
	return min(max(n/align, 1)*align, c.Count)
}

// IsCut reports whether the call is made in pieces.
func (c *Call) IsCut() bool { return c.PieceCount() < c.Count }

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
	element := uint64(c.Type.Size())
	if element == 0 {
		return c.Invalid("datatype %d is none", c.Type)
	}
	w, err := memory.Lookup(c.Comm, c.Window, true)
	switch size := uint64(w.Size); {
	case err != nil:
		return err
	case c.Offset > size || c.Count > (size-c.Offset)/element:
		return c.Invalid("%d elements of %v at %d end beyond the window, of %d bytes", c.Count, c.Type, c.Offset, w.Size)
	case c.Send == nil && c.Count > 0:
		return c.Invalid("localbuff is NULL")
	}
	c.sendBytes, c.recvBytes = c.measure()
	return nil
}
