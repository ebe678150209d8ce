package switches

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
)

// out waits until the controller has exactly these ports of a plane out of service, for reasons of which one says text.
// The plane serves the others.
func (c *chain) out(j int, text string, ports ...int) {
	c.Helper()
	p := c.await(j, "ports out of service", func(p controller.PlaneSnapshot) bool {
		var out []int
		for _, o := range p.Out {
			out = append(out, o.Port)
		}
		return slices.Equal(out, ports) && p.State == controller.Resident
	})
	if !slices.ContainsFunc(p.Out, func(o controller.PortOut) bool { return strings.Contains(o.Why, text) }) {
		c.Fatalf("plane %d: %+v, want %q", j, p.Out, text)
	}
}

// refuses has an operator's command fail for a reason that says text.
func (c *chain) refuses(what string, err error, text string) {
	c.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		c.Fatalf("%s: %v, want %q", what, err, text)
	}
}

// serves expects a plane in service whose light goes where its map says, verified by it.
func (c *chain) serves(j int) {
	c.Helper()
	p := c.plane(j)
	if p.State != controller.Resident || p.Verified != "light" || p.Unlit != nil || p.Out != nil {
		c.Fatalf("plane %d: %+v", j, p)
	}
	c.inService(j, p)
}

// TestLostLight: a controller notices the loss of light after any order. No order puts the ports of the circuit into
// service until light is back.
func TestLostLight(t *testing.T) {
	fewer := circuit.Permutation{1, circuit.Dark, 3, 0} // shift(1) without the circuit of rank 1
	for name, before := range map[string]func(*chain){
		"a set":                    func(*chain) {},
		"a set of what is there":   func(c *chain) { c.mustSet(shift(1)) },
		"a set that only removes":  func(c *chain) { c.mustSet(fewer) },
		"enable":                   func(c *chain) { c.mustEnable() },
		"a restart":                func(c *chain) { c.restart(shift(1)) },
		"a restart without memory": func(c *chain) { c.restart(nil) },
	} {
		for _, protocol := range []string{"polatis-scpi", "gnmi", "netconf"} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				c := newChain(t, protocol, nil)
				c.mustSet(shift(1))
				before(c)
				c.serves(0)
				at, out := c.plane(0).Map, []int{0, 1, 2, 3} // 0 sends to 1 and so on; all circuits of 2 and 3 stay
				if at[1] == circuit.Dark {
					out = []int{0, 2, 3}
				}
				c.inject(device.Fault{Kind: device.LostLight, In: -1, Out: at[2]})
				c.out(0, "light is lost", out...)
				if p := c.plane(0); !slices.Equal(p.Unlit, []int{2}) {
					t.Errorf("without light: ranks %v", p.Unlit)
				}
				for range 2 { // the second try fails for the same reason
					c.refuses("set of what is there", c.core.Set(0, at, "test"), "no light")
					c.out(0, "light", out...)
				}
				keeps := circuit.Permutation{circuit.Dark, circuit.Dark, at[2], circuit.Dark}
				c.refuses("set that keeps the dark circuit", c.core.Set(0, keeps, "test"), "no light")
				c.refuses("enable", c.core.Enable(0, "test"), "")
				c.inject(device.Fault{Kind: device.Clear})
				c.mustSet(at)
				c.serves(0)
			})
		}
	}
}

// TestKeptDarkCircuit: ranks' moves verify the circuits that they keep.
func TestKeptDarkCircuit(t *testing.T) {
	onlyMovesLook := func(c *Config) { c.DriftInterval = time.Hour }
	c := newRigWaiting(t, calm, "polatis-scpi", 1, onlyMovesLook).chain(nil)
	c.mustSet(shift(1))
	c.inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3})
	to := circuit.Permutation{2, 1, 3, 0} // keeps the circuits of ranks 2 and 3
	c.move(0, c.plane(0).Epoch, to, func() {
		c.await(0, "failure", func(p controller.PlaneSnapshot) bool { return strings.Contains(p.Reason, "light is lost") })
	})
	c.out(0, "light is lost", 0, 2, 3)
}

// TestEnableVerifies: enable looks anew, and changes nothing.
func TestEnableVerifies(t *testing.T) {
	c := newChain(t, "polatis-scpi", nil)
	c.mustSet(shift(1))
	require.NoError(t, c.core.Disable(0, "fibre work", "test"))
	c.inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3})
	c.refuses("enable in the dark", c.core.Enable(0, "test"), "light")
	revision := c.model.Revision()
	c.refuses("enable in the dark", c.core.Enable(0, "test"), "light")
	if c.model.Revision() != revision {
		t.Error("enable has changed the switch")
	}
	c.inject(device.Fault{Kind: device.Clear})
	c.mustEnable()
	c.serves(0)
}

// TestStartInTheDark: a controller that starts while a circuit is dark does not put its ports into service.
func TestStartInTheDark(t *testing.T) {
	for name, recorded := range map[string]circuit.Permutation{"with a record": shift(1), "without": nil} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t, "polatis-scpi", nil)
			c.mustSet(shift(1))
			c.inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3})
			c.restart(recorded)
			c.out(0, "light", 0, 1, 2, 3)
			c.refuses("enable", c.core.Enable(0, "test"), "light")
			c.inject(device.Fault{Kind: device.Clear})
			c.mustEnable()
			c.serves(0)
		})
	}
}

func (c *chain) mustSet(m circuit.Permutation) {
	c.Helper()
	// The meters may average over the dark.
	await.Success(c, "set", func() error { return c.core.Set(0, m, "test") })
}

func (c *chain) mustEnable() {
	c.Helper()
	await.Success(c, "enable", func() error { return c.core.Enable(0, "test") })
}

// restart ends the controller and its device, and starts the next ones; recorded is the map that the journal
// has, nil: it has none.
func (c *chain) restart(recorded circuit.Permutation) {
	c.Helper()
	c.restartAs(func(config *controller.Config) {
		config.Token = 9
		if recorded != nil {
			config.Recovered, config.Grace = []controller.Recovered{{Epoch: 7, Map: recorded}}, 1
		}
	})
}

// restartAs ends the controller and its device, and starts the next ones with a changed configuration.
func (c *chain) restartAs(change func(*controller.Config)) {
	c.Helper()
	c.core.Close()
	require.NoError(c, c.dev.Close())
	c.start(c.dev.cfg)
	config := controller.Config{
		Ports: ranks, Device: c.dev, SettleTimeout: c.dev.SettleWithin(), Planes: []controller.PlaneConfig{{Name: "a"}},
	}
	change(&config)
	core, err := controller.Start(config)
	require.NoError(c, err)
	c.Cleanup(core.Close)
	c.core = core
}
