package report

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/status"
)

// Questions to all ranks: the rank that a user asks sends the question to the leader. The leader forwards the question
// to all ranks, and their answers back. It counts the pending answers of each rank: a rank that reads nothing must not
// fill its connection with questions.

// MaxOwed bounds the pending answers of a rank.
const MaxOwed = 8

// Owed counts, at the leader, the pending answers of each rank. Safe for concurrent use.
type Owed struct {
	mu sync.Mutex
	of map[int]int
}

// Add counts a question to a rank, and reports whether the rank may be asked.
func (o *Owed) Add(rank int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[rank] >= MaxOwed {
		return false
	}
	if o.of == nil {
		o.of = map[int]int{}
	}
	o.of[rank]++
	return true
}

// answered counts an answer of a rank.
func (o *Owed) answered(rank int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[rank] > 0 {
		o.of[rank]--
	}
}

// AskAll asks all ranks what they are doing. It waits at most d and returns the answers in the order of ranks.
func AskAll(c *comm.Core, d time.Duration) []status.Rank {
	n := c.Ranks
	answers := make(chan status.Rank, n)
	p := Of(c)
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
			n = 0 // return the answers so far
		}
	}
	ranks := slices.Sorted(maps.Keys(got))
	out := make([]status.Rank, len(ranks))
	for i, r := range ranks {
		out[i] = got[r]
	}
	return out
}

// handleAsk handles control.MsgAsk. The leader gets it from the rank that asks. Other ranks get it from the leader,
// with the asking rank in Arg.
func handleAsk(c *comm.Core, m *control.Message) {
	if c.Rank != 0 {
		go answer(c, int(m.Arg), m.Seq)
		return
	}
	asker := int(m.From)
	go func() {
		for r := 1; r < c.Ranks; r++ {
			if Of(c).Owed.Add(r) {
				c.Star.To(r, &control.Message{Kind: control.MsgAsk, Seq: m.Seq, Arg: uint64(asker)})
			}
		}
		answer(c, asker, m.Seq)
	}()
}

// answer answers a question of rank asker.
func answer(c *comm.Core, asker int, id uint64) {
	body, err := json.Marshal(Self(c))
	if err != nil || len(body) > int(control.MaxBody(control.MsgTell)) {
		return
	}
	_ = c.Star.ToLeader(&control.Message{Kind: control.MsgTell, Seq: id, Arg: uint64(asker), Body: body})
}

// handleTell handles control.MsgTell, an answer. The leader forwards it to the rank that asked.
func handleTell(c *comm.Core, m *control.Message) {
	if c.Rank == 0 {
		Of(c).Owed.answered(int(m.From))
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
	p := Of(c)
	p.mu.Lock()
	answers := p.open[m.Seq]
	p.mu.Unlock()
	select {
	case answers <- r: // nil if the question has ended
	default:
	}
}
