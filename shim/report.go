package shim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/recorder"
	"lightpath/shim/result"
	"lightpath/shim/status"
)

// pidNamespace is the same for processes that know each other by the same numbers; "" where that
// cannot be told.
var pidNamespace = sync.OnceValue(func() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
})

// node tells apart where process numbers mean different processes.
func node(host, pids string) string {
	sum := sha256.Sum256([]byte(host + "\x00" + pids))
	return hex.EncodeToString(sum[:8])
}

// describeComm is what this rank knows of its communicator: itself, and where the others are. It may
// ask the controller of the planes, and take a while.
func describeComm(c *comm.Core) status.Comm {
	if !c.Joined() {
		return describeMaking(c)
	}
	s := status.Comm{ID: fmt.Sprintf("%x", c.ID), Name: c.Name, Size: c.Ranks}
	for i := range c.Table {
		h := &c.Table[i]
		s.Ranks = append(s.Ranks, status.Rank{Rank: i, Host: h.Name, Node: node(h.Host, h.PIDs), PID: h.PID, Answer: status.Unasked})
	}
	s.Ranks[c.Rank] = describeSelf(c)
	s.Circuits = c.Made() && circuits.Of(c) != nil
	return s
}

// describeMaking describes a communicator whose ranks have not met: all that is certain is what
// was asked for.
func describeMaking(c *comm.Core) status.Comm {
	a := &birthOf(c).asked
	s := status.Comm{ID: a.key, Name: a.name, Size: a.ranks}
	if a.rank >= 0 {
		s.Ranks = []status.Rank{{
			Rank: a.rank, Host: c.Log.Host, Node: node(hostID(), pidNamespace()), PID: c.Log.PID, Device: a.device, State: status.Making,
		}}
		describeFailure(c, &s.Ranks[0])
	}
	return s
}

// asked is what was asked for when a communicator was begun; it never changes.
type asked struct {
	key, name           string
	ranks, rank, device int // ranks 0, rank -1: not known yet
}

// askedOf names a communicator that is to be made. The id itself is a secret.
func askedOf(a *InitArgs) asked {
	out := asked{name: a.Name, ranks: a.Ranks, rank: a.Rank, device: a.Device}
	if o := a.From; o != nil {
		out.key = fmt.Sprintf("%v-of-%x", o.How, o.Parent.ID)
		if o.How != ByShrink {
			out.ranks, out.rank = o.Ranks, o.Parent.Rank
		}
		return out
	}
	sum := sha256.Sum256(a.ID[:])
	out.key = "id-" + hex.EncodeToString(sum[:4])
	return out
}

// describeSelf is this rank in its own words. The communicator has been joined.
func describeSelf(c *comm.Core) status.Rank {
	h := &c.Table[c.Rank]
	r := status.Rank{Rank: c.Rank, Host: h.Name, Node: node(h.Host, h.PIDs), PID: h.PID, Device: c.Device, State: status.Healthy}
	switch c.Life() {
	case comm.Making:
		r.State = status.Making
	case comm.Suspended:
		r.State = status.Suspended
	case comm.Finalized, comm.Destroyed:
		r.State = status.Finalized
	}
	describeFailure(c, &r)
	now := monotonic.Now()
	g := recorder.Of(c).Snapshot()
	r.Groups, r.Counts = g.Groups, map[string]uint64{}
	for k, n := range g.Counts {
		r.Counts[calls.Kind(k).String()] = n
		if !calls.Kind(k).P2P() && !calls.Kind(k).OneSided() {
			r.Collectives += n
		}
	}
	if g.Last.Number > 0 {
		r.Last = g.Last.Shape.Kind.String()
	}
	switch {
	case g.Running:
		r.Op = describeOp(c, &g, now)
	case g.Op.Ended > 0:
		r.IdleSeconds = seconds(now - g.Op.Ended)
	}
	return r
}

func describeFailure(c *comm.Core, r *status.Rank) {
	if err := c.AsyncError(); err != nil {
		r.State, r.Error, r.Result = status.Failed, err.Error(), int(result.Of(err))
	}
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

// describeOp describes the operation in progress.
func describeOp(c *comm.Core, g *recorder.Snapshot, now int64) *status.Op {
	op := &g.Op
	out := &status.Op{Seq: op.Seq}
	switch {
	case op.Shape.Kind.OneSided():
		out.Call, out.Detail = op.Shape.Kind.String(), calls.DescribeOneSided(op.Shape.Kind, op.Shape.Count, op.Shape.Type, op.Shape.Root)
	case !op.IsCollective():
		out.Call = "Send/Recv"
		out.Detail = fmt.Sprintf("group of %d messages, %d bytes", op.Messages, op.Bytes)
	default:
		out.Call, out.Detail, out.Signature = op.Shape.Kind.String(), op.Shape.String(), op.Shape.Signature()
	}
	if op.Arrived > 0 {
		out.Seconds = seconds(now - op.Arrived)
	}
	if e := op.Entry; e != nil {
		out.Algorithm = e.Algorithm
		if e.Plan != nil {
			out.Plan = e.Plan.Digest
		}
	}
	switch {
	case op.Asked > 0 && op.Ticketed == 0:
		out.Wait = &status.Wait{For: status.ForTicket, Peer: -1, Plane: -1, Text: fmt.Sprintf("ticket of operation %d", op.Seq), Seconds: out.Seconds}
	case g.Stall != nil:
		out.Wait = describeWait(c, g.Stall, op, now)
		out.Seconds = max(out.Seconds, out.Wait.Seconds) // where operations are not timed
	}
	return out
}

// waitKinds are what a wait for an operation of a program is for.
var waitKinds = map[program.Kind]string{
	program.Send: status.ForSend, program.Recv: status.ForReceive, program.RecvReduce: status.ForReceive,
	program.Forward: status.ForForward, program.Reconfigure: status.ForSwitch,
}

// describeWait puts a wait into words, with those of the planes' controller where a switch is
// waited for.
func describeWait(c *comm.Core, s *recorder.Standstill, op *recorder.Operation, now int64) *status.Wait {
	w := s.Wait
	out := &status.Wait{For: waitKinds[w.Kind], Peer: w.Peer, Plane: w.Plane, Step: w.Step, Epoch: w.Epoch, Seconds: seconds(now - s.Since)}
	switch {
	case op.Shape.Kind.OneSided():
		out.For, out.Text = status.ForSignal, op.WaitText(&w)
		return out
	case op.Entry != nil && op.Entry.Prog == nil:
		out.Plane = -1
		out.Text = fmt.Sprintf("memory of rank %d (%d of %d bytes)", w.Peer, w.Done, w.Bytes)
		return out
	case w.Kind == program.Reconfigure && c.Made() && circuits.Of(c) != nil:
		w.Detail = circuits.Of(c).Controller.Waiting(w.Plane)
	case out.For == "" || w.Plane < 0:
		out.For, out.Peer = status.ForOther, -1
	}
	out.Text = w.String()
	return out
}

// Asking all ranks: whoever is asked by a user asks the leader, who passes that on to everyone,
// and everyone's answer back. The leader keeps no state of it but how many answers a rank owes: one
// that reads nothing must not fill its connection with questions.

// maxOwed is how many answers a rank may owe.
const maxOwed = 8

// probes are the questions of this rank that are open.
type probes struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]chan status.Rank
	owed owed // at the leader
}

// owed counts, at the leader, the answers of each rank that have not come.
type owed struct {
	mu sync.Mutex
	of map[int]int
}

func (o *owed) add(rank int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[rank] >= maxOwed {
		return false
	}
	if o.of == nil {
		o.of = map[int]int{}
	}
	o.of[rank]++
	return true
}

func (o *owed) answered(rank int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[rank] > 0 {
		o.of[rank]--
	}
}

// handleProbes answers questions of users, and passes them on.
func handleProbes(c *comm.Core) {
	c.Handle(control.MsgAsk, func(m *control.Message) { probed(c, m) })
	c.Handle(control.MsgTell, func(m *control.Message) { told(c, m) })
}

// probe asks all ranks what they are doing, for at most d, and returns the answers by rank.
func probe(c *comm.Core, d time.Duration) []status.Rank {
	n := c.Ranks
	answers := make(chan status.Rank, n)
	p := probesOf(c)
	p.mu.Lock()
	p.last++
	id := p.last
	if p.open == nil {
		p.open = map[uint64]chan status.Rank{}
	}
	p.open[id] = answers
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.open, id)
		p.mu.Unlock()
	}()
	_ = c.Star.ToLeader(&control.Message{Kind: control.MsgAsk, Seq: id}) // without the leader there are no answers
	got := map[int]status.Rank{}
	for timer := time.After(d); len(got) < n; {
		select {
		case r := <-answers:
			got[r.Rank] = r
		case <-timer:
			n = 0 // what has come will have to do
		}
	}
	ranks := slices.Sorted(maps.Keys(got))
	out := make([]status.Rank, len(ranks))
	for i, r := range ranks {
		out[i] = got[r]
	}
	return out
}

// probed takes control.MsgAsk: at the leader from whoever asks, elsewhere from the leader, with who asks.
func probed(c *comm.Core, m *control.Message) {
	if c.Rank != 0 {
		go tell(c, int(m.Arg), m.Seq)
		return
	}
	asker := int(m.From)
	go func() {
		for r := 1; r < c.Ranks; r++ {
			if probesOf(c).owed.add(r) {
				c.Star.To(r, &control.Message{Kind: control.MsgAsk, Seq: m.Seq, Arg: uint64(asker)})
			}
		}
		tell(c, asker, m.Seq)
	}()
}

// tell answers a question of rank asker.
func tell(c *comm.Core, asker int, id uint64) {
	body, err := json.Marshal(describeSelf(c))
	if err != nil || len(body) > int(control.MaxBody(control.MsgTell)) {
		return
	}
	_ = c.Star.ToLeader(&control.Message{Kind: control.MsgTell, Seq: id, Arg: uint64(asker), Body: body})
}

// told takes control.MsgTell: an answer, for this rank or, at the leader, to be passed on.
func told(c *comm.Core, m *control.Message) {
	if c.Rank == 0 {
		probesOf(c).owed.answered(int(m.From))
		if m.Arg >= uint64(c.Ranks) {
			return
		}
		if m.Arg != 0 {
			go c.Star.To(int(m.Arg), &control.Message{Kind: control.MsgTell, Seq: m.Seq, Arg: m.Arg, Body: m.Body})
			return
		}
	}
	var r status.Rank
	if err := json.Unmarshal(m.Body, &r); err != nil || r.Rank < 0 || r.Rank >= c.Ranks {
		return
	}
	probesOf(c).mu.Lock()
	answers := probesOf(c).open[m.Seq]
	probesOf(c).mu.Unlock()
	select {
	case answers <- r: // nil where nobody waits any more
	default:
	}
}
