package peer

import (
	"fmt"

	"lightpath/collectives/program"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
)

// Each rank records its calls in the page and compares them with those of its peers. No rank waits. The last rank to
// call finds a difference, however far apart the streams are.

// counts is how many calls this rank has made. Put changes it.
type counts struct {
	calls  uint64   // collectives
	hash   uint32   // of all these collectives
	sent   []uint64 // messages, by peer
	wanted []uint64 // messages to be received, by peer
}

// read returns the call with a number and its hash. ok is false if the record does not hold that call.
func (r *callRecord) read(number uint64) (sh calls.Shape, hash uint32, ok bool) {
	tag := r.tag.Load()
	sh = calls.Unpack(r.what.Load(), r.count.Load())
	return sh, uint32(tag), tag>>32 == number&(1<<32-1) && r.tag.Load() == tag
}

// compare records the last call in the page. It compares the hash of this and all earlier calls with the hash of each
// peer.
func (x *Path) compare(s *calls.Shape) error {
	if x.n == 1 {
		return nil
	}
	n := &x.counts
	graph := uint32(0) // replays come at other times than calls, so all ranks must capture a call or none
	if x.launch.capture.ID != 0 {
		graph = 1
	}
	n.hash = program.Signature(uint64(n.hash), uint64(s.Signature()), uint64(graph))
	r := &x.page.rank(x.me).calls[n.calls%callsKept]
	r.tag.Store(0)
	r.what.Store(s.Pack())
	r.count.Store(s.Count)
	r.graph.Store(graph)
	r.tag.Store(n.calls<<32 | uint64(n.hash))
	for peer := range x.n {
		if _, hash, ok := x.page.rank(peer).calls[n.calls%callsKept].read(n.calls); ok && hash != n.hash {
			return x.different(peer)
		}
	}
	return nil
}

// different returns an error that names the first call in which this rank and a peer differ. If the page no longer
// holds that call, the error names only the ranks.
func (x *Path) different(peer int) error {
	lo, hi := min(peer, x.me), max(peer, x.me)
	err := fmt.Errorf("shim: operation %d or one before it: rank %d and rank %d made different calls: %w",
		x.counts.calls, lo, hi, errdefs.ErrMismatch)
	for n := x.counts.calls; n > 0 && n+callsKept > x.counts.calls; n-- {
		a, _, known := x.page.rank(lo).calls[n%callsKept].read(n)
		b, _, there := x.page.rank(hi).calls[n%callsKept].read(n)
		own, theirs := &x.page.rank(lo).calls[n%callsKept], &x.page.rank(hi).calls[n%callsKept]
		if known && there && own.graph.Load() != theirs.graph.Load() {
			err = fmt.Errorf("shim: operation %d: %s: of rank %d and rank %d, one captured it and one did not: %w",
				n, a.String(), lo, hi, errdefs.ErrMismatch)
		}
		if known && there && (a.Pack() != b.Pack() || a.Count != b.Count) {
			err = fmt.Errorf("shim: operation %d: rank %d called %s, rank %d called %s: %w",
				n, lo, a.String(), hi, b.String(), errdefs.ErrMismatch)
		}
	}
	return err
}

// last returns the number of the last message.
func last(kept *[messagesKept]messageRecord) (number uint64) {
	for i := range kept {
		number = max(number, kept[i].number.Load())
	}
	return number
}

// compareMessage records a message in the page. If the peer has called for the same message, both sizes must be equal.
func (x *Path) compareMessage(m *message) error {
	if m.peer == x.me || x.n == 1 {
		return nil
	}
	own, theirs := &x.page.rank(x.me).sent[m.peer], &x.page.rank(m.peer).wanted[x.me]
	numbers, from, to := x.counts.sent, x.me, m.peer
	if !m.send {
		own, theirs = &x.page.rank(x.me).wanted[m.peer], &x.page.rank(m.peer).sent[x.me]
		numbers, from, to = x.counts.wanted, m.peer, x.me
	}
	numbers[m.peer]++
	number := numbers[m.peer]
	m.number = number
	r := &own[number%messagesKept]
	r.number.Store(0)
	r.bytes.Store(m.bytes)
	r.number.Store(number)
	t := &theirs[number%messagesKept]
	if t.number.Load() != number {
		return nil
	}
	if bytes := t.bytes.Load(); bytes != m.bytes && t.number.Load() == number {
		sent, wanted := m.bytes, bytes
		if !m.send {
			sent, wanted = bytes, m.bytes
		}
		return fmt.Errorf("shim: message %d from rank %d to rank %d: %d bytes are sent, %d are to be received: %w",
			number, from, to, sent, wanted, errdefs.ErrMismatch)
	}
	return nil
}
