package calls

import (
	"fmt"

	"lightpath/collectives/schedule"
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
