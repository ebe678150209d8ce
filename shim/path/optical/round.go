package optical

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"lightpath/collectives/program"
	"lightpath/shim/arbiter"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/session"
	"lightpath/shim/ticket"
)

// round is a group of sends and receives that is posted to the leader, a [circuits.Executor]. If all ranks take part
// the group goes over circuits, else over the packet planes.
type round struct {
	o      *Path
	s      *session.Session
	first  int    // the group's first call
	number uint64 // of the round
	after  uint64 // collectives that were called before the last post
	posts  uint32 // since then
	row    ticket.Row
	next   []uint64
	table  map[exchangeKey]*program.Program
}

// maxExchanges bounds the table. A loop over one matrix comes back to two programs.
const maxExchanges = 64

// exchangeKey holds the values on which the program of an exchange depends within a rank.
type exchangeKey struct {
	plan planning.ID
	maps uint64 // where the planes stand
	use  planeset.Set
	mine [sha256.Size]byte // this rank's messages
}

// runRound runs the gathered sends and receives as the leader decides.
func (o *Path) runRound(s *session.Session, first int) error {
	x, st := &o.round, o.session
	x.o, x.s, x.first = o, s, first
	if x.after != st.Seq {
		x.after, x.posts = st.Seq, 0
	}
	x.posts++
	x.number = arbiter.RoundNumber(st.Seq, x.posts)
	x.row.Sends = x.list(x.row.Sends[:0], st.Group.Sends, st.Pairs.Sent)
	x.row.Recvs = x.list(x.row.Recvs[:0], st.Group.Recvs, st.Pairs.Received)
	return o.planes.Run(&circuits.Operation{Kind: control.MsgRow, Seq: x.number, Row: &x.row, Flight: st.Group.Flight}, x)
}

// list numbers messages within their pairs. past holds the number of earlier messages of each pair.
func (x *round) list(to []ticket.Message, messages []program.Message, past func(rank int) uint64) []ticket.Message {
	x.next = x.next[:0]
	for r := range x.o.c.Ranks {
		x.next = append(x.next, past(r))
	}
	for _, m := range messages {
		if m.Peer != x.o.c.Rank {
			to = append(to, ticket.Message{Peer: m.Peer, Number: x.next[m.Peer], Bytes: m.Bytes})
			x.next[m.Peer]++
		}
	}
	return to
}

// Bind implements [circuits.Executor].
func (x *round) Bind(t *circuits.Ticket) (circuits.Movement, error) {
	if t.OnPackets() {
		return nil, x.s.BindMessages(x.o.c, x.first)
	}
	prog, err := x.program(t)
	if err != nil {
		return nil, err
	}
	recorder.Of(x.o.c).Bound(x.o.session.Group.Flight, nil, t.Use, true)
	return prog, x.s.BindRound(x.o.c, x.first, x.number, prog)
}

// Drive implements [circuits.Executor].
func (x *round) Drive() error { return x.s.Drive() }

// program returns the program of this rank's messages under the plan of a ticket. It begins with the planes' present
// maps.
func (x *round) program(t *circuits.Ticket) (*program.Program, error) {
	if sha256.Sum256(t.Holds) != t.Plan {
		return nil, fmt.Errorf("%w: the ticket of round %#x is of another plan", control.ErrMessage, x.number)
	}
	c, st, p := x.o.c, x.o.session, x.o.planes
	key := exchangeKey{plan: t.Plan, maps: ticket.MapsHash(p.Machine.Standing(), t.Use), use: t.Use,
		mine: digestMessages(st.Group.Sends, st.Group.Recvs)}
	if known := x.table[key]; known != nil {
		return known, nil
	}
	plan, err := ticket.DecodeHolds(t.Holds, c.Ranks, t.Use.Len())
	if err != nil {
		return nil, err
	}
	all := len(p.Site.Planes)
	prog, err := program.LowerExchange(program.ExchangeArgs{
		Rank: c.Rank, Ranks: c.Ranks, Plan: t.Use.Spread(plan, all),
		Current: t.Use.SpreadMaps(ticket.MapsOf(p.Machine.Standing(), t.Use), all),
	}, st.Group.Sends, st.Group.Recvs)
	if err != nil {
		return nil, fmt.Errorf("shim: rank %d, grouped sends and receives, planner %s: %w", c.Rank, plan.Planner, err)
	}
	if x.table == nil || len(x.table) >= maxExchanges {
		x.table = map[exchangeKey]*program.Program{}
	}
	x.table[key] = prog
	st.Programs.TraceExchange(c, plan, prog)
	c.Log.Info(log.Tuning, "rank %d: %d sends, %d receives: planner %s, predicted %.1f us, %d instructions on %d of "+
		"%d planes", c.Rank, len(st.Group.Sends), len(st.Group.Recvs), plan.Planner, plan.CCTUS, prog.Instructions(),
		t.Use.Len(), all)
	return prog, nil
}

// digestMessages identifies the messages of a group.
func digestMessages(sends, recvs []program.Message) [sha256.Size]byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(sends)))
	for _, list := range [2][]program.Message{sends, recvs} {
		for _, m := range list {
			b = binary.LittleEndian.AppendUint64(b, uint64(m.Peer))
			b = binary.LittleEndian.AppendUint64(b, uint64(m.Bytes))
		}
	}
	return sha256.Sum256(b)
}
