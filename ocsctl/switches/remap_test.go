package switches

import (
	"strings"
	"sync"
	"testing"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// newSpareChain starts a chain of one plane on ports 0 to 3 of a switch whose ports 4 to 7 are spare.
func newSpareChain(t *testing.T, protocol string) (c *chain, spares []string) {
	r := newRigWaiting(t, calm, protocol, 2, func(c *Config) {
		for i, in := range c.Planes[1].Ports.In {
			spares = append(spares, in+"/"+c.Planes[1].Ports.Out[i])
		}
		c.Planes = c.Planes[:1]
	})
	return r.chain(func(c *chain, config *controller.Config) {
		config.Planes[0].Labels, config.Planes[0].Spares = c.dev.planes[0].labels(), spares
	}), spares
}

// TestRemap: a rank's port moves to a spare port and back, with every protocol. The other ranks notice nothing but two
// new circuits.
func TestRemap(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c, spares := newSpareChain(t, protocol)
			c.mustSet(shift(1))
			// Rank 2 cannot receive any more.
			c.inject(device.Fault{Kind: device.LostLight, In: -1, Out: 2})
			c.out(0, "light is lost", 0, 1, 2, 3)
			await.Success(t, "remap", func() error { return c.core.Remap(0, 2, spares[1], "ann") })
			c.await(0, "light", func(p controller.PlaneSnapshot) bool {
				return p.State == controller.Resident && p.Verified == "light"
			})
			want := circuit.Permutation{1, 5, circuit.Dark, 0, circuit.Dark, 3, circuit.Dark, circuit.Dark}
			if got := c.model.Map(); !got.Equal(want) || !c.model.Lit().Equal(want) {
				t.Fatalf("the switch has %v, light %v, want %v", got, c.model.Lit(), want)
			}
			ports, err := c.core.Ports(0)
			require.NoError(t, err)
			if ports[2].Label != spares[1] || ports[2].File == "" || ports[1].File != "" {
				t.Errorf("%+v", ports)
			}
			// It is a plane like others: ranks move it, and it moves back.
			c.inject(device.Fault{Kind: device.Clear})
			c.move(0, c.plane(0).Epoch, shift(2), func() {
				c.await(0, "the move", func(p controller.PlaneSnapshot) bool { return p.Map.Equal(shift(2)) })
			})
			await.Success(t, "back", func() error { return c.core.Remap(0, 2, ports[2].File, "ann") })
			c.has(0, shift(2))
			c.serves(0)
		})
	}
}

// TestRemapThatFails: the plane keeps its ports, and a set makes its circuits again.
func TestRemapThatFails(t *testing.T) {
	c, spares := newSpareChain(t, "polatis-scpi")
	c.mustSet(shift(1))
	c.inject(device.Fault{Kind: device.StuckMirror, In: -1, Out: 4})
	c.refuses("remap", c.core.Remap(0, 2, spares[0], "ann"), "port")
	ports, err := c.core.Ports(0)
	require.NoError(t, err)
	if ports[2].File != "" || strings.Contains(ports[2].Label, spares[0]) {
		t.Errorf("%+v", ports[2])
	}
	c.inject(device.Fault{Kind: device.Clear})
	c.mustSet(shift(1))
	c.has(0, shift(1))
}

// TestRemapsThatFailTogether: two planes of a switch get new ports in one change, and neither new port has light. The
// switch keeps no circuit at a new port, since the sessions for the ports of before would not see it.
func TestRemapsThatFailTogether(t *testing.T) {
	var spares []string
	r := newRigWaiting(t, calm, "polatis-scpi", 4, func(c *Config) {
		for i, in := range c.Planes[3].Ports.In {
			spares = append(spares, in+"/"+c.Planes[3].Ports.Out[i])
		}
		c.Planes = c.Planes[:3]
	})
	for j := range 2 {
		r.must(j, shift(1))
		r.inject(device.Fault{Kind: device.StuckMirror, In: -1, Out: 3*ranks + j})
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.spy.set(func(driver.Change) error {
		once.Do(func() {
			close(entered)
			<-leave
		})
		return nil
	})
	require.NoError(t, r.dev.Switch(2, controller.Move{To: shift(1)})) // the other two wait for it
	<-entered
	for j := range 2 {
		labels := r.dev.planes[j].labels()
		labels[2] = spares[j]
		m := controller.Move{From: shift(1), To: shift(1), Idle: true, Ports: labels}
		require.NoError(t, r.dev.Switch(j, m))
	}
	close(leave)
	for j := range 3 {
		r.settled(j)
	}
	for in, out := range r.model.Map() {
		if out != circuit.Dark && (in >= 3*ranks || out >= 3*ranks) {
			t.Errorf("port %d goes to %d", in, out)
		}
	}
}

// TestFadingLight: a connector becomes dirty. The plane stays in service, and the controller says which port fades.
func TestFadingLight(t *testing.T) {
	for _, protocol := range []string{"polatis-scpi", "gnmi", "netconf"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, protocol, nil)
			c.mustSet(shift(1))
			await.Until(t, "baselines", func() bool {
				ports, err := c.core.Ports(0)
				require.NoError(t, err)
				for i := range ports {
					if ports[i].Baseline == nil {
						return false
					}
				}
				return len(ports) == ranks
			})
			for range 2 { // two losses add up to more than 3 dB
				c.inject(device.Fault{Kind: device.FadingLight, In: -1, Out: 2, LossDB: 2})
			}
			p := c.await(0, "fading", func(p controller.PlaneSnapshot) bool { return p.Dim != nil })
			if p.State != controller.Resident || len(p.Dim) != 1 || p.Dim[0] != 2 {
				t.Errorf("%+v", p)
			}
			c.inject(device.Fault{Kind: device.Clear})
			c.await(0, "light", func(p controller.PlaneSnapshot) bool { return p.Dim == nil })
		})
	}
}
