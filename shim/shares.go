package shim

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/settings"
)

// Shares of the packet planes of a network: one that is slow or loses frames for long carries less of large
// calls. Each rank measures what planes bring it (pace.go), and tells the leader when their shares do not
// fit that; the leader makes others of what all ranks have seen, and they agree from which operation on
// these count (sharelead.go).

// paceBytes is how much a program must bring a rank, per plane, to be measured: less says little about rates.
const paceBytes = 256 << 10

// shares is a rank's part in that.
type shares struct {
	// Guarded by Comm.mu.
	version uint32 // the number of the agreement in force; 0: even
	units   []int  // by plane; nil: even
	window  window

	mu      sync.Mutex
	reached uint64    // the last operation that has gone by shares, or is about to
	seen    []uint64  // paces in the last window; zeros: there was none
	next    *proposal // nil: none
}

// proposal is what is to count from an operation on.
type proposal struct {
	number, from uint64
	units        []int
	agreed       bool          // final when settled is closed
	settled      chan struct{} // closed with the leader's conclusion
}

func newShares(planes int) *shares {
	return &shares{window: newWindow(planes), seen: make([]uint64, planes)}
}

// attachShares lets the shares of packet planes follow what these carry: where they are a network's, and
// nothing has circuits. Where LIGHTPATH_PLANE_SHARES forbids that to one rank, it agrees to nothing.
func attachShares(c *comm.Core, transport string) {
	network := transport == "tcp" || transport == settings.TransportRDMA
	if network && hostOf(c).packet != nil && len(hostOf(c).packet.Planes()) > 1 && opticalOf(c) == nil && c.Cfg.PlaneShares == settings.SharesMeasured {
		sharesSlot.Set(c, newShares(len(hostOf(c).packet.Planes())))
	}
}

// handleShares has the leader's goroutine take what ranks see, and ranks answer its questions.
func handleShares(c *comm.Core) {
	c.Handle(control.MsgShares, func(m *control.Message) {
		if c.Rank == 0 {
			leaderOf(c).post(m)
		} else if answer := sharesOf(c).answer(m, len(hostOf(c).packet.Planes())); answer != nil {
			_ = c.Star.ToLeader(answer) // a leader that is gone is noticed by the goroutine that reads
		}
	})
}

// enterShares sets the shares that operation seq, the next to be bound, goes by. Where some have been
// proposed for it, it waits for the leader's conclusion, which needs the other ranks' control networks and
// nothing that their callers do. Comm.mu is held.
func enterShares(c *comm.Core, seq uint64) error {
	p := sharesOf(c)
	for {
		n := p.due(seq)
		if n == nil {
			return nil
		}
		if err := awaitShares(c, n, seq); err != nil {
			return err
		}
		if n.agreed {
			adoptShares(c, n)
		}
	}
}

// due returns what has been proposed for operation seq, nil where nothing has. Nothing is accepted for it any more then.
func (p *shares) due(seq uint64) *proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached = seq
	if p.next == nil || seq < p.next.from {
		return nil
	}
	return p.next
}

func awaitShares(c *comm.Core, n *proposal, seq uint64) error {
	select {
	case <-n.settled:
		return nil
	default:
	}
	timer := time.NewTimer(c.Cfg.Timeout)
	defer timer.Stop()
	select {
	case <-n.settled:
		return nil
	case <-c.FailedChan():
		return c.AsyncError()
	case <-timer.C:
		return fmt.Errorf("shim: rank %d: operation %d: no word from rank 0 on the shares of planes in %v: %w", c.Rank, seq, c.Cfg.Timeout, errdefs.ErrTimeout)
	}
}

// adoptShares has what follows go by what has been agreed. Comm.mu is held.
func adoptShares(c *comm.Core, n *proposal) {
	p := sharesOf(c)
	hostOf(c).programs.DropShares(p.version)
	if p.version, p.units = uint32(n.number), n.units; evenShares(n.units) {
		p.version, p.units = 0, nil
	}
	p.window.clear()
	p.mu.Lock()
	p.next = nil
	p.mu.Unlock()
	c.Log.Info(log.Tuning, "rank %d: from operation %d on planes carry %v of %d", c.Rank, n.from, n.units, shareTotal)
}

// measurePlanes takes what a program that has ended has brought on each plane. Hot path: no allocation, and no message while
// even shares fit.
func measurePlanes(c *comm.Core, t *exec.Task, brings []int64) {
	p := sharesOf(c)
	if !p.window.add(brings, t.Brought, monotonic.Now()) {
		return
	}
	pace := p.window.end()
	p.mu.Lock()
	copy(p.seen, pace)
	p.mu.Unlock()
	if misfit(p.units, p.window.ideal, pace) || p.units != nil && c.Rank == 0 {
		_ = c.Star.ToLeader(&control.Message{Kind: control.MsgShares, Arg: sharesLook}) // a leader that is gone is noticed by who reads
	}
}

// brings returns what a program brings on each plane, nil where it is too little to be measured.
func brings(p *program.Program) []int64 {
	bytes, total := make([]int64, len(p.Lanes)), int64(0)
	for j := range p.Lanes {
		for _, id := range p.Lanes[j].RX {
			bytes[j] += p.Ops[id].Bytes
		}
		if bytes[j] == 0 {
			return nil
		}
		total += bytes[j]
	}
	if total < paceBytes*int64(len(bytes)) {
		return nil
	}
	return bytes
}

// What a [control.MsgShares] is, in its Arg. Seq is the number of the leader's question, Body words.
const (
	sharesLook     = iota // to the leader: the shares in force do not fit what this rank sees, or may be tried to change
	sharesAsk             // leader to all: what do you see?
	sharesTold            // to the leader: reached, then paces
	sharesPropose         // leader to all: from, then shares
	sharesAnswer          // to the leader: one of the answers, then reached
	sharesConclude        // leader to all: 1: agreed, 0: not
)

// Answers to a proposal.
const (
	answerLate     = iota // its operation has begun here
	answerAccepted        // it is waited for there
	answerBusy            // another has been agreed on, and not been reached
)

// appendWords and wordsOf are the encoding of bodies.
func appendWords(b []byte, words ...uint64) []byte {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// wordsOf returns nil where a body is not n words.
func wordsOf(b []byte, n int) []uint64 {
	if len(b) != 8*n {
		return nil
	}
	words := make([]uint64, n)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words
}

// answer takes what the leader says and returns the answer, nil where it wants none. p is nil on a rank whose
// planes have no shares, which accepts none. Callable at any time.
func (p *shares) answer(m *control.Message, planes int) *control.Message {
	switch m.Arg {
	case sharesAsk:
		return &control.Message{Kind: control.MsgShares, Seq: m.Seq, Arg: sharesTold, Body: p.tell(planes)}
	case sharesPropose:
		return &control.Message{Kind: control.MsgShares, Seq: m.Seq, Arg: sharesAnswer, Body: p.consider(m)}
	case sharesConclude:
		p.conclude(m)
	}
	return nil
}

func (p *shares) tell(planes int) []byte {
	if p == nil {
		return appendWords(nil, make([]uint64, 1+planes)...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return appendWords(appendWords(nil, p.reached), p.seen...)
}

// consider answers a proposal.
func (p *shares) consider(m *control.Message) []byte {
	if p == nil {
		return appendWords(nil, answerBusy, 0)
	}
	words := wordsOf(m.Body, 1+len(p.seen))
	p.mu.Lock()
	defer p.mu.Unlock()
	if words == nil || p.next != nil {
		return appendWords(nil, answerBusy, p.reached)
	}
	n := &proposal{number: m.Seq, from: words[0], settled: make(chan struct{})}
	for _, w := range words[1:] {
		n.units = append(n.units, int(min(w, 2*shareTotal)))
	}
	switch {
	case !sharesFit(n.units, len(p.seen)):
		return appendWords(nil, answerBusy, p.reached)
	case n.from <= p.reached:
		return appendWords(nil, answerLate, p.reached)
	}
	p.next = n
	return appendWords(nil, answerAccepted, p.reached)
}

// conclude settles the proposal that this rank has accepted.
func (p *shares) conclude(m *control.Message) {
	words := wordsOf(m.Body, 1)
	if p == nil || words == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.next
	if n == nil || n.number != m.Seq {
		return
	}
	if n.agreed = words[0] == 1; !n.agreed {
		p.next = nil
	}
	close(n.settled)
}
