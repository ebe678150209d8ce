package exec

import (
	"fmt"
	"math/rand/v2"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// fabric is an optical fabric in memory for ranks on one goroutine. Its planes check circuits and epochs, move frames
// at random, and have few slots.
type fabric struct {
	n, slots, mtu int
	rng           *rand.Rand
	planes        []*wavelength
	lost          error
	// steer makes the planes forward, as a kernel does: see steer_test.go.
	steer bool
	// clock, if not nil, is called at every tick.
	clock func()
	posts int
}

// wavelength is one plane.
type wavelength struct {
	f      *fabric
	to     circuit.Permutation
	epoch  uint32
	made   []uint32
	posted map[uint32]map[int]circuit.Permutation
	tx, rx [][]light
	stash  [][][]light
	// Only if the planes forward: frames from one rank to another that the receiver has not released, and frames forwarded
	// by rank.
	open    [][]int
	transit []transit
}

type light struct {
	h    wire.Header
	data []byte
}

func newFabric(n, slots int, maps []circuit.Permutation, seed uint64) *fabric {
	f := &fabric{n: n, slots: slots, mtu: 64, rng: rand.New(rand.NewPCG(seed, 5))}
	for _, m := range maps {
		w := &wavelength{f: f, to: m.Clone(), epoch: 10, made: make([]uint32, n),
			posted: map[uint32]map[int]circuit.Permutation{},
			tx:     make([][]light, n), rx: make([][]light, n), stash: make([][][]light, n),
			open: make([][]int, n), transit: make([]transit, n)}
		for r := range w.stash {
			w.made[r] = 10
			w.stash[r] = make([][]light, n)
			w.open[r] = make([]int, n)
		}
		f.planes = append(f.planes, w)
	}
	return f
}

func (f *fabric) bases() []uint32 {
	var b []uint32
	for _, w := range f.planes {
		b = append(b, w.epoch)
	}
	return b
}

// tick moves frames and completes a barrier that all ranks have posted.
func (f *fabric) tick() {
	if f.clock != nil {
		f.clock()
	}
	w := f.planes[f.rng.IntN(len(f.planes))]
	p := f.rng.IntN(f.n)
	if len(w.tx[p]) > 0 {
		w.travel(p)
	}
	if f.rng.IntN(4) == 0 {
		w.change()
	}
}

func (w *wavelength) travel(p int) {
	if w.f.steer {
		w.steer(p)
		return
	}
	q, h := w.to[p], w.tx[p][0].h
	if q == circuit.Dark || h.Epoch < w.made[p] || h.Epoch > w.epoch {
		w.lose(fmt.Errorf("port %d: epoch %d on a circuit of epoch %d: %w", p, h.Epoch, w.made[p], ocsctl.ErrFramesLost))
		w.tx[p] = w.tx[p][1:]
		return
	}
	if len(w.rx[q]) < w.f.slots {
		w.rx[q] = append(w.rx[q], w.tx[p][0])
		w.tx[p] = w.tx[p][1:]
	}
}

func (w *wavelength) lose(err error) {
	if w.f.lost == nil {
		w.f.lost = err
	}
}

func (w *wavelength) change() {
	posts := w.posted[w.epoch]
	var target circuit.Permutation
	for _, m := range posts {
		target = m
	}
	if target == nil {
		return
	}
	for p := range w.to {
		if w.to[p] != target[p] && posts[p] == nil {
			return
		}
	}
	w.epoch++
	for p := range w.to {
		if w.to[p] == target[p] {
			continue
		}
		w.made[p] = w.epoch
		if len(w.tx[p]) > 0 {
			w.lose(fmt.Errorf("port %d switched with frames on the wire: %w", p, ocsctl.ErrFramesLost))
			w.tx[p] = nil
		}
	}
	w.to = target.Clone()
}

// endpoint returns the endpoint of a rank, which is also its switch client.
func (f *fabric) endpoint(rank int) *fakePort {
	e := &fakePort{f: f, rank: rank}
	for i := range f.planes {
		p := &portPlane{w: f.planes[i], rank: rank}
		if f.steer {
			e.planes = append(e.planes, &steeredPlane{p})
		} else {
			e.planes = append(e.planes, p)
		}
	}
	return e
}

type fakePort struct {
	f      *fabric
	rank   int
	planes []transport.Plane
}

func (e *fakePort) Planes() []transport.Plane      { return e.planes }
func (e *fakePort) Arm() uint32                    { return 0 }
func (e *fakePort) Wait(_ uint32, _ time.Duration) { e.f.tick() }
func (e *fakePort) Wake()                          {}
func (e *fakePort) Close() error                   { return nil }
func (e *fakePort) Waiting(plane int) string       { return fmt.Sprintf("waiting on plane %d", plane) }

func (e *fakePort) Post(plane int, epoch uint32, target circuit.Permutation) error {
	w := e.f.planes[plane]
	e.f.posts++
	if epoch < w.epoch {
		return ocsctl.ErrStaleEpoch
	}
	if w.posted[epoch] == nil {
		w.posted[epoch] = map[int]circuit.Permutation{}
	}
	for _, m := range w.posted[epoch] {
		if !m.Equal(target) {
			return ocsctl.ErrConflict
		}
	}
	w.posted[epoch][e.rank] = target.Clone()
	return nil
}

func (e *fakePort) Poll(plane int) (uint32, error) {
	e.f.tick()
	return e.f.planes[plane].epoch, e.f.lost
}

type portPlane struct {
	w    *wavelength
	rank int
}

func (p *portPlane) TrySend(h *wire.Header, payload []byte) (int, error) {
	w := p.w
	w.f.tick()
	if len(w.tx[p.rank])+2 > w.f.slots {
		return 0, nil
	}
	n := min(len(payload), 8*(1+w.f.rng.IntN(w.f.mtu/8)))
	h.Length = uint32(n)
	w.tx[p.rank] = append(w.tx[p.rank], light{h: *h, data: append([]byte(nil), payload[:n]...)})
	return n, nil
}

// sort receives the frames that have arrived for this rank.
func (p *portPlane) sort() {
	p.w.f.tick()
	for q := p.w.rx[p.rank]; len(q) > 0 && int(q[0].h.Dst) == p.rank; q = p.w.rx[p.rank] {
		src := q[0].h.Src
		p.w.stash[p.rank][src] = append(p.w.stash[p.rank][src], q[0])
		p.w.rx[p.rank] = q[1:]
	}
}

func (p *portPlane) Peek(src int) (*wire.Header, []byte, error) {
	p.sort()
	q := p.w.stash[p.rank][src]
	if len(q) == 0 {
		return nil, nil, nil
	}
	return &q[0].h, q[0].data, nil
}

func (p *portPlane) Release(src int) { p.w.stash[p.rank][src] = p.w.stash[p.rank][src][1:] }

func (p *portPlane) Drained() (bool, error) {
	p.w.f.tick()
	return len(p.w.tx[p.rank]) == 0, nil
}

func (p *portPlane) Payload() int { return p.w.f.mtu }
func (p *portPlane) Backlog() int { return len(p.w.tx[p.rank]) }

func (p *portPlane) PeekTransit() (*wire.Header, []byte, error) {
	p.sort()
	q := p.w.rx[p.rank]
	if len(q) == 0 {
		return nil, nil, nil
	}
	return &q[0].h, q[0].data, nil
}

func (p *portPlane) Forward(epoch uint32) (bool, error) {
	w := p.w
	if len(w.tx[p.rank])+1 > w.f.slots {
		return false, nil
	}
	l := w.rx[p.rank][0]
	l.h.Epoch = epoch
	w.tx[p.rank] = append(w.tx[p.rank], l)
	w.rx[p.rank] = w.rx[p.rank][1:]
	return true, nil
}
