package exec

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/ebpf"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/circuit"
)

// panel is a fabric in the kernel with a minimal controller. It moves a plane when all changing ports have posted, and
// keeps these ports dark for a while.
type panel struct {
	board     *kernel.Board
	dark      time.Duration
	endpoints []transport.Endpoint
	mu        sync.Mutex
	planes    []panelPlane
	broken    bool
}

// state describes the planes in the output of a failed test.
func (p *panel) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b []byte
	for j := range p.planes {
		m, _ := p.board.Map(j)
		b = fmt.Appendf(b, "plane %d epoch %d map %v posted %v", j, p.planes[j].epoch.Load(), m, p.planes[j].posted)
		for r := range m {
			c, _ := p.board.Counters(j, r)
			b = fmt.Appendf(b, "; port %d offered %d taken %d transit %#x", r, c.Offered(), c.Sent(), c.TransitOp())
		}
		b = append(b, '\n')
	}
	return string(b)
}

type panelPlane struct {
	epoch  atomic.Uint32
	failed atomic.Pointer[error]
	posted map[int]circuit.Permutation // by port, for this epoch
	early  []func()                    // posts for later epochs
	moves  sync.WaitGroup
}

// newPanel creates a fabric and attaches all ranks. It needs root.
func newPanel(t testing.TB, ranks, planes, window int, rate string) *panel {
	t.Helper()
	s := transporttest.KernelFabric(t, ranks, planes, rate, true)
	p := &panel{dark: 200 * time.Microsecond, planes: make([]panelPlane, planes)}
	var err error
	if p.board, err = kernel.Open(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i := range p.planes {
			p.planes[i].moves.Wait()
		}
		_ = p.board.Close()
	})
	p.attach(t, s, window)
	return p
}

func (p *panel) attach(t testing.TB, s *kernel.State, window int) {
	t.Helper()
	var ls []*ebpf.Listener
	var addrs []ebpf.Addrs
	for rank := range s.Ranks {
		port, err := kernel.Attach(s, rank)
		require.NoError(t, err)
		t.Cleanup(func() { _ = port.Close() })
		o := ebpf.ListenOptions{Control: "127.0.0.1:0"}
		for j, rp := range port.Planes {
			o.Planes = append(o.Planes, ebpf.PlaneOptions{FD: rp.FD, MTU: rp.MTU, Counters: rp.Counters,
				BitsPerSecond: float64(s.Planes[j].Rate)})
		}
		l, err := ebpf.Listen(o)
		require.NoError(t, err)
		ls, addrs = append(ls, l), append(addrs, l.Addrs())
	}
	for rank, l := range ls {
		e, err := ebpf.Connect(l, ebpf.Options{Rank: rank, Addrs: addrs, Comm: 7, Window: window})
		require.NoError(t, err)
		t.Cleanup(func() { _ = e.Close() })
		p.endpoints = append(p.endpoints, e)
	}
}

// install sets the maps of the planes between two operations.
func (p *panel) install(t testing.TB, maps []circuit.Permutation) {
	t.Helper()
	for j, m := range maps {
		p.planes[j].moves.Wait()
		require.NoError(t, p.board.Install(j, m))
	}
}

func (p *panel) bases() []uint32 {
	var b []uint32
	for j := range p.planes {
		b = append(b, p.planes[j].epoch.Load())
	}
	return b
}

func (p *panel) post(rank, plane int, epoch uint32, target circuit.Permutation) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.planes[plane]
	switch at := w.epoch.Load(); {
	case int32(epoch-at) < 0:
		return fmt.Errorf("plane %d epoch %d: %w", plane, epoch, ocsctl.ErrStaleEpoch)
	case epoch != at:
		w.early = append(w.early, func() { _ = p.post(rank, plane, epoch, target) })
		return nil
	}
	if w.posted == nil {
		w.posted = make(map[int]circuit.Permutation)
	}
	w.posted[rank] = target.Clone()
	now, err := p.board.Map(plane)
	if err != nil {
		return err
	}
	var changing []int
	for r := range now {
		if now[r] != target[r] {
			changing = append(changing, r)
			if w.posted[r] == nil {
				return nil
			}
		}
	}
	w.posted = nil
	w.moves.Go(func() { p.move(plane, changing, target) })
	return nil
}

// darken removes the circuits that begin at ports of a plane.
func (p *panel) darken(plane int, ports []int) error {
	m, err := p.board.Map(plane)
	if err != nil {
		return err
	}
	for _, r := range ports {
		m[r] = circuit.Dark
	}
	return p.board.Install(plane, m)
}

func (p *panel) move(plane int, changing []int, target circuit.Permutation) {
	w := &p.planes[plane]
	err := p.darken(plane, changing)
	if err == nil {
		time.Sleep(p.dark)
		err = p.board.Install(plane, target)
	}
	p.mu.Lock()
	if err != nil {
		w.failed.Store(&err)
	}
	w.epoch.Add(1)
	early := w.early
	w.early = nil
	p.mu.Unlock()
	for _, f := range early {
		f()
	}
	for _, e := range p.endpoints {
		e.Wake()
	}
}

// client connects a rank to the panel.
func (p *panel) client(rank int) Switch { return &panelClient{p, rank} }

type panelClient struct {
	p    *panel
	rank int
}

func (c *panelClient) Post(plane int, epoch uint32, target circuit.Permutation) error {
	return c.p.post(c.rank, plane, epoch, target)
}

func (c *panelClient) Poll(plane int) (uint32, error) {
	w := &c.p.planes[plane]
	if err := w.failed.Load(); err != nil {
		return w.epoch.Load(), *err
	}
	return w.epoch.Load(), nil
}
