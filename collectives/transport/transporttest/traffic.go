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

// sizes of the messages of the random traffic: around words, lines, slots and more than
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

// Exchange sends random messages between all pairs of ranks on all planes at once and
// checks every byte, every frame's header and the order of each flow. At the end every
// plane must be drained.
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

// group counts the ranks that are done; those that forward go on until all are.
type group struct {
	mu   sync.Mutex
	left int
}

func newGroup(n int) *group { return &group{left: n} }

// arrive reports whether all ranks are done; done says that the caller has become so.
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

// flow is the random messages of one (source, destination, plane), as either end sees them.
type flow struct {
	plane, src, dst int
	rng             *rand.Rand
	messages        int    // still to begin
	message         []byte // the current one
	op              uint64
	at              int
	shown           bool // at the receiver: Peek has shown a frame that is not released
	landing         bool // at the receiver: a frame has landed in part
}

func newFlow(plane, src, dst, messages int) *flow {
	f := &flow{plane: plane, src: src, dst: dst, messages: messages}
	f.rng = rand.New(rand.NewPCG(uint64(src)<<32|uint64(dst), uint64(plane)))
	f.next()
	return f
}

// next moves to the next message; both ends draw the same bytes.
func (f *flow) next() {
	f.message, f.at, f.landing = nil, 0, false
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

// Rank is one rank of an Exchange, for suites that run ranks as processes. arrive reports
// whether all ranks are done and is told once that this one is.
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
	for deadline, told := time.Now().Add(time.Minute), false; ; {
		armed := e.Arm()
		moved, err := x.turn()
		if err != nil {
			return err
		}
		finished, err := x.finished()
		if err != nil {
			return err
		}
		if arrive(finished && !told) {
			return nil
		}
		told = told || finished
		if time.Now().After(deadline) {
			return fmt.Errorf("stuck: %s", x.state())
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

// turn tries every flow once, in random order, and reports whether anything moved.
func (x *exchange) turn() (moved bool, err error) {
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
		return false, fmt.Errorf("TrySend took %d of %d bytes", n, len(f.message)-f.at)
	}
	if f.at += n; f.at == len(f.message) {
		f.next()
	}
	return n > 0, nil
}

func (x *exchange) pull(f *flow) (bool, error) {
	p := x.e.Planes()[f.plane]
	if l, ok := p.(transport.Lander); ok && !f.done() && !f.shown && (f.landing || x.rng.IntN(2) == 0) {
		return x.land(l, f)
	}
	h, data, err := p.Peek(f.src)
	if f.done() && errors.Is(err, transport.ErrPeerLost) {
		return false, nil // it was done too
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
		return true, nil // look again later: the view must stay
	}
	p.Release(f.src)
	if f.at += len(data); f.at == len(f.message) {
		f.next()
	}
	return true, nil
}

// land receives a part of the next frame, up to the end of the message: frames may be landed in
// parts of any size, and what follows a frame must not show beyond it.
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
		return false, fmt.Errorf("frame %+v where the message has %d bytes left", *h, len(f.message)-f.at)
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
		return false, fmt.Errorf("landed %d of %d bytes in %d, wrong or too many", n, left, len(offered))
	}
	f.landing = n < left // the rest must land, too: it need not begin at a whole word
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

// sameBytes checks a frame's data against the rest of its message.
func sameBytes(h *wire.Header, data, rest []byte) error {
	if len(data) == 0 || len(data) > len(rest) {
		return fmt.Errorf("frame of %d bytes where the message has %d left", len(data), len(rest))
	}
	if string(data) != string(rest[:len(data)]) {
		return fmt.Errorf("bytes of frame %+v differ", *h)
	}
	if h.Offset%8 != 0 {
		return fmt.Errorf("frame %+v begins inside an element", *h)
	}
	return nil
}

// finished reports whether this rank has sent and received everything and its planes are
// drained.
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

// state describes what is not done, for the message of a test that hangs.
func (x *exchange) state() string {
	var b []byte
	for _, flows := range [][]*flow{x.out, x.in} {
		for _, f := range flows {
			if !f.done() {
				b = fmt.Appendf(b, "plane %d, %d to %d: message %d at byte %d of %d; ", f.plane, f.src, f.dst, f.op, f.at, len(f.message))
			}
		}
	}
	return string(b)
}
