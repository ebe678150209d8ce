package shim

import (
	"fmt"
	"math"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
)

// kindInfo is what there is to know of a kind of call.
type kindInfo struct {
	name       string
	collective schedule.Collective // undefined for Send and Recv
	rooted     bool
	reduces    bool
	// Blocks of count elements in the buffers: 0 none, 1 one, -1 one per rank. At the root
	// alone where sendRoot or recvRoot says so.
	send, recv         int
	sendRoot, recvRoot bool
}

var kinds = [NumCallKinds]kindInfo{
	CallAllReduce:     {name: "AllReduce", collective: schedule.AllReduce, reduces: true, send: 1, recv: 1},
	CallBroadcast:     {name: "Broadcast", collective: schedule.Broadcast, rooted: true, send: 1, recv: 1, sendRoot: true},
	CallReduce:        {name: "Reduce", collective: schedule.Reduce, rooted: true, reduces: true, send: 1, recv: 1, recvRoot: true},
	CallAllGather:     {name: "AllGather", collective: schedule.AllGather, send: 1, recv: -1},
	CallReduceScatter: {name: "ReduceScatter", collective: schedule.ReduceScatter, reduces: true, send: -1, recv: 1},
	CallAllToAll:      {name: "AlltoAll", collective: schedule.AllToAll, send: -1, recv: -1},
	CallGather:        {name: "Gather", collective: schedule.Gather, rooted: true, send: 1, recv: -1, recvRoot: true},
	CallScatter:       {name: "Scatter", collective: schedule.Scatter, rooted: true, send: -1, recv: 1, sendRoot: true},
	CallSend:          {name: "Send", send: 1},
	CallRecv:          {name: "Recv", recv: 1},
}

func (k CallKind) p2p() bool { return k == CallSend || k == CallRecv }

// Reduces reports whether calls of the kind have an operator.
func (k CallKind) Reduces() bool { return k < NumCallKinds && kinds[k].reduces }

// String returns NCCL's name of the call.
func (k CallKind) String() string {
	if k.oneSided() {
		return [...]string{"PutSignal", "Signal", "WaitSignal"}[k-CallPutSignal]
	}
	if k >= NumCallKinds {
		return fmt.Sprintf("call kind %d", uint32(k))
	}
	return kinds[k].name
}

// String describes a call for messages: what must agree between ranks.
func (c *Call) String() string {
	if c.Kind.oneSided() {
		return sidedDetail(c.Kind, c.Count, c.Type, c.Peer)
	}
	if c.Kind >= NumCallKinds {
		return c.Kind.String()
	}
	k := &kinds[c.Kind]
	s := fmt.Sprintf("%s(count %d, type %v", k.name, max(c.Count, c.whole), c.Type)
	if k.reduces {
		s += ", op " + opName(c.Op)
	}
	if k.rooted {
		s += fmt.Sprintf(", root %d", c.Peer)
	}
	if c.Kind.p2p() {
		s += fmt.Sprintf(", peer %d", c.Peer)
	}
	w := wish{c.Options.Plan, planeset.Set(c.Options.Planes)}
	return s + w.String() + ")"
}

// Check reports whether a call's arguments are usable, without running it. The error
// names the argument and wraps [errdefs.ErrInvalidArgument]; the call has then had no effect. A
// communicator that has failed answers with its failure.
func Check(c *Call) error {
	if c.Comm == nil {
		return fmt.Errorf("shim: %v: comm is NULL: %w", c.Kind, errdefs.ErrInvalidArgument)
	}
	if err := c.Comm.Usable(); err != nil {
		return err
	}
	if c.Kind.oneSided() {
		return c.checkOneSided()
	}
	_, err := c.check()
	return err
}

func (c *Call) invalid(format string, args ...any) error {
	return fmt.Errorf("shim: %v: %s: %w", c.Kind, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// check validates the arguments and reports whether the call is in place. Hot path: it
// allocates for errors only.
func (c *Call) check() (inPlace bool, err error) {
	if c.Kind >= NumCallKinds {
		return false, c.invalid("no such call")
	}
	k, n := &kinds[c.Kind], c.Comm.Ranks
	if c.Type >= datatype.NumTypes {
		return false, c.invalid("datatype %d is none", c.Type)
	}
	if k.reduces && c.Op > OpPreMulSum {
		return false, c.invalid("reduction operator %d is none", c.Op)
	}
	if k.reduces && c.Op == OpPreMulSum && c.Scalar == nil {
		return false, c.invalid("the operator's scalar is NULL")
	}
	if k.rooted && (c.Peer < 0 || int(c.Peer) >= n) {
		return false, c.invalid("root %d is not a rank of 0..%d", c.Peer, n-1)
	}
	if c.Kind.p2p() && (c.Peer < 0 || int(c.Peer) >= n) {
		return false, c.invalid("peer %d is not a rank of 0..%d", c.Peer, n-1)
	}
	if c.Count > math.MaxInt64/uint64(8*n) {
		return false, c.invalid("count %d is negative or too large", int64(c.Count))
	}
	if err := c.checkStream(); err != nil {
		return false, err
	}
	if err := c.checkOptions(); err != nil {
		return false, err
	}
	if c.Count == 0 {
		return false, nil
	}
	send, recv := c.extents()
	if send > 0 && c.Send == nil {
		return false, c.invalid("sendbuff is NULL")
	}
	if recv > 0 && c.Recv == nil {
		return false, c.invalid("recvbuff is NULL")
	}
	return c.overlap(send, recv)
}

func (c *Call) checkStream() error {
	if c.Stream != 0 && onDeviceOf(c.Comm) == nil {
		return c.invalid("stream is not NULL, and the communicator has no device: %v", factsOf(c.Comm).noDevice)
	}
	return nil
}

// extents returns the bytes of the send and receive buffer at this rank, 0 for one that
// it does not have.
func (c *Call) extents() (send, recv int64) {
	k := &kinds[c.Kind]
	block := int64(c.Count) * int64(c.Type.Size())
	atRoot := int(c.Peer) == c.Comm.Rank
	if !k.sendRoot || atRoot {
		send = blocks(k.send, c.Comm.Ranks) * block
	}
	if !k.recvRoot || atRoot {
		recv = blocks(k.recv, c.Comm.Ranks) * block
	}
	return send, recv
}

func blocks(of, ranks int) int64 {
	if of < 0 {
		return int64(ranks)
	}
	return int64(of)
}

// overlap decides whether the call is in place. Buffers that overlap in any way but
// NCCL's in-place layout are an error: the result would depend on the order of transfers.
func (c *Call) overlap(send, recv int64) (inPlace bool, err error) {
	if send == 0 || recv == 0 {
		return false, nil
	}
	s, r := uintptr(c.Send), uintptr(c.Recv)
	if s+uintptr(send) <= r || r+uintptr(recv) <= s {
		return false, nil
	}
	// The rank's own block of the larger buffer lies on the smaller one.
	own := uintptr(int64(c.Comm.Rank) * int64(c.Count) * int64(c.Type.Size()))
	k := &kinds[c.Kind]
	switch {
	case k.send == k.recv && s == r,
		k.send == 1 && k.recv == -1 && s == r+own,
		k.send == -1 && k.recv == 1 && r == s+own:
		return true, nil
	}
	return false, c.invalid("sendbuff and recvbuff overlap, and not as an in-place call does")
}

// bytesOf views n bytes at p; nil for none.
func bytesOf(p unsafe.Pointer, n int64) []byte {
	if n == 0 || p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(p), n)
}
