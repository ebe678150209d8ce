package controller

import (
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// meteredDevice reports ports with their power.
type meteredDevice struct {
	*timedDevice
	ports []PortState
}

func (d *meteredDevice) Ports(int) []PortState { return append([]PortState(nil), d.ports...) }
func (d *meteredDevice) Unlit(int) []int       { return nil }

// power has the switch read a power at a port.
func (d *meteredDevice) power(port int, dbm float64) {
	d.ports[port].DBm = &dbm
	d.news(0)
}

// newMeteredRig makes a controller of one plane whose ports have labels 1, 2, ... and the spares 9 and 10.
func newMeteredRig(t *testing.T, change func(c *Config)) (*testRig, *meteredDevice) {
	var d *meteredDevice
	r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		d = &meteredDevice{r.timed, []PortState{{Label: "1"}, {Label: "2"}}}
		c.Device = d
		c.Planes[0].Labels, c.Planes[0].Spares = []string{"1", "2"}, []string{"9", "10"}
		if change != nil {
			change(c)
		}
	})
	return r, d
}

func (d *meteredDevice) dim(t *testing.T, r *testRig, want ...int) {
	t.Helper()
	if got := r.plane(0).Dim; len(got) != len(want) || len(want) > 0 && got[0] != want[0] {
		t.Fatalf("dim: %v, want %v", got, want)
	}
}

func TestFadingPort(t *testing.T) {
	r, d := newMeteredRig(t, nil)
	baseline := func(port int) float64 {
		all, err := r.core.Ports(0)
		require.NoError(t, err)
		if all[port].Baseline == nil {
			t.Fatalf("%+v", all[port])
		}
		return *all[port].Baseline
	}
	d.power(0, -2) // the first reading
	if b := baseline(0); b != -2 {
		t.Fatal(b)
	}
	d.power(0, -4.9)
	d.dim(t, r)
	d.power(0, -5.1)
	d.dim(t, r, 0)
	if p := r.plane(0); p.State != Resident {
		t.Errorf("out of service: %+v", p)
	}
	d.power(0, -4.9) // not clearly above the limit
	d.dim(t, r, 0)
	d.power(0, -4.4)
	d.dim(t, r)
	// An operator takes the present power, with a drop of its own.
	set := func(drop float64, ports ...int) error {
		return *r.ask(func(m *machine, done func(error), now int64) { m.setBaseline(0, ports, drop, "ann", done, now) })
	}
	want(t, "no reading", set(0, 1), ErrNoPower, "port 1")
	d.power(0, -6)
	d.dim(t, r, 0)
	require.NoError(t, set(1, 0))
	d.dim(t, r)
	d.power(0, -7.1)
	d.dim(t, r, 0)
	if b := baseline(0); b != -6 {
		t.Error(b)
	}
	// All ports that are measured.
	d.power(1, -3)
	d.power(1, -3.5)
	require.NoError(t, set(0))
	if b, other := baseline(0), baseline(1); b != -7.1 || other != -3.5 {
		t.Error(b, other)
	}
}

func TestBaselinesOutliveTheController(t *testing.T) {
	r, d := newMeteredRig(t, func(c *Config) {
		c.Recovered = []Recovered{{Epoch: 5, Map: circuit.Shift(2, 1), Baselines: map[int]Baseline{0: {DBm: -2, Drop: 1}}}}
	})
	d.power(0, -3.5)
	d.dim(t, r, 0)
}

func TestRemap(t *testing.T) {
	r, d := newMeteredRig(t, nil)
	remap := func(port int, to string) *error {
		return r.ask(func(m *machine, done func(error), now int64) { m.remap(0, port, to, "ann", done, now) })
	}
	want(t, "no spare", *remap(1, "7"), ErrNoSpare, "spares [9 10]")
	want(t, "taken", *remap(1, "1"), ErrNoSpare, "port 0 has it")
	r.hold(1)
	want(t, "in use", *remap(1, "9"), ErrHeld)
	r.release(1)
	d.power(1, -2)
	settle := func() {
		t.Helper()
		r.pass(time.Second)
		d.news(0)
	}
	moved := remap(1, "9")
	settle()
	require.NoError(t, *moved)
	m := r.dev.moves[len(r.dev.moves)-1]
	if len(m.Ports) != 2 || m.Ports[0] != "1" || m.Ports[1] != "9" || !m.To.Equal(circuit.Shift(2, 1)) {
		t.Errorf("%+v", m)
	}
	moved = remap(0, "9")
	want(t, "taken", *moved, ErrNoSpare, "port 1 has it")
	back := remap(1, "2")
	settle()
	require.NoError(t, *back)
	// A move that fails changes no port.
	r.dev.refuse[0] = true
	want(t, "refused", *remap(1, "10"), ocsctl.ErrReconfFailed, "refuses")
	if table := PortTable([]string{"1", "2"}, r.core.machine.planes[0].moved); table[1] != "2" {
		t.Error(table)
	}
	// The fabric file names another port by now: it counts.
	if table := PortTable([]string{"1", "8"}, map[int]Moved{1: {"2", "9"}}); table[1] != "8" {
		t.Error(table)
	}
	if table := PortTable([]string{"9", "2"}, map[int]Moved{1: {"2", "9"}}); table[1] != "2" {
		t.Error(table)
	}
}
