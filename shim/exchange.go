package shim

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/ticket"
)

// exchanges is what a rank keeps for rounds of grouped sends and receives.
type exchanges struct {
	after uint64 // collectives called before the last post
	posts uint32 // since then
	row   ticket.Row
	buf   []byte
	next  []uint64
	table map[exchangeKey]*program.Program
}

// maxExchanges bounds the table; loops over one matrix come back to two programs each.
const maxExchanges = 64

// exchangeKey is what the program of an exchange depends on within a rank.
type exchangeKey struct {
	plan planning.ID
	maps uint64 // where the planes stand
	use  planeset.Set
	mine [sha256.Size]byte // this rank's messages
}

// postsRounds reports whether groups of sends and receives of this communicator are posted.
func postsRounds(c *comm.Core) bool {
	return opticalOf(c) != nil && c.Cfg.Demand != settings.DemandOff && !c.Cfg.BarrierTime
}

// runRound runs the group of sends and receives that has been gathered as the leader decides: on
// the planes with circuits where all ranks take part in it, else on the packet planes, for which
// it has been prepared.
func (s *session) runRound(c *comm.Core, first int) error {
	o, x := opticalOf(c), &opticalOf(c).exchanges
	if x.after != hostOf(c).seq {
		x.after, x.posts = hostOf(c).seq, 0
	}
	x.posts++
	number := roundNumber(hostOf(c).seq, x.posts)
	o.describeGroup()
	if err := c.Star.ToLeader(&control.Message{Kind: control.MsgRow, Seq: number, Body: append([]byte(nil), x.buf...)}); err != nil {
		return c.Fail(err)
	}
	recorder.Of(c).Asked(hostOf(c).group, false)
	m, err := c.AwaitFor(control.MsgRound, number, c.Cfg.Timeout)
	if errors.Is(err, comm.ErrNothing) {
		err = fmt.Errorf("shim: rank %d: no word from rank 0 on a group of sends and receives in %v: %w", c.Rank, c.Cfg.Timeout, errdefs.ErrTimeout)
	}
	if err != nil {
		return c.Fail(err)
	}
	recorder.Of(c).Asked(hostOf(c).group, true)
	if len(m.Body) == 0 {
		if err := s.bindMessages(c, first); err != nil {
			return err
		}
		return s.drive()
	}
	prog, err := s.bindRound(c, first, number, m.Body)
	if err != nil {
		return c.Fail(err)
	}
	if err := s.drive(); err != nil {
		return err
	}
	o.advance(o.ticket.Use, prog.Configs)
	if err := c.Star.ToLeader(&control.Message{Kind: control.MsgDone, Seq: number}); err != nil {
		return c.Fail(err)
	}
	return nil
}

// describeGroup encodes the row of the group into the buffer for it.
func (o *optical) describeGroup() {
	x, r := &o.exchanges, &hostOf(o.c).runner
	x.row.Sends = x.list(x.row.Sends[:0], r.sends, o.c.Rank, o.Ranks, r.pairs.Sent)
	x.row.Recvs = x.list(x.row.Recvs[:0], r.recvs, o.c.Rank, o.Ranks, r.pairs.Received)
	x.buf = ticket.AppendRow(x.buf[:0], &x.row)
}

// list numbers messages within their pairs; past says how many each pair has exchanged.
func (x *exchanges) list(to []ticket.Message, messages []program.Message, me, ranks int, past func(rank int) uint64) []ticket.Message {
	x.next = x.next[:0]
	for r := range ranks {
		x.next = append(x.next, past(r))
	}
	for _, m := range messages {
		if m.Peer != me {
			to = append(to, ticket.Message{Peer: m.Peer, Number: x.next[m.Peer], Bytes: m.Bytes})
			x.next[m.Peer]++
		}
	}
	return to
}

// bindRound prepares the task of a group that goes by circuits.
func (s *session) bindRound(c *comm.Core, first int, number uint64, body []byte) (*program.Program, error) {
	o := opticalOf(c)
	t, holds, err := o.openRound(body)
	if err != nil {
		return nil, err
	}
	o.learn(t)
	if err := o.settle(t); err != nil {
		return nil, fmt.Errorf("shim: rank %d, grouped sends and receives: %w", c.Rank, err)
	}
	prog, err := o.exchangeProgram(t, holds)
	if err != nil {
		return nil, err
	}
	if err := o.giveUp(t.Use, prog.Configs); err != nil {
		return nil, err
	}
	recorder.Of(c).Bound(hostOf(c).group, nil, t.Use, true)
	task := hostOf(c).task()
	task.Trace(recorder.Of(c).Timed)
	err = task.Bind(exec.Call{
		Program: prog, Messages: hostOf(c).msgs, Comm: c.ID, Op: hostOf(c).seq, Pairs: hostOf(c).pairs, Endpoint: o.end, Poison: c.Poison(),
		OCS: o.switches, Base: o.base, SkipDrain: o.skipDrain,
	})
	if err != nil {
		return nil, err
	}
	s.tasks = append(s.tasks, task)
	s.refs = append(s.refs, taskRef{comm: c, call: first, seq: number, circuits: true, flight: hostOf(c).group})
	return prog, nil
}

// openRound reads the leader's answer to a round that goes by circuits.
func (o *optical) openRound(body []byte) (*ticket.Ticket, []byte, error) {
	if len(body) < 4 || uint64(binary.LittleEndian.Uint32(body)) > uint64(len(body)-4) {
		return nil, nil, fmt.Errorf("%w: round of %d bytes", control.ErrMessage, len(body))
	}
	end := 4 + int(binary.LittleEndian.Uint32(body))
	t, holds := &o.ticket, body[end:]
	if err := ticket.Decode(body[4:end], t); err != nil {
		return nil, nil, err
	}
	if t.Use == 0 || sha256.Sum256(holds) != t.Plan {
		return nil, nil, fmt.Errorf("%w: a round's ticket for planes %#x is of another plan", control.ErrMessage, uint64(t.Use))
	}
	return t, holds, o.fits(t)
}

// exchangeProgram returns the program of this rank's messages under a plan, from where the planes stand.
func (o *optical) exchangeProgram(t *ticket.Ticket, holds []byte) (*program.Program, error) {
	x, r, me := &o.exchanges, &hostOf(o.c).runner, o.c.Rank
	key := exchangeKey{plan: t.Plan, maps: o.standing(t.Use), use: t.Use, mine: digestMessages(r.sends, r.recvs)}
	if p := x.table[key]; p != nil {
		return p, nil
	}
	plan, err := ticket.DecodeHolds(holds, o.Ranks, t.Use.Len())
	if err != nil {
		return nil, err
	}
	wide := t.Use.Spread(plan, len(o.now))
	p, err := program.LowerExchange(program.ExchangeArgs{
		Rank: me, Ranks: o.Ranks, Plan: wide, Current: t.Use.SpreadMaps(o.maps(t.Use), len(o.now)),
	}, r.sends, r.recvs)
	if err != nil {
		return nil, fmt.Errorf("shim: rank %d, grouped sends and receives, planner %s: %w", me, plan.Planner, err)
	}
	if x.table == nil || len(x.table) >= maxExchanges {
		x.table = map[exchangeKey]*program.Program{}
	}
	x.table[key] = p
	hostOf(o.c).programs.TraceExchange(o.c, plan, p)
	o.c.Log.Info(log.Tuning, "rank %d: %d sends, %d receives: planner %s, predicted %.1f us, %d operations on %d of %d planes",
		me, len(r.sends), len(r.recvs), plan.Planner, plan.CCTUS, len(p.Ops), t.Use.Len(), len(o.now))
	return p, nil
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
