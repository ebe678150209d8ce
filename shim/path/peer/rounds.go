package peer

import (
	"math/bits"

	"lightpath/shim/device"
)

// A collective is a sequence of rounds, the same on all ranks. In a round a rank takes the tokens of the round before,
// runs one kernel, and gives tokens. All rounds of a communicator are numbered; round r uses slot r mod numSlots and
// its tokens. See docs/design/peer-memory.md.
//
// A rank must not write a slot, nor give its tokens again, before its readers have given them back. Mostly it needs no
// wait for that: a token of a later round of theirs says so.

// rounds says which rank gives tokens to which. In the first chunks rounds, the owners have written chunk i of their
// contribution in round i. If there is a result, all ranks have combined a part of chunk i-1 in round i, for the ranks
// of result.
type rounds struct {
	chunks          int
	owners, readers rankSet
	result          rankSet
}

// last returns the number of the last round, in which no rank gives a token.
func (p *rounds) last() int {
	if p.result != 0 {
		return p.chunks + 1
	}
	return p.chunks
}

func (p *rounds) combines(round int) bool { return round >= 1 && round <= p.chunks }

// gives returns the ranks that get a token from a rank in a round.
func (p *rounds) gives(round, rank int) (to rankSet) {
	if round < p.chunks && p.owners.has(rank) {
		to |= p.readers
	}
	if p.combines(round) {
		to |= p.result
	}
	return to.without(rank)
}

// takes returns the ranks from which a rank gets a token in a round.
func (p *rounds) takes(round, rank int, everyone rankSet) (from rankSet) {
	if round < p.chunks && p.readers.has(rank) {
		from |= p.owners
	}
	if p.combines(round) && p.result.has(rank) {
		from |= everyone
	}
	return from.without(rank)
}

// ends returns the round at whose end ranks have used all that the tokens of a round stand for.
func (p *rounds) ends(round int) int {
	if p.result != 0 {
		return min(round+2, p.last())
	}
	return round + 1
}

func (s rankSet) count() int { return bits.OnesCount32(uint32(s)) }

// slots is what a rank knows of its slots when the stream is at the end of what has been enqueued.
type slots struct {
	round  uint64            // number of the next round
	of     uint64            // the capture of the last launch
	unread [numSlots]rankSet // ranks that perhaps have not given back their token of the slot
	until  [numSlots]uint64  // the round in which they do so
	words  [numSlots]words   // where they do so
}

// words says which words stand for the tokens that a rank has given.
type words uint8

const (
	anyWords words = iota // either: it is not known
	ownWords              // of each rank
	oneWord               // of all ranks
)

// forget assumes the least if other launches may have come between the last one and this one: those of a graph.
func (x *Path) forget() {
	graph := x.launch.capture.ID
	if graph == x.slots.of && (graph != 0 || !x.captured.Load()) {
		return
	}
	x.slots.of = graph
	for slot := range numSlots {
		x.slots.unread[slot] = x.everyone().without(x.me)
		x.slots.words[slot] = anyWords
	}
}

// rounds enqueues the rounds of a collective. jobs adds what this rank does in a round to the open kernel.
func (x *Path) rounds(op *operation, p *rounds, jobs func(round int)) {
	s := &x.slots
	for i := range p.last() + 1 {
		if i > 0 {
			x.take(s.slot(i-1), p.takes(i-1, x.me, x.everyone()), s.round+uint64(i-1))
		}
		to := p.gives(i, x.me)
		if to != 0 || i < p.chunks && p.owners.has(x.me) { // it writes the slot, or gives tokens
			x.claim(s.slot(i), to, s.round+uint64(p.ends(i)))
		}
		x.queue.begin(op.call)
		jobs(i)
		x.give(p, i)
		for j := max(0, i-2); j < i; j++ {
			if p.ends(j) == i {
				x.giveBack(p, j)
			}
		}
	}
	s.round += uint64(p.last() + 1)
}

func (s *slots) slot(i int) int { return int((s.round + uint64(i)) % numSlots) }

// If all ranks share a device, the tokens that a rank gets from all others in a round come as one: their kernels count,
// and the last one writes the word. It is in the place of the token from a rank to itself. Tokens of some ranks come
// one by one: a rank that gives one does not know whether the tokens of other ranks have been taken.

// claim waits until all ranks have given back the slot's tokens, as far as the rank does not know it. Then it takes
// the tokens of the slot's next readers, who give them back at the end of a round.
func (x *Path) claim(slot int, to rankSet, until uint64) {
	x.awaitFree(slot)
	x.wordsOf(to).each(func(r int) { x.queue.store(x.page.token(stageRound, slot, x.me, r, tokenFree), 0, false) })
	x.slots.unread[slot], x.slots.until[slot], x.slots.words[slot] = to, until, ownWords
	if x.wordsOf(to).has(x.me) {
		x.slots.words[slot] = oneWord
	}
}

// awaitFree waits until all ranks have given back the slot's tokens.
func (x *Path) awaitFree(slot int) {
	if x.slots.unread[slot] == 0 {
		return
	}
	wait := func(r int) { x.queue.wait(x.page.token(stageRound, slot, x.me, r, tokenFree)) }
	if x.slots.words[slot] != oneWord {
		x.slots.unread[slot].each(wait)
	}
	if x.joint && x.slots.words[slot] != ownWords {
		wait(x.me)
	}
	x.slots.unread[slot] = 0
}

// take waits for the tokens of a round, and takes them.
func (x *Path) take(slot int, from rankSet, round uint64) {
	words := x.wordsOf(from)
	words.each(func(r int) { x.queue.wait(x.page.token(stageRound, slot, r, x.me, tokenReady)) })
	words.each(func(r int) { x.queue.store(x.page.token(stageRound, slot, r, x.me, tokenReady), 0, false) })
	for i := range numSlots {
		if x.slots.until[i] < round {
			x.slots.unread[i] &^= from
		}
	}
}

// wordsOf returns the ranks whose words stand for the tokens of a set of ranks: this rank if one word does.
func (x *Path) wordsOf(set rankSet) rankSet {
	if x.joint && set == x.everyone().without(x.me) {
		return one(x.me)
	}
	return set
}

// give passes the tokens of a round to their readers.
func (x *Path) give(p *rounds, round int) {
	slot := x.slots.slot(round)
	p.gives(round, x.me).each(func(r int) {
		x.pass(slot, x.me, r, tokenReady, r, p.takes(round, r, x.everyone()).count())
	})
}

// giveBack returns the tokens of a round to the slots' owners.
func (x *Path) giveBack(p *rounds, round int) {
	slot := x.slots.slot(round)
	p.takes(round, x.me, x.everyone()).each(func(r int) {
		x.pass(slot, r, x.me, tokenFree, r, p.gives(round, r).count())
	})
}

// pass writes a word for which rank to waits, along with as many ranks as of says.
func (x *Path) pass(slot, owner, reader, kind, to, of int) {
	w := word{gives: true, Store: device.Store{At: x.page.token(stageRound, slot, owner, reader, kind), Value: 1}}
	if x.joint && of == x.n-1 {
		w.At = x.page.token(stageRound, slot, to, to, kind)
		if of > 1 {
			w.Counter = x.exchange.counter(to, saidBytes+(kind*numSlots+slot)*tokenSize)
			w.Of = uint32(of)
		}
	}
	x.queue.put(w)
}
