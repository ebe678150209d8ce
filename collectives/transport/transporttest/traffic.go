package transporttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// sizes are the message sizes of the random traffic in bytes: around a word, a cache line and a slot, and larger than
// any buffer.
var sizes = []int{1, 7, 8, 9, 63, 64, 65, 1000, 4096, 32<<10 - 1, 64 << 10, 64<<10 + 1, 300 << 10}

func (c Config) testTraffic(t *testing.T) {
	for _, shape := range []struct{ ranks, planes, messages int }{{2, 1, 60}, {3, 2, 20}, {5, 1, 12}} {
		t.Run(fmt.Sprintf("%dx%d", shape.ranks, shape.planes), func(t *testing.T) {
			c.Exchange(t, c.open(t, shape.ranks, shape.planes), shape.messages)
		})
	}
}

func (c Config) testFaults(t *testing.T) {
	e := c.open(t, 3, 2)
	for r := range e {
		e[r] = WithFaults(e[r], uint64(r), Faults{Short: 0.3, Refuse: 0.2, Delay: 0.3})
	}
	c.Exchange(t, e, 15)
}

// Exchange sends random messages between all pairs of ranks on all planes at once. It checks every byte, every header
// and the order of each flow. At the end every plane must be drained.
func (c Config) Exchange(t testing.TB, endpoints []transport.Endpoint, messages int) {
	t.Helper()
	g := newGroup(len(endpoints))
	var wg sync.WaitGroup
	for rank, e := range endpoints {
		wg.Go(func() {
			if err := c.Rank(e, rank, len(endpoints), messages, g.arrive); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				g.abort()
			}
		})
	}
	wg.Wait()
}

// group counts the ranks that have not finished. A finished rank continues to forward until all have finished.
type group struct {
	mu   sync.Mutex
	left int
}

func newGroup(n int) *group { return &group{left: n} }

// arrive reports whether all ranks have finished. The caller passes done once, when it has finished.
func (g *group) arrive(done bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if done {
		g.left--
	}
	return g.left <= 0
}

func (g *group) abort() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = 0
}

// flow is the sequence of random messages from src to dst on a plane, at the sender or at the receiver.
type flow struct {
	plane, src, dst int
	rng             *rand.Rand
	messages        int    // not yet begun
	message         []byte // the current message; nil at the end
	op              uint64
	at              int  // bytes of the message that have been sent or received
	shown           bool // at the receiver: Peek has returned a frame that is not released
	partial         bool // at the receiver: Land has received a part of a frame
}

func newFlow(plane, src, dst, messages int) *flow {
	f := &flow{plane: plane, src: src, dst: dst, messages: messages}
	f.rng = rand.New(rand.NewPCG(uint64(src)<<32|uint64(dst), uint64(plane)))
	f.next()
	return f
}

// next begins the next message. Both ends generate the same bytes.
func (f *flow) next() {
	f.message, f.at, f.partial = nil, 0, false
	if f.messages == 0 {
		return
	}
	f.messages--
	f.op++
	f.message = make([]byte, sizes[f.rng.IntN(len(sizes))])
	word := f.rng.Uint64()
	for i := range f.message {
		if i%8 == 0 {
			word = word*6364136223846793005 + 1442695040888963407
		}
		f.message[i] = byte(word >> (8 * (i % 8)))
	}
}

func (f *flow) done() bool { return f.message == nil }

// Rank runs one rank of an Exchange, for suites whose ranks are processes. Rank calls arrive(true) once, when this
// rank has finished, and arrive(false) otherwise; arrive reports whether all ranks have finished.
func (c Config) Rank(e transport.Endpoint, rank, ranks, messages int, arrive func(done bool) bool) error {
	x := &exchange{c: c, e: e, rank: rank, rng: rand.New(rand.NewPCG(9, uint64(rank)))}
	for plane := range e.Planes() {
		for peer := range ranks {
			if peer != rank {
				x.out = append(x.out, newFlow(plane, rank, peer, messages))
				x.in = append(x.in, newFlow(plane, peer, rank, messages))
			}
		}
	}
	for deadline, arrived := time.Now().Add(time.Minute), false; ; {
		armed := e.Arm()
		moved, err := x.step()
		if err != nil {
			return err
		}
		finished, err := x.finished()
		if err != nil {
			return err
		}
		if arrive(finished && !arrived) {
			return nil
		}
		arrived = arrived || finished
		if time.Now().After(deadline) {
			return fmt.Errorf("not finished after a minute: %s", x.state())
		}
		if !moved {
			e.Wait(armed, 5*time.Millisecond)
		}
	}
}

type exchange struct {
	c       Config
	e       transport.Endpoint
	rank    int
	rng     *rand.Rand
	out, in []*flow
}

// step tries every flow once, in random order, then forwards. It reports whether any data moved.
func (x *exchange) step() (moved bool, err error) {
	for _, i := range x.rng.Perm(len(x.out) + len(x.in)) {
		var ok bool
		if i < len(x.out) {
			ok, err = x.push(x.out[i])
		} else {
			ok, err = x.pull(x.in[i-len(x.out)])
		}
		if err != nil {
			return false, err
		}
		moved = moved || ok
	}
	for plane, p := range x.e.Planes() {
		f, ok := p.(transport.Forwarder)
		if !ok {
			continue
		}
		h, _, err := f.PeekTransit()
		if err != nil {
			return false, err
		}
		if h == nil {
			continue
		}
		ok, err = f.Forward(x.c.epoch(plane, x.rank))
		if err != nil {
			return false, err
		}
		moved = moved || ok
	}
	return moved, nil
}

func (x *exchange) push(f *flow) (bool, error) {
	if f.done() {
		return false, nil
	}
	h := x.c.header(f.plane, f.src, f.dst, uint64(f.at))
	h.Op = f.op
	n, err := x.e.Planes()[f.plane].TrySend(&h, f.message[f.at:])
	if err != nil {
		return false, err
	}
	if n < 0 || n > len(f.message)-f.at {
		return false, fmt.Errorf("TrySend accepted %d of %d bytes", n, len(f.message)-f.at)
	}
	if f.at += n; f.at == len(f.message) {
		f.next()
	}
	return n > 0, nil
}

func (x *exchange) pull(f *flow) (bool, error) {
	p := x.e.Planes()[f.plane]
	if l, ok := p.(transport.Lander); ok && !f.done() && !f.shown && (f.partial || x.rng.IntN(2) == 0) {
		return x.land(l, f)
	}
	h, data, err := p.Peek(f.src)
	if f.done() && errors.Is(err, transport.ErrPeerLost) {
		return false, nil // the peer has finished and closed
	}
	if err != nil || h == nil {
		return false, err
	}
	if f.done() {
		return false, fmt.Errorf("frame %+v after the last message", *h)
	}
	if err := x.sameHeader(h, f, len(data)); err != nil {
		return false, err
	}
	if err := sameBytes(h, data, f.message[f.at:]); err != nil {
		return false, err
	}
	if f.shown = x.rng.IntN(4) == 0; f.shown {
		return true, nil // a later Peek must return the same frame
	}
	p.Release(f.src)
	if f.at += len(data); f.at == len(f.message) {
		f.next()
	}
	return true, nil
}

// land receives a part of any size of the next frame. It checks that Land does not write beyond the frame.
func (x *exchange) land(p transport.Lander, f *flow) (bool, error) {
	h, err := p.Head(f.src)
	if err != nil || h == nil {
		return false, err
	}
	left := int(h.Length)
	if err := x.sameHeader(h, f, left); err != nil {
		return false, err
	}
	if left == 0 || left > len(f.message)-f.at {
		return false, fmt.Errorf("frame %+v exceeds the %d bytes left of the message", *h, len(f.message)-f.at)
	}
	const guard = 0xa5
	dst := append(make([]byte, left), guard)
	offered := dst[:left+x.rng.IntN(2)]
	if x.rng.IntN(3) == 0 {
		offered = dst[:1+x.rng.IntN(left)]
	}
	n, err := p.Land(f.src, offered)
	if err != nil {
		return false, err
	}
	if n < 0 || n > min(left, len(offered)) || dst[left] != guard || string(dst[:n]) != string(f.message[f.at:f.at+n]) {
		return false, fmt.Errorf("Land of %d bytes into %d returned %d: wrong count or bytes", left, len(offered), n)
	}
	f.partial = n < left // Peek could not return the rest, which may begin inside a word
	if f.at += n; f.at == len(f.message) {
		f.next()
	}
	return n > 0, nil
}

func (x *exchange) sameHeader(h *wire.Header, f *flow, length int) error {
	want := x.c.header(f.plane, f.src, f.dst, uint64(f.at))
	want.Op, want.Length, want.Epoch = f.op, uint32(length), h.Epoch
	if *h != want {
		return fmt.Errorf("frame %+v, want %+v", *h, want)
	}
	return nil
}

// sameBytes compares a frame's payload with the rest of its message.
func sameBytes(h *wire.Header, data, rest []byte) error {
	if len(data) == 0 || len(data) > len(rest) {
		return fmt.Errorf("frame of %d bytes exceeds the %d bytes left of the message", len(data), len(rest))
	}
	if string(data) != string(rest[:len(data)]) {
		return fmt.Errorf("frame %+v has wrong bytes", *h)
	}
	if h.Offset%8 != 0 {
		return fmt.Errorf("frame %+v begins inside an element", *h)
	}
	return nil
}

// finished reports whether this rank has sent and received all messages and drained its planes.
func (x *exchange) finished() (bool, error) {
	for _, flows := range [][]*flow{x.out, x.in} {
		for _, f := range flows {
			if !f.done() {
				return false, nil
			}
		}
	}
	for _, p := range x.e.Planes() {
		if ok, err := p.Drained(); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// state describes the unfinished flows.
func (x *exchange) state() string {
	var b []byte
	for _, flows := range [][]*flow{x.out, x.in} {
		for _, f := range flows {
			if !f.done() {
				b = fmt.Appendf(b, "plane %d, %d to %d: message %d at byte %d of %d; ",
					f.plane, f.src, f.dst, f.op, f.at, len(f.message))
			}
		}
	}
	return string(b)
}
