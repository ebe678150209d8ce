package session

import (
	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/recorder"
)

// Gather merges the sends and receives of a communicator into [State.Group] and its program on packet planes. It
// returns the index of the first such call, -1 if there are none.
func (s *Session) Gather(c *comm.Core) (first int, err error) {
	first = -1
	st := Of(c)
	g := &st.Group
	g.Sends, g.Recvs, g.Buffers, st.recvBufs = g.Sends[:0], g.Recvs[:0], g.Buffers[:0], st.recvBufs[:0]
	for i := range s.Calls {
		call := &s.Calls[i]
		if call.Comm != c || !call.Kind.P2P() {
			continue
		}
		if first < 0 {
			first = i
		}
		send, recv := call.Extents()
		whole := int64(call.Whole) * int64(call.Type.Size())
		if call.Kind == calls.Send {
			g.Sends = append(g.Sends, program.Message{Peer: int(call.Peer), Bytes: send, Whole: whole})
			g.Buffers = append(g.Buffers, exec.Buffer{Ptr: call.Send, Len: send})
		} else {
			g.Recvs = append(g.Recvs, program.Message{Peer: int(call.Peer), Bytes: recv, Whole: whole})
			st.recvBufs = append(st.recvBufs, exec.Buffer{Ptr: call.Recv, Len: recv})
		}
	}
	if first < 0 {
		return first, nil
	}
	g.Buffers = append(g.Buffers, st.recvBufs...)
	args := program.P2PArgs{Rank: c.Rank, Ranks: c.Ranks, Planes: len(st.Packet.Planes()), MinPiece: st.MinPiece}
	if err := program.BuildP2P(&st.p2p, args, g.Sends, g.Recvs); err != nil {
		return first, s.Calls[first].Misuse(err)
	}
	g.Flight = recorder.Of(c).AddGroup(g.Sends, g.Recvs)
	return first, nil
}

// BindMessages prepares the task of the gathered sends and receives on packet planes. Call first is the first of them.
func (s *Session) BindMessages(c *comm.Core, first int) error {
	st := Of(c)
	return s.bindTask(Ref{Comm: c, Call: first, Seq: st.Seq, Flight: st.Group.Flight}, &exec.Call{
		Program: &st.p2p, Messages: st.Group.Buffers, Comm: c.ID, Op: st.Seq, Pairs: st.Pairs, Memory: s.Memory,
		Endpoint: st.Packet,
		Poison:   c.Poison(),
	}, false, false)
}

// BindRound is [Session.BindMessages] with a program on planes with circuits, for round number.
func (s *Session) BindRound(c *comm.Core, first int, number uint64, prog *program.Program) error {
	st, p := Of(c), circuits.Of(c)
	return s.bindTask(Ref{Comm: c, Call: first, Seq: number, Circuits: true, Flight: st.Group.Flight}, &exec.Call{
		Program: prog, Messages: st.Group.Buffers, Comm: c.ID, Op: st.Seq, Pairs: st.Pairs, Endpoint: p.End,
		Poison: c.Poison(),
		OCS:    p, Base: p.Machine.Base(), SkipDrain: p.SkipDrain,
	}, recorder.Of(c).Timed, false)
}
