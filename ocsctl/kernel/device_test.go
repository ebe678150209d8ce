package kernel

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/driver"
	scpidriver "lightpath/ocsctl/driver/scpi"
	"lightpath/plans/circuit"
)

// rig is a controller's device on a fabric.
type rig struct {
	t       *testing.T
	board   *Board
	models  []*device.Device
	device  *Device
	hosts   []host
	settled [2]atomic.Int64 // how often each plane has
}

func newRig(t *testing.T, ranks int) *rig {
	f := fabricFile(t, ranks, 2, "10Gbps", false)
	s := up(t, f)
	g := &rig{t: t, board: openBoard(t, s), hosts: hosts(t, s)}
	var cables []Cable
	var err error
	if g.models, cables, err = Models(g.board, f, "", 1); err != nil {
		t.Fatal(err)
	}
	if len(g.models) != 1 || g.models[0].Ports() != 2*ranks {
		t.Fatalf("%d models, want one for the one switch of the file", len(g.models))
	}
	t.Cleanup(g.models[0].Close)
	if g.device, err = NewDevice(g.board, cables); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		assert.NoError(t, g.device.Close())
	})
	g.device.OnSettled(func(plane int) { g.settled[plane].Add(1) })
	return g
}

// move moves a plane and returns the map that the device has when it has settled.
func (g *rig) move(plane int, to circuit.Permutation) circuit.Permutation {
	g.t.Helper()
	from, err := g.device.Map(plane)
	require.NoError(g.t, err)
	before := g.settled[plane].Load()
	require.NoError(g.t, g.device.Switch(plane, controller.Move{Epoch: 1, From: from, To: to}))
	wait(g.t, func() bool { return g.settled[plane].Load() > before }, "plane %d has not settled", plane)
	var m circuit.Permutation
	wait(g.t, func() bool {
		m, err = g.device.Map(plane)
		return !errors.Is(err, controller.ErrMoving)
	}, "plane %d still moves", plane)
	require.NoError(g.t, err)
	return m
}

func (g *rig) well(plane int) {
	g.t.Helper()
	if level, err := g.device.Report(plane); err != nil || level != verified {
		g.t.Errorf("plane %d: %s, %v", plane, level, err)
	}
}

func (g *rig) unwell(plane int, want error, words string) {
	g.t.Helper()
	if _, err := g.device.Report(plane); !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
		g.t.Errorf("plane %d: report %v, want %v with %q", plane, err, want, words)
	}
}

// dropped sends frames and checks that they are lost in the dark.
func (g *rig) dropped(plane, from, to int) {
	g.t.Helper()
	before, _ := g.hosts[from].Planes[plane].Counters.Dropped()
	g.hosts[from].send(plane, g.hosts[to], 3, frame)
	g.hosts[from].drained(plane)
	if dark, _ := g.hosts[from].Planes[plane].Counters.Dropped(); dark-before != 3 {
		g.t.Errorf("plane %d: rank %d to %d: %d of 3 frames dark", plane, from, to, dark-before)
	}
}

func (g *rig) carried(plane, from, to int) {
	g.t.Helper()
	g.hosts[from].send(plane, g.hosts[to], 3, frame)
	g.hosts[to].expect(plane, from, 3)
}

// A move takes the model's time, in which the ports that change are dark and the others are not.
func TestDeviceMoves(t *testing.T) {
	t.Parallel()
	g := newRig(t, 4)
	first := circuit.Permutation{1, 0, 3, 2}
	if m := g.move(0, first); !m.Equal(first) {
		t.Fatalf("map %v", m)
	}
	g.well(0)
	g.carried(0, 0, 1)
	g.dropped(1, 0, 1)

	second := circuit.Permutation{1, 0, 2, 3}
	begin := time.Now()
	require.NoError(t, g.device.Switch(0, controller.Move{From: first, To: second}))
	// Whatever the machine does meanwhile, a port that moves is dark until the delay is over.
	if m, err := g.board.Map(0); err != nil || time.Since(begin) < 2*time.Millisecond &&
		!m.Equal(circuit.Permutation{1, 0, circuit.Dark, circuit.Dark}) {
		t.Errorf("on its way: %v, %v", m, err)
	}
	g.carried(0, 1, 0)
	wait(t, func() bool { _, err := g.device.Map(0); return err == nil }, "still moving")
	if took := time.Since(begin); took < 2*time.Millisecond {
		t.Errorf("settled after %v", took)
	}
	if m, err := g.device.Map(0); err != nil || !m.Equal(second) {
		t.Errorf("map %v, %v", m, err)
	}
	g.well(0)
	// A move that changes nothing settles, too, and so does one to the dark.
	if m := g.move(0, second); !m.Equal(second) {
		t.Errorf("map %v", m)
	}
	if m := g.move(0, circuit.AllDark(4)); !m.Equal(circuit.AllDark(4)) {
		t.Errorf("map %v", m)
	}
	g.dropped(0, 0, 1)
}

// A device that refuses a move changes nothing.
func TestDeviceRefuses(t *testing.T) {
	t.Parallel()
	g := newRig(t, 3)
	ring := circuit.Shift(3, 1)
	g.move(0, ring)
	for _, c := range []struct {
		name  string
		plane int
		m     controller.Move
		want  error
	}{
		{"plane", 2, controller.Move{From: ring, To: ring}, nil},
		{"negative plane", -1, controller.Move{From: ring, To: ring}, nil},
		{"ranks", 0, controller.Move{From: ring, To: circuit.Shift(4, 1)}, nil},
		{"egress twice", 0, controller.Move{From: ring, To: circuit.Permutation{1, 1, 0}}, nil},
		{"drift", 0, controller.Move{From: circuit.AllDark(3), To: ring}, driver.ErrDrift},
	} {
		err := g.device.Switch(c.plane, c.m)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if m, err := g.device.Map(0); err != nil || !m.Equal(ring) {
		t.Errorf("map %v, %v", m, err)
	}
	g.well(0)
}

// Faults of the model are faults of the wire.
func TestFaultsMovePackets(t *testing.T) {
	t.Parallel()
	g := newRig(t, 4)
	ring := circuit.Shift(4, 1)
	inject := func(g *rig, f device.Fault) {
		g.t.Helper()
		require.NoError(g.t, g.models[0].Inject(f))
	}
	for _, c := range []struct {
		name string
		run  func(t *testing.T, g *rig)
	}{
		{"stuck in silence", func(t *testing.T, g *rig) {
			inject(g, device.Fault{Kind: device.StuckMirror, In: 2, Out: -1, Silent: true})
			if m := g.move(0, ring); !m.Equal(circuit.Permutation{1, 2, circuit.Dark, 0}) {
				t.Errorf("map %v", m)
			}
			g.unwell(0, driver.ErrDrift, "port 2 goes to none, not to port 3")
			g.dropped(0, 2, 3)
			g.carried(0, 1, 2)
		}},
		{"stuck", func(t *testing.T, g *rig) {
			inject(g, device.Fault{Kind: device.StuckMirror, In: -1, Out: 3})
			g.move(0, ring)
			g.unwell(0, driver.ErrUnwell, "port 2")
			g.dropped(0, 2, 3)
		}},
		{"ghost", func(t *testing.T, g *rig) {
			inject(g, device.Fault{Kind: device.GhostConnect, In: 1, Out: 2})
			g.dropped(0, 1, 2)
			if m := g.move(0, ring); !m.Equal(ring) {
				t.Errorf("map %v", m)
			}
			g.well(0)
			g.carried(0, 1, 2)
		}},
		{"partial bulk", func(t *testing.T, g *rig) {
			inject(g, device.Fault{Kind: device.PartialBulk, Count: 1, Silent: true})
			if m := g.move(0, ring); !m.Equal(circuit.Permutation{1, circuit.Dark, circuit.Dark, circuit.Dark}) {
				t.Errorf("map %v", m)
			}
			g.unwell(0, driver.ErrDrift, "port 1")
			g.dropped(0, 1, 2)
		}},
		{"third party", func(t *testing.T, g *rig) {
			g.move(0, ring)
			before := g.settled[0].Load()
			inject(g, device.Fault{Kind: device.ThirdParty, In: 0, Out: 3}) // breaks 2 to 3
			wait(t, func() bool { return g.settled[0].Load() > before }, "nobody is told")
			wait(t, func() bool { m, err := g.device.Map(0); return err == nil && m[0] == 3 }, "0 does not go to 3")
			g.unwell(0, driver.ErrDrift, "port 0 goes to port 3, not to port 1")
			g.hosts[0].send(0, g.hosts[1], 4, frame)
			g.hosts[0].drained(0)
			if _, misdirected := g.hosts[0].Planes[0].Counters.Dropped(); misdirected != 4 { // none before
				t.Errorf("%d of 4 frames misdirected", misdirected)
			}
			g.dropped(0, 2, 3)
			g.carried(0, 1, 2)
			g.well(1)
		}},
		{"reboot", func(t *testing.T, g *rig) {
			g.move(0, ring)
			g.move(1, ring)
			inject(g, device.Fault{Kind: device.Reboot, Delay: time.Hour})
			g.unwell(0, device.ErrDown, "")
			g.dropped(0, 0, 1)
			g.dropped(1, 0, 1)
			if err := g.device.Switch(0, controller.Move{From: circuit.AllDark(4), To: ring}); !errors.Is(err, device.ErrDown) {
				t.Errorf("switch: %v", err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inject(g, device.Fault{Kind: device.Clear})
			for plane := range 2 {
				if m := g.move(plane, circuit.AllDark(4)); !m.Equal(circuit.AllDark(4)) {
					t.Fatalf("map %v", m)
				}
				g.well(plane)
			}
			c.run(t, g)
		})
	}
}

// A controller that takes over finds the circuits that the one before has left.
func TestTakeover(t *testing.T) {
	t.Parallel()
	f := fabricFile(t, 3, 1, "1Gbps", false)
	s := up(t, f)
	ring := circuit.Shift(3, 2)
	for i := range 2 {
		b, err := Open(s)
		require.NoError(t, err)
		models, cables, err := Models(b, f, "", 0)
		require.NoError(t, err)
		d, err := NewDevice(b, cables)
		require.NoError(t, err)
		m, err := d.Map(0)
		if i == 1 {
			if err != nil || !m.Equal(ring) {
				t.Errorf("map %v, %v", m, err)
			}
			if _, err := d.Report(0); err != nil {
				t.Error(err)
			}
		} else if err := d.Switch(0, controller.Move{From: m, To: ring}); err != nil {
			t.Fatal(err)
		}
		wait(t, func() bool { m, err := d.Map(0); return err == nil && m.Equal(ring) }, "map is not %v", ring)
		assert.NoError(t, errors.Join(d.Close(), b.Close()))
		models[0].Close()
	}
}

// A client that speaks SCPI moves packets.
func TestSCPIMovesPackets(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 3, 1, "1Gbps", false))
	b := openBoard(t, s)
	model, err := device.New(device.Config{Ports: 8, Delays: &device.Delays{Min: time.Millisecond,
		Max: 5 * time.Millisecond}})
	require.NoError(t, err)
	defer model.Close()
	m, err := NewMirror(b, []Cable{Straight(model, 4, 3)})
	require.NoError(t, err)
	defer shut(m)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- scpi.Serve(ctx, l, model) }()
	defer func() {
		cancel()
		assert.NoError(t, <-served)
	}()
	sw, err := scpidriver.Open(ctx, driver.Target{Endpoint: l.Addr().String(),
		Ports: driver.Ports{In: []string{"5", "6", "7"}}, Tolerance: driver.Tolerance{Settle: patience}})
	require.NoError(t, err)
	defer shut(sw)
	ring := circuit.Shift(3, 1)
	if _, err := sw.Apply(ctx, driver.Change{Before: circuit.AllDark(3), After: ring, Want: driver.Status}); err != nil {
		t.Fatal(err)
	}
	all := hosts(t, s)
	for r := range all {
		all[r].send(0, all[ring[r]], 2, frame)
		all[ring[r]].expect(0, r, 2)
	}
	p := NewProber(s)
	defer shut(p)
	if ok, err := p.Probe(ctx, 0, []circuit.Pair{{From: 0, To: 1}, {From: 2, To: 0}}); err != nil || !ok[0] || !ok[1] {
		t.Errorf("tokens %v, %v", ok, err)
	}
}

// Tokens come through where circuits lead, and only there; sockets other than the prober's do not get them.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, forwarding := range []bool{false, true} {
		t.Run(map[bool]string{false: "direct", true: "ring"}[forwarding], func(t *testing.T) {
			t.Parallel()
			s := up(t, fabricFile(t, 4, 1, "100Mbps", forwarding))
			b := openBoard(t, s)
			require.NoError(t, b.Install(0, circuit.Permutation{1, 2, circuit.Dark, 3}))
			p := NewProber(s)
			defer shut(p)
			got, err := p.Probe(t.Context(), 0, []circuit.Pair{{From: 0, To: 1}, {From: 1, To: 3}, {From: 2, To: 0},
				{From: 3, To: 2}})
			if err != nil || len(got) != 4 || !got[0] || got[1] || got[2] || got[3] {
				t.Errorf("heard %v, %v; want the first only", got, err)
			}
			for r, h := range hosts(t, s) {
				st := h.Planes[0].Counters.Stats()
				if st.Forwarded+st.Dark+st.Misdirected+st.Other+st.UDP+st.Delivered+st.Transit+st.Strayed != 0 {
					t.Errorf("rank %d: %+v", r, st)
				}
			}
			for _, bad := range []circuit.Pair{{From: -1, To: 0}, {From: 0, To: 4}} {
				if _, err := p.Probe(t.Context(), 0, []circuit.Pair{bad}); err == nil {
					t.Errorf("%v probed", bad)
				}
			}
			if _, err := p.Probe(t.Context(), 1, nil); err == nil {
				t.Error("plane 1 probed")
			}
		})
	}
}

// broken is a panel that takes no circuits.
type broken struct{ state State }

func (b *broken) State() *State                          { return &b.state }
func (b *broken) Map(int) (circuit.Permutation, error)   { return nil, errBroken }
func (b *broken) Install(int, circuit.Permutation) error { return errBroken }

var errBroken = errors.New("the agent of host b does not answer")

// A mirror that cannot set its first circuits leaves nothing behind. Not parallel: it counts the process's descriptors.
func TestMirrorOfABrokenPanel(t *testing.T) {
	model, err := device.New(device.Config{Ports: 2})
	require.NoError(t, err)
	defer model.Close()
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(all)
	}
	before := descriptors()
	b := &broken{State{Ranks: 2, Planes: make([]StatePlane, 1)}}
	if m, err := NewMirror(b, []Cable{Straight(model, 0, 2)}); !errors.Is(err, errBroken) || m != nil {
		t.Errorf("%v, %v", m, err)
	}
	if after := descriptors(); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// flaky is a panel that takes circuits unless it is told not to.
type flaky struct {
	broken
	away atomic.Bool
	has  atomic.Pointer[circuit.Permutation]
}

func (f *flaky) Map(int) (circuit.Permutation, error) { return f.has.Load().Clone(), nil }

func (f *flaky) Install(_ int, m circuit.Permutation) error {
	if f.away.Load() {
		return errBroken
	}
	m = m.Clone()
	f.has.Store(&m)
	return nil
}

// A panel misses a change of the model. When the panel takes circuits again, the next reading repeats the change.
func TestMirrorOfAFlakyPanel(t *testing.T) {
	t.Parallel()
	model, err := device.New(device.Config{Ports: 2})
	require.NoError(t, err)
	defer model.Close()
	b := &flaky{broken: broken{State{Ranks: 2, Planes: make([]StatePlane, 1)}}}
	b.has.Store(&circuit.Permutation{circuit.Dark, circuit.Dark})
	d, err := NewDevice(b, []Cable{Straight(model, 0, 2)})
	require.NoError(t, err)
	defer shut(d)
	b.away.Store(true)
	require.NoError(t, model.Inject(device.Fault{Kind: device.ThirdParty, In: 0, Out: 1}))
	require.NoError(t, model.Wait(t.Context()))
	if m, err := d.Map(0); !errors.Is(err, errBroken) {
		t.Errorf("the map is %v, %v", m, err)
	}
	if _, err := d.Report(0); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	b.away.Store(false)
	if _, err := d.Report(0); !errors.Is(err, driver.ErrDrift) || errors.Is(err, errBroken) {
		t.Error(err)
	}
	if m, err := d.Map(0); err != nil || !m.Equal(circuit.Permutation{1, circuit.Dark}) {
		t.Errorf("the map is %v, %v", m, err)
	}
}

// Cables that do not fit are refused.
func TestMirrorRefuses(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 2, 2, "1Gbps", false))
	b := openBoard(t, s)
	model, err := device.New(device.Config{Ports: 4})
	require.NoError(t, err)
	defer model.Close()
	for _, c := range []struct {
		name   string
		cables []Cable
		want   string
	}{
		{"few", []Cable{Straight(model, 0, 2)}, "1 cables for 2 planes"},
		{"ranks", []Cable{Straight(model, 0, 2), Straight(model, 2, 1)}, "plane plane1: 1 ingress"},
		{"outside", []Cable{Straight(model, 0, 2), Straight(model, 3, 2)}, "plane plane1: rank 1: port[4]"},
		{"shared", []Cable{Straight(model, 0, 2), Straight(model, 1, 2)}, "plane plane1: rank 0: port 2 has another cable"},
	} {
		if m, err := NewMirror(b, c.cables); err == nil {
			shut(m)
			t.Errorf("%s: taken", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := NewDevice(b, []Cable{Straight(model, 0, 2), {}}); err == nil {
		t.Error("a plane without a model")
	}
}
