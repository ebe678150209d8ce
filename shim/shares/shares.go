package shares

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
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/settings"
)

// Shares of the packet planes of a network. A plane that is slow or loses frames for long carries less of large calls.
// Each rank measures the pace of its planes (pace.go), and tells the leader if the shares do not fit the paces. The
// leader computes new shares from the paces of all ranks. All ranks agree on the operation from which the new shares
// count (sharelead.go).

// PaceBytes is how many bytes a program must bring a rank, per plane, to be measured. Fewer bytes say little about
// rates.
const PaceBytes = 256 << 10

// State is a rank's part in the shares.
type State struct {
	// Guarded by the communicator's turn.
	Version uint32 // the number of the agreement in force; 0: even
	Units   []int  // by plane; nil: even shares
	Window  window
	Lead    *lead // at rank 0

	Mu      sync.Mutex
	reached uint64    // the last operation that has entered
	Seen    []uint64  // paces in the last window; zeros: no window has ended
	Next    *proposal // nil: none
}

// proposal is shares proposed to count from operation From on.
type proposal struct {
	number, From uint64
	units        []int
	agreed       bool          // final when settled is closed
	settled      chan struct{} // closed by the leader's conclusion
}

func newShares(planes int) *State {
	return &State{Window: newWindow(planes), Seen: make([]uint64, planes)}
}

// SharesSlot holds the shares of a communicator. Tests empty it.
var SharesSlot = comm.NewSlot[State]()

// Of returns a rank's part in the shares, nil if shares are always even.
func Of(c *comm.Core) *State { return SharesSlot.Of(c) }

// Attach lets the shares of packet planes follow their paces, if a network carries the planes and none has circuits.
// If LIGHTPATH_PLANE_SHARES forbids that on a rank, it accepts no proposal. Attach returns nil where shares are always
// even.
func Attach(c *comm.Core, transport string, planes int, circuits bool) *State {
	network := transport == "tcp" || transport == settings.TransportRDMA || transport == settings.TransportNet
	if !network || planes < 2 || circuits || c.Cfg.PlaneShares != settings.SharesMeasured {
		return nil
	}
	p := newShares(planes)
	if c.Rank == 0 {
		p.Lead = newLead(c)
	}
	SharesSlot.Set(c, p)
	return p
}

// Handle makes the leader receive paces and answers, and makes ranks answer its questions.
func Handle(c *comm.Core) {
	c.HandleInOrder(control.MsgShares, func(m *control.Message) {
		p := Of(c)
		if c.Rank == 0 {
			if p != nil {
				p.Lead.handle(m)
			}
		} else if answer := p.Answer(m, c.Cfg.Planes); answer != nil {
			_ = c.Star.ToLeader(answer) // if the leader has ended, the reading goroutine reports it
		}
	})
}

// SharesFor sets and returns the shares for operation seq, the next to be bound. nil units are even shares. If shares
// have been proposed for this operation, SharesFor waits for the leader's conclusion. That needs only the control
// networks of all ranks, not their callers. The caller holds the communicator's turn.
func (p *State) SharesFor(c *comm.Core, seq uint64, t *dispatch.Table) (version uint32, units []int, err error) {
	for {
		n := p.due(seq)
		if n == nil {
			return p.Version, p.Units, nil
		}
		if err := awaitShares(c, n, seq); err != nil {
			return 0, nil, err
		}
		if n.agreed {
			p.adopt(c, n, t)
		}
	}
}

// due returns the proposal that operation seq must wait for, nil for none. Afterwards this rank accepts no proposal
// for it.
func (p *State) due(seq uint64) *proposal {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.reached = seq
	if p.Next == nil || seq < p.Next.From {
		return nil
	}
	return p.Next
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
		return fmt.Errorf("shim: rank %d: operation %d: no word from rank 0 on the shares of planes in %v: %w", c.Rank, seq,
			c.Cfg.Timeout, errdefs.ErrTimeout)
	}
}

// adopt makes an agreed proposal count from now on. The caller holds the communicator's turn.
func (p *State) adopt(c *comm.Core, n *proposal, t *dispatch.Table) {
	t.DropShares(p.Version)
	if p.Version, p.Units = uint32(n.number), n.units; evenShares(n.units) {
		p.Version, p.Units = 0, nil
	}
	p.Window.clear()
	p.Mu.Lock()
	p.Next = nil
	p.Mu.Unlock()
	c.Log.Info(log.Tuning, "rank %d: from operation %d on planes carry %v of %d", c.Rank, n.From, n.units, ShareTotal)
}

// Measure adds the bytes and times per plane of a completed program. Hot path: no allocation, and no message while
// even shares fit.
func (p *State) Measure(c *comm.Core, t *exec.Task, brings []int64) {
	if !p.Window.add(brings, t.DeliveryTime, monotonic.Now()) {
		return
	}
	pace := p.Window.end()
	p.Mu.Lock()
	copy(p.Seen, pace)
	p.Mu.Unlock()
	if misfit(p.Units, p.Window.ideal, pace) || p.Units != nil && c.Rank == 0 {
		// If the leader has ended, the reading goroutine reports it.
		_ = c.Star.ToLeader(&control.Message{Kind: control.MsgShares, Arg: SharesLook})
	}
}

// ReceivedBytes returns the bytes that a program receives on each plane, nil if they are too few to measure.
func ReceivedBytes(p *program.Program) []int64 {
	bytes, total := make([]int64, len(p.Lanes)), int64(0)
	for j := range p.Lanes {
		for _, id := range p.Lanes[j].RX {
			bytes[j] += p.Code[id].Bytes
		}
		if bytes[j] == 0 {
			return nil
		}
		total += bytes[j]
	}
	if total < PaceBytes*int64(len(bytes)) {
		return nil
	}
	return bytes
}

// Kinds of a [control.MsgShares], in its Arg. Seq is the number of the leader's question, and Body is a list of words.
const (
	SharesLook     = iota // to the leader: the shares do not fit, or a trial may be due
	sharesAsk             // leader to all: asks for paces
	sharesTold            // to the leader: last operation reached, then paces
	SharesPropose         // leader to all: first operation, then shares
	sharesAnswer          // to the leader: one of the answers, then last operation reached
	sharesConclude        // leader to all: 1 agreed, 0 not
)

// Answers to a proposal.
const (
	answerLate     = iota // this rank has begun the operation
	answerAccepted        // this rank waits for the conclusion at the operation
	answerBusy            // this rank has accepted another proposal and not reached it, or has no shares
)

// AppendWords appends words to a message body. [WordsOf] decodes them.
func AppendWords(b []byte, words ...uint64) []byte {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// WordsOf decodes a message body, nil if it is not n words.
func WordsOf(b []byte, n int) []uint64 {
	if len(b) != 8*n {
		return nil
	}
	words := make([]uint64, n)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words
}

// Answer handles a message of the leader and returns the reply, nil if the message needs none. p is nil on a rank
// without shares, which accepts no proposal. Safe for concurrent use.
func (p *State) Answer(m *control.Message, planes int) *control.Message {
	switch m.Arg {
	case sharesAsk:
		return &control.Message{Kind: control.MsgShares, Seq: m.Seq, Arg: sharesTold, Body: p.tell(planes)}
	case SharesPropose:
		return &control.Message{Kind: control.MsgShares, Seq: m.Seq, Arg: sharesAnswer, Body: p.consider(m)}
	case sharesConclude:
		p.conclude(m)
	}
	return nil
}

func (p *State) tell(planes int) []byte {
	if p == nil {
		return AppendWords(nil, make([]uint64, 1+planes)...)
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return AppendWords(AppendWords(nil, p.reached), p.Seen...)
}

// consider answers a proposal.
func (p *State) consider(m *control.Message) []byte {
	if p == nil {
		return AppendWords(nil, answerBusy, 0)
	}
	words := WordsOf(m.Body, 1+len(p.Seen))
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if words == nil || p.Next != nil {
		return AppendWords(nil, answerBusy, p.reached)
	}
	n := &proposal{number: m.Seq, From: words[0], settled: make(chan struct{})}
	for _, w := range words[1:] {
		n.units = append(n.units, int(min(w, 2*ShareTotal)))
	}
	switch {
	case !sharesFit(n.units, len(p.Seen)):
		return AppendWords(nil, answerBusy, p.reached)
	case n.From <= p.reached:
		return AppendWords(nil, answerLate, p.reached)
	}
	p.Next = n
	return AppendWords(nil, answerAccepted, p.reached)
}

// conclude settles the proposal that this rank has accepted.
func (p *State) conclude(m *control.Message) {
	words := WordsOf(m.Body, 1)
	if p == nil || words == nil {
		return
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	n := p.Next
	if n == nil || n.number != m.Seq {
		return
	}
	if n.agreed = words[0] == 1; !n.agreed {
		p.Next = nil
	}
	close(n.settled)
}
