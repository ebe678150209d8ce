package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/shim/errdefs"
	"lightpath/shim/status"
)

// writeTime bounds how long a rank that no longer reads can delay a sender.
const writeTime = 5 * time.Second

// Departure says that a rank makes no more calls, and how many it has made.
type Departure struct {
	Rank        int
	Collectives uint64 // the number of its last collective
	Calls       uint64 // of all kinds
	// Messages are those between it and others on the host path, by the other rank. The leader tells each rank of its own
	// only.
	Messages map[int]Messages `json:",omitempty"`
}

// Messages counts the messages that a rank has called with another one.
type Messages struct{ Sent, Received uint64 }

// goodbyeDelay is how long the leader collects goodbyes before it tells the other ranks of them. Ranks mostly leave at
// about the same time, and then need no such message.
const goodbyeDelay = 50 * time.Millisecond

// Star is a communicator's control network: every rank has one connection to rank 0, the leader. Safe for concurrent
// use, except Start, which comes first.
type Star struct {
	rank, ranks int
	links       []*link // leader: by rank, nil for itself; others: links[0] is the leader
	events      Events

	mu       sync.Mutex
	left     []bool      // by rank: it has said goodbye, or its connection has ended
	untold   []Departure // at the leader: not yet told to the other ranks
	later    *time.Timer // tells them
	numLeft  int
	allLeft  chan struct{} // closed when every rank has left, or the leader's connection has ended
	leftOnce sync.Once
	readers  sync.WaitGroup
}

// Events are functions that a star calls on the goroutine of a connection. The functions must not block.
type Events struct {
	// a message has come; it belongs to the callee, and those of a rank keep their order
	Deliver  func(*Message)
	Departed func(Departure)           // a rank has said goodbye
	Lost     func(rank int, err error) // a connection has ended, and its rank has not said goodbye
}

// link is one connection.
type link struct {
	mu   sync.Mutex
	conn net.Conn
	buf  []byte
	cut  atomic.Pointer[error] // the peer has not read a message in time, and may have a part of it
}

func (l *link) send(m *Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = Append(l.buf[:0], m)
	_ = l.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := l.conn.Write(l.buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("it has not read a message in %v: %w", writeTime, err)
		l.cut.Store(&err)
		_ = l.conn.Close() // the peer would take another message for the rest of this one
	}
	if cap(l.buf) > 1<<16 {
		l.buf = nil // the body was a plan; do not keep a buffer of its size
	}
	return err
}

func newStar(rank, ranks int) *Star {
	return &Star{rank: rank, ranks: ranks, links: make([]*link, ranks), left: make([]bool, ranks),
		allLeft: make(chan struct{})}
}

// Join connects rank to the leader at addr. Nothing is delivered before [Star.Start]. The end of ctx ends the wait.
func Join(ctx context.Context, rank, ranks int, addr string, s Secret, timeout time.Duration) (*Star, error) {
	c, deadline := newStar(rank, ranks), time.Now().Add(timeout)
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("shim: leader's address %q: %w", addr, ErrMessage)
	}
	conn, err := Dial(ctx, at, s, deadline, false) // the leader listens before any rank knows its address
	gaveUp := err != nil && ctx.Err() != nil
	if gaveUp { // the leader waits for this rank, and gets a connection that ends
		conn, err = Dial(context.WithoutCancel(ctx), at, s, time.Now().Add(writeTime), false)
	}
	if err != nil {
		return nil, fmt.Errorf("shim: rank %d: control connection to rank 0: %w", rank, err)
	}
	c.links[0] = &link{conn: conn}
	err = c.links[0].send(&Message{Kind: MsgJoin, From: uint16(rank)})
	if gaveUp {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// lookAfter is how long a rank waits for others to connect before it looks for ended processes, and then again.
const lookAfter = time.Second / 2

// AwaitEnded asks ended about ranks again and again, and returns the error of the first whose process has ended. It
// returns nil at the end of ctx.
func AwaitEnded(ctx context.Context, ranks []int, ended func(rank int) error) error {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, r := range ranks {
			if err := ended(r); err != nil {
				return err
			}
		}
	}
}

// Lead returns the leader's star when all other ranks have connected to ln. It closes ln. ended returns an error if the
// process of a rank has ended. After an error, the star has the ranks that have come, so they can be told. Nothing is
// delivered before [Star.Start]. The end of ctx ends the wait.
func Lead(ctx context.Context, ranks int, ln net.Listener, s Secret, timeout time.Duration,
	ended func(rank int) error) (*Star, error) {
	c := newStar(0, ranks)
	if ranks == 1 {
		return c, nil
	}
	return c, c.gather(ctx, ln, s, timeout, ended)
}

// gather accepts the control connections of all other ranks. It handles each connection on a goroutine, so that a
// stranger that connects and waits delays no rank.
func (c *Star) gather(ctx context.Context, ln net.Listener, s Secret, timeout time.Duration,
	ended func(rank int) error) error {
	type joined struct {
		rank int
		conn net.Conn
	}
	joins := make(chan joined)
	done := make(chan struct{})
	defer close(done)
	defer ln.Close()
	greet := func(conn net.Conn) {
		var m Message
		err := Accept(conn, s)
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(HandshakeTime))
			err = Read(conn, &m)
			_ = conn.SetReadDeadline(time.Time{})
		}
		if err == nil && m.Kind == MsgJoin {
			select {
			case joins <- joined{int(m.From), conn}:
				return
			case <-done:
			}
		}
		_ = conn.Close()
	}
	var t Trouble
	go AcceptAll(ln, &t, func(conn net.Conn) { go greet(conn) })
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	lost := make(chan error, 1)
	go func(others []int) {
		if err := AwaitEnded(watching, others, ended); err != nil {
			lost <- err
		}
	}(c.missing())
	for have := 1; have < c.ranks; {
		select {
		case j := <-joins:
			if j.rank <= 0 || j.rank >= c.ranks || c.links[j.rank] != nil {
				_ = j.conn.Close()
				continue
			}
			c.links[j.rank] = &link{conn: j.conn}
			have++
		case err := <-lost:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("shim: control connections: %s never arrived%v: %w", status.ListRanks(c.missing()),
				&t, errdefs.ErrTimeout)
		}
	}
	return nil
}

// missing lists the ranks that have no connection to the leader.
func (c *Star) missing() (ranks []int) {
	for r := 1; r < c.ranks; r++ {
		if c.links[r] == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Start begins to read the connections.
func (c *Star) Start(e Events) {
	c.events = e
	for r, l := range c.links {
		if l != nil {
			c.readers.Add(1)
			go c.read(r, l)
		}
	}
}

func (c *Star) read(from int, l *link) {
	defer c.readers.Done()
	for {
		var m Message
		err := Read(l.conn, &m)
		if err == nil && c.rank == 0 && int(m.From) != from {
			err = fmt.Errorf("%w: rank %d speaks as rank %d", ErrMessage, from, m.From)
		}
		if err != nil {
			if cut := l.cut.Load(); cut != nil {
				err = *cut
			}
			expected := c.HasLeft(from) || errors.Is(err, net.ErrClosed)
			if c.rank == 0 {
				c.markLeft(from)
			} else {
				c.closeAllLeft()
			}
			if !expected {
				c.events.Lost(from, err)
			}
			return
		}
		if m.Kind != MsgGoodbye {
			c.events.Deliver(&m)
		} else if err := c.goodbye(&m); err != nil {
			c.events.Lost(from, err)
			return
		}
	}
}

// goodbye notes the ranks that have left. The leader tells the others: after a moment that they have, and at once when
// all ranks have.
func (c *Star) goodbye(m *Message) error {
	var gone []Departure
	if err := DecodeStrict(m.Body, &gone); err != nil {
		return err
	}
	for _, d := range gone {
		if d.Rank < 0 || d.Rank >= c.ranks || c.rank == 0 && d.Rank != int(m.From) {
			return fmt.Errorf("%w: goodbye of rank %d from rank %d", ErrMessage, d.Rank, m.From)
		}
		if c.markLeft(d.Rank) {
			c.tellLater(d)
			c.events.Departed(d)
		}
	}
	if c.rank != 0 && m.Arg == 1 {
		c.closeAllLeft()
	}
	return nil
}

// tellLater has the leader tell the other ranks of a departure, unless all have left.
func (c *Star) tellLater(d Departure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rank != 0 || c.numLeft == c.ranks {
		return
	}
	if c.untold = append(c.untold, d); len(c.untold) == 1 {
		c.later = time.AfterFunc(goodbyeDelay, c.tell)
	}
}

// tell tells the other ranks which ranks have left.
func (c *Star) tell() {
	c.mu.Lock()
	untold := c.takeUntold()
	c.mu.Unlock()
	if len(untold) == 0 {
		return
	}
	for rank, l := range c.links {
		if l != nil && !c.HasLeft(rank) {
			_ = l.send(&Message{Kind: MsgGoodbye, Body: goodbyeBody(toldTo(rank, untold))})
		}
	}
}

// toldTo returns departures with the messages of one rank.
func toldTo(rank int, gone []Departure) []Departure {
	told := slices.Clone(gone)
	for i := range told {
		if m, ok := told[i].Messages[rank]; ok {
			told[i].Messages = map[int]Messages{rank: m}
		} else {
			told[i].Messages = nil
		}
	}
	return told
}

func goodbyeBody(d []Departure) []byte {
	body, _ := json.Marshal(d) // plain structs: cannot fail
	return body
}

// takeUntold empties the list. It stops the timer, which would keep an ended communicator in memory. c.mu is held.
func (c *Star) takeUntold() []Departure {
	untold := c.untold
	c.untold = nil
	if c.later != nil {
		c.later.Stop()
		c.later = nil
	}
	return untold
}

// HasLeft reports whether a rank has said goodbye. At the leader it is also true if the rank's connection has ended.
func (c *Star) HasLeft(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left[rank]
}

// markLeft notes that a rank has left, and reports whether it had not before.
func (c *Star) markLeft(rank int) bool {
	c.mu.Lock()
	if rank >= c.ranks || c.left[rank] {
		c.mu.Unlock()
		return false
	}
	c.left[rank] = true
	c.numLeft++
	last := c.rank == 0 && c.numLeft == c.ranks
	if last {
		c.takeUntold()
	}
	c.mu.Unlock()
	if last {
		// This must precede allLeft, after which the leader closes these connections.
		c.Broadcast(&Message{Kind: MsgGoodbye, Arg: 1, Body: goodbyeBody(nil)}, -1)
		c.closeAllLeft()
	}
	return true
}

func (c *Star) closeAllLeft() { c.leftOnce.Do(func() { close(c.allLeft) }) }

// Leave says goodbye: after it, the end of this rank's connection is no failure. d is this rank's departure.
func (c *Star) Leave(d Departure) {
	if c.rank == 0 {
		c.mu.Lock()
		c.untold = append(c.untold, d)
		c.mu.Unlock()
		c.tell() // at once: this process may end
	} else {
		_ = c.links[0].send(&Message{Kind: MsgGoodbye, From: uint16(c.rank), Body: goodbyeBody([]Departure{d})})
	}
	c.markLeft(c.rank)
}

// ErrUnsent reports that the connection to the leader accepts no more data. Earlier messages of the leader may still be
// unread; see fail of package comm.
var ErrUnsent = fmt.Errorf("%w", errdefs.ErrRemote)

// ToLeader sends m to rank 0. At the leader, it delivers m at once.
func (c *Star) ToLeader(m *Message) error {
	m.From = uint16(c.rank)
	if c.rank == 0 {
		c.events.Deliver(m)
		return nil
	}
	if err := c.links[0].send(m); err != nil {
		return fmt.Errorf("shim: rank %d: message to rank 0: %w: %w", c.rank, err, ErrUnsent)
	}
	return nil
}

// To sends m from the leader to a rank.
func (c *Star) To(rank int, m *Message) {
	m.From = 0
	if rank == c.rank {
		c.events.Deliver(m)
		return
	}
	// The reading goroutine reports a rank that has ended.
	_ = c.links[rank].send(m)
}

// Broadcast sends m from the leader to all ranks except itself and rank but.
func (c *Star) Broadcast(m *Message, but int) {
	for r, l := range c.links {
		if l != nil && r != but {
			_ = l.send(m)
		}
	}
}

// Close ends all connections and waits for their reading goroutines, which must not call it.
func (c *Star) Close() {
	for _, l := range c.links {
		if l != nil {
			_ = l.conn.Close()
		}
	}
	c.readers.Wait()
}

// EveryoneLeft is closed when every rank has left, or the leader's connection has ended. At the leader, a rank has left
// when it has said goodbye, or its connection has ended.
func (c *Star) EveryoneLeft() <-chan struct{} { return c.allLeft }
