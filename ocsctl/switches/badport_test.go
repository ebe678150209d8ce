package switches

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// TestBadPort: jobs on ranks 0 and 1, and on ranks 2 and 3. Rank 3 receives no light any more. The plane is out of
// service for its job only, until light is back.
func TestBadPort(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, protocol, nil)
			pairs, half := circuit.Permutation{1, 0, 3, 2}, circuit.Permutation{-1, -1, 3, 2}
			c.mustSet(pairs)
			c.inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3})
			c.out(0, "light is lost", 2, 3)
			first := ocsctl.Lease{Mask: 1, Holder: 7, Ports: []int{0, 1}}
			second := ocsctl.Lease{Mask: 1, Holder: 8, Ports: []int{2, 3}}
			holds := func(holder uint64) {
				c.await(0, "the grant", func(p controller.PlaneSnapshot) bool {
					return len(p.Holders) == 1 && p.Holders[0].Holder == holder
				})
			}
			require.NoError(t, c.ranks[2].Acquire(1, second))
			require.NoError(t, c.ranks[0].Acquire(1, first))
			holds(7)
			for _, to := range []circuit.Permutation{half, pairs} {
				epoch := c.plane(0).Epoch
				for _, a := range c.ranks[:2] {
					require.NoError(t, a.Post(0, epoch, 7, to))
				}
				c.await(0, "a move", func(p controller.PlaneSnapshot) bool {
					return p.Epoch == epoch+1 && p.State == controller.Resident && p.Map.Equal(to) && p.Failures == 0
				})
			}
			c.out(0, "light is lost", 2, 3)
			c.refuses("enable", c.core.Enable(0, "test"), "in use")
			require.NoError(t, c.ranks[0].Release(1, 7))
			if err := c.core.Enable(0, "test"); !errors.Is(err, ocsctl.ErrPlaneDown) {
				t.Errorf("enable in the dark: %v", err)
			}
			c.inject(device.Fault{Kind: device.Clear})
			c.await(0, "light", func(p controller.PlaneSnapshot) bool { return p.Out == nil })
			c.serves(0)
			require.NoError(t, c.ranks[2].Acquire(2, second))
			holds(8)
		})
	}
}

// TestRefusedMove: a mirror of rank 3 does not follow. The move of its job fails; the plane then serves the others, and
// rank 3 again after an operator's enable.
func TestRefusedMove(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, protocol, nil)
			c.mustSet(circuit.Permutation{1, 0, -1, -1})
			c.inject(device.Fault{Kind: device.StuckMirror, In: 3, Out: -1})
			require.NoError(t, c.ranks[2].Acquire(1, ocsctl.Lease{Mask: 1, Holder: 8, Ports: []int{2, 3}}))
			epoch := c.plane(0).Epoch
			for _, a := range c.ranks[2:] {
				require.NoError(t, a.Post(0, epoch, 8, circuit.Permutation{1, 0, 3, 2}))
			}
			c.await(0, "failure", func(p controller.PlaneSnapshot) bool { return p.State == controller.Down })
			require.NoError(t, c.ranks[2].Release(1, 8))
			c.out(0, "", 2, 3)
			c.inject(device.Fault{Kind: device.Clear})
			for range 3 { // the ports wait for an operator
				c.out(0, "", 2, 3)
			}
			await.Success(t, "set", func() error { return c.core.Set(0, circuit.Permutation{1, 0, 3, 2}, "test") })
			c.serves(0)
		})
	}
}

// TestRefusedMoveTakeover: the switch refuses a circuit, and the next controller takes over. It cannot see that at the
// switch. The ports of the circuit still wait for an operator, so no job with them fails once more.
func TestRefusedMoveTakeover(t *testing.T) {
	store := journal.NewMemory("test", 0)
	rules := func(config *controller.Config) (end func()) {
		rule, err := store.Campaign(t.Context())
		require.NoError(t, err)
		config.Recovered, err = rule.Recovered(ranks, 1)
		require.NoError(t, err)
		config.Journal, config.Token, config.Grace = rule, 5+rule.Token(), 1
		return func() { require.NoError(t, rule.Resign(t.Context())) }
	}
	var end func()
	c := newChain(t, "polatis-scpi", func(_ *chain, config *controller.Config) { end = rules(config) })
	c.mustSet(circuit.Permutation{1, 0, -1, -1})
	c.inject(device.Fault{Kind: device.PartialBulk, Count: 1})
	second := ocsctl.Lease{Mask: 1, Holder: 8, Ports: []int{2, 3}}
	require.NoError(t, c.ranks[2].Acquire(1, second))
	c.await(0, "the grant", func(p controller.PlaneSnapshot) bool { return len(p.Holders) == 1 })
	epoch := c.plane(0).Epoch
	for _, a := range c.ranks[2:] {
		require.NoError(t, a.Post(0, epoch, 8, circuit.Permutation{1, 0, 3, 2}))
	}
	c.await(0, "failure", func(p controller.PlaneSnapshot) bool { return p.State == controller.Down })
	require.NoError(t, c.ranks[2].Release(1, 8))
	c.out(0, "", 2, 3)

	c.core.Close()
	end()
	c.restartAs(func(config *controller.Config) { end = rules(config) })
	for range 3 {
		c.out(0, "", 2, 3)
	}
	await.Success(t, "set", func() error { return c.core.Set(0, circuit.Permutation{1, 0, 3, 2}, "test") })
	c.serves(0)

	c.core.Close()
	end()
	c.restartAs(func(config *controller.Config) { rules(config) })
	c.await(0, "service", func(p controller.PlaneSnapshot) bool { return p.State == controller.Resident })
	c.serves(0)
}

// TestPortsOfASilentSwitch: readings do not outlive the answers of the switch.
func TestPortsOfASilentSwitch(t *testing.T) {
	f := newFake(ranks)
	var silent atomic.Bool
	r := &rig{T: t, spy: &spy{}, news: make(chan int, 64)}
	silent.Store(true)
	r.start(Config{
		Planes: fakePlanes(1), DriftInterval: 5 * time.Millisecond, Misses: 1,
		Open: func(context.Context, string, driver.Ports) (driver.Switch, error) {
			if silent.Load() {
				return nil, driver.ErrNoAnswer
			}
			return mute{f, &silent}, nil
		},
	})
	state := func(want string) {
		t.Helper()
		r.until(func() bool {
			ports := r.dev.Ports(0)
			return len(ports) == ranks && ports[1].Label == "p1/p5" && ports[1].State == want
		})
	}
	state("")
	silent.Store(false)
	state("TUNED")
	silent.Store(true)
	state("")
}

// mute is a switch that sometimes does not answer.
type mute struct {
	*fake
	silent *atomic.Bool
}

func (m mute) Read(ctx context.Context) (circuit.Permutation, error) {
	if m.silent.Load() {
		return nil, driver.ErrNoAnswer
	}
	return m.fake.Read(ctx)
}
