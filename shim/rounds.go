package shim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/plans/circuit"
	"lightpath/shim/arbiter"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/ticket"
)

// round is a group of sends and receives that is posted to the leader, a [circuits.Executor]. If all ranks take part the
// group goes over circuits, else over the packet planes.
type round struct {
	o      *opticalPath
	s      *session
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

// exchangeKey is what the program of an exchange depends on within a rank.
type exchangeKey struct {
	plan planning.ID
	maps uint64 // where the planes stand
	use  planeset.Set
	mine [sha256.Size]byte // this rank's messages
}

// postsRounds reports whether groups of sends and receives are posted.
func (o *opticalPath) postsRounds() bool {
	return o.c.Cfg.Demand != settings.DemandOff && !o.c.Cfg.BarrierTime
}

// runRound runs the sends and receives that have been gathered as the leader decides.
func (o *opticalPath) runRound(s *session, first int) error {
	x, h := &o.round, hostOf(o.c)
	x.o, x.s, x.first = o, s, first
	if x.after != h.seq {
		x.after, x.posts = h.seq, 0
	}
	x.posts++
	x.number = arbiter.RoundNumber(h.seq, x.posts)
	x.row.Sends = x.list(x.row.Sends[:0], h.sends, h.pairs.Sent)
	x.row.Recvs = x.list(x.row.Recvs[:0], h.recvs, h.pairs.Received)
	return o.planes.Run(&circuits.Operation{Kind: control.MsgRow, Seq: x.number, Row: &x.row, Flight: h.group}, x)
}

// list numbers messages within their pairs. past says how many each pair has exchanged.
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
func (x *round) Bind(g *circuits.Grant) ([][]circuit.Permutation, error) {
	c, h, p := x.o.c, hostOf(x.o.c), x.o.planes
	if g.OnPackets() {
		return nil, x.s.bindMessages(c, x.first)
	}
	prog, err := x.program(g)
	if err != nil {
		return nil, err
	}
	recorder.Of(c).Bound(h.group, nil, g.Use, true)
	task := h.task()
	task.Trace(recorder.Of(c).Timed)
	err = task.Bind(exec.Call{
		Program: prog, Messages: h.msgs, Comm: c.ID, Op: h.seq, Pairs: h.pairs, Endpoint: p.End, Poison: c.Poison(),
		OCS: p.Switches(), Base: p.Base(), SkipDrain: p.SkipDrain,
	})
	if err != nil {
		return nil, err
	}
	x.s.tasks = append(x.s.tasks, task)
	x.s.refs = append(x.s.refs, taskRef{comm: c, call: x.first, seq: x.number, circuits: true, flight: h.group})
	return prog.Configs, nil
}

// Drive implements [circuits.Executor].
func (x *round) Drive() error { return x.s.drive() }

// program returns the program of this rank's messages under the plan of a grant, from where the planes stand.
func (x *round) program(g *circuits.Grant) (*program.Program, error) {
	if sha256.Sum256(g.Plan) != g.Ticket.Plan {
		return nil, fmt.Errorf("%w: the ticket of round %#x is of another plan", control.ErrMessage, x.number)
	}
	c, h, p := x.o.c, hostOf(x.o.c), x.o.planes
	key := exchangeKey{plan: g.Ticket.Plan, maps: ticket.Standing(p.Now(), g.Use), use: g.Use, mine: digestMessages(h.sends, h.recvs)}
	if known := x.table[key]; known != nil {
		return known, nil
	}
	plan, err := ticket.DecodeHolds(g.Plan, c.Ranks, g.Use.Len())
	if err != nil {
		return nil, err
	}
	all := len(p.Planes)
	prog, err := program.LowerExchange(program.ExchangeArgs{
		Rank: c.Rank, Ranks: c.Ranks, Plan: g.Use.Spread(plan, all), Current: g.Use.SpreadMaps(ticket.MapsOf(p.Now(), g.Use), all),
	}, h.sends, h.recvs)
	if err != nil {
		return nil, fmt.Errorf("shim: rank %d, grouped sends and receives, planner %s: %w", c.Rank, plan.Planner, err)
	}
	if x.table == nil || len(x.table) >= maxExchanges {
		x.table = map[exchangeKey]*program.Program{}
	}
	x.table[key] = prog
	h.programs.TraceExchange(c, plan, prog)
	c.Log.Info(log.Tuning, "rank %d: %d sends, %d receives: planner %s, predicted %.1f us, %d operations on %d of %d planes",
		c.Rank, len(h.sends), len(h.recvs), plan.Planner, plan.CCTUS, len(prog.Ops), g.Use.Len(), all)
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
