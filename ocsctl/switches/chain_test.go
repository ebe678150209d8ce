package switches

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
)

// watcher is a rank's view of the planes: it only makes the test look again.
type watcher struct{ news chan struct{} }

func (w *watcher) Changed(int, []uint32, circuit.Permutation, error) { w.tell() }
func (w *watcher) Refused(int, uint64, error)                        { w.tell() }
func (w *watcher) Granted(uint64, uint64, error)                     { w.tell() }
func (*watcher) Wanted(uint64, uint64)                               {}
func (w *watcher) Closed(error)                                      { w.tell() }

func (w *watcher) tell() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// chain is all layers together: ranks, the controller, this device, a driver, a protocol, a switch.
type chain struct {
	*rig
	core  *controller.Core
	ranks []controller.Attachment
	watch *watcher
	rng   *rand.Rand
}

// newChain starts all of it, with one plane; before may give the switch circuits, and the controller a past.
func newChain(t *testing.T, protocol string, before func(*chain, *controller.Config)) *chain {
	t.Helper()
	return newRigWaiting(t, calm, protocol, 1, nil).chain(before)
}

// chain starts a controller of the rig's device, and ranks.
func (r *rig) chain(before func(*chain, *controller.Config)) *chain {
	t := r.T
	t.Helper()
	c := &chain{rig: r, watch: &watcher{make(chan struct{}, 1)}, rng: rand.New(rand.NewPCG(1, 2))}
	config := controller.Config{Ports: ranks, Device: c.dev, Token: 5, SettleTimeout: c.dev.SettleWithin()}
	for _, p := range c.dev.planes {
		config.Planes = append(config.Planes, controller.PlaneConfig{Name: p.Name, Reconfig: 5 * time.Millisecond})
	}
	if before != nil {
		before(c, &config)
	}
	core, err := controller.Start(config)
	require.NoError(t, err)
	t.Cleanup(core.Close)
	c.core = core
	for port := range ranks {
		a, err := core.Attach(c.watch, controller.AttachOptions{Port: port, Who: "test"})
		require.NoError(t, err)
		c.ranks = append(c.ranks, a)
	}
	return c
}

// plane is what the controller says of a plane.
func (c *chain) plane(j int) controller.PlaneSnapshot {
	c.Helper()
	s, err := c.core.Snapshot()
	require.NoError(c, err)
	return s.Planes[j]
}

// await waits for a condition of a plane.
func (c *chain) await(j int, what string, ok func(p controller.PlaneSnapshot) bool) controller.PlaneSnapshot {
	c.Helper()
	deadline := time.Now().Add(patience)
	for {
		p := c.plane(j)
		if ok(p) {
			return p
		}
		if time.Now().After(deadline) {
			c.Fatalf("plane %d: %s does not happen: %+v; the switch has %v, light %v", j, what, p, c.model.Map(), c.model.Lit())
		}
		select {
		case <-c.watch.news:
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// holder is the communicator that all ranks are.
const holder = 7

// move has the ranks obtain a plane and post a move of it, and calls then before they give it back.
func (c *chain) move(j int, epoch uint32, to circuit.Permutation, then func()) {
	c.Helper()
	require.NoError(c, c.ranks[0].Acquire(1, ocsctl.Lease{Mask: 1 << j, Holder: holder}))
	c.await(j, "the grant", func(p controller.PlaneSnapshot) bool {
		return len(p.Holders) > 0 || p.State == controller.Down
	})
	for _, a := range c.ranks {
		require.NoError(c, a.Post(j, epoch, holder, to))
	}
	then()
	_ = c.ranks[0].Release(1<<j, holder) // an error: it was not granted
}

// lit is the plane's part of where light goes.
func (c *chain) lit(j int) circuit.Permutation {
	own := circuit.AllDark(ranks)
	for r, to := range c.model.Lit()[j*ranks : (j+1)*ranks] {
		if to != circuit.Dark {
			own[r] = to - j*ranks
		}
	}
	return own
}

// inService holds a plane that is in service against the light.
func (c *chain) inService(j int, p controller.PlaneSnapshot) {
	c.Helper()
	if lit := c.lit(j); !lit.Equal(p.Map) {
		c.Fatalf("plane %d is in service with %v, and light goes %v", j, p.Map, lit)
	}
}

// random is a permutation that may have dark ports.
func (c *chain) random() circuit.Permutation {
	m := circuit.Permutation(c.rng.Perm(ranks))
	if c.rng.IntN(3) == 0 {
		m[c.rng.IntN(ranks)] = circuit.Dark
	}
	return m
}

// repair ends all faults and has an operator give the plane a map, as often as it takes.
func (c *chain) repair(j int) {
	c.Helper()
	c.inject(device.Fault{Kind: device.Clear})
	var to circuit.Permutation
	await.Success(c, fmt.Sprintf("set plane %d", j), func() error {
		to = c.random()
		return c.core.Set(j, to, "test")
	})
	await.Success(c, fmt.Sprintf("enable plane %d", j), func() error { return c.core.Enable(j, "test") })
	p := c.plane(j)
	if p.State == controller.Down || p.Out != nil || !p.Map.Equal(to) {
		c.Fatalf("plane %d was set to %v: %+v", j, to, p)
	}
	c.inService(j, p)
}

// TestChain: whatever the switch does, a plane is in service only while light goes where it should, an
// operation ends, and an operator brings every plane back.
func TestChain(t *testing.T) {
	const planes, rounds = 2, 24
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := newRigWaiting(t, rash, protocol, planes, nil).chain(nil)
			failed, drifted := 0, 0
			for range rounds {
				j := c.rng.IntN(planes)
				port := j*ranks + c.rng.IntN(ranks)
				switch c.rng.IntN(8) {
				case 0:
					c.inject(device.Fault{Kind: device.StuckMirror, In: port, Out: -1, Silent: c.rng.IntN(2) == 0})
				case 1:
					c.inject(device.Fault{Kind: device.PartialBulk, Count: 1, Silent: c.rng.IntN(2) == 0})
				case 2:
					c.inject(device.Fault{Kind: device.LostReply, Count: 1})
				case 3: // while nothing moves
					if c.plane(j).Map[port-j*ranks] == circuit.Dark {
						continue
					}
					c.inject(device.Fault{Kind: device.ThirdParty, In: port, Out: -1})
					drifted++
					c.await(j, "drift", func(p controller.PlaneSnapshot) bool { return p.State == controller.Down })
					c.repair(j)
					continue
				}
				before, to := c.plane(j), c.random()
				var after controller.PlaneSnapshot
				c.move(j, before.Epoch, to, func() {
					after = c.await(j, "the end of a move", func(p controller.PlaneSnapshot) bool {
						return p.Epoch == before.Epoch+1 && p.State == controller.Resident || p.State == controller.Down
					})
				})
				if after.State == controller.Resident {
					if !after.Map.Equal(to) {
						t.Fatalf("asked for %v: %+v", to, after)
					}
					c.inService(j, after)
				} else {
					failed++
				}
				c.inject(device.Fault{Kind: device.Clear})
				for k := range planes {
					if p := c.plane(k); p.State == controller.Down || p.Out != nil {
						c.repair(k)
					}
				}
			}
			t.Logf("%d moves failed, %d drifts", failed, drifted)
			if failed == 0 || drifted == 0 {
				t.Error("the faults did nothing")
			}
		})
	}
}

// TestChainFenced: a controller whose token is stale stops to rule.
func TestChainFenced(t *testing.T) {
	c := newChain(t, "gnmi", nil)
	require.NoError(t, c.core.Set(0, shift(1), "test"))
	// A controller with a higher token.
	require.NoError(t, c.dev.Switch(0, controller.Move{From: shift(1), To: shift(2), Token: 9}))
	c.settled(0)
	c.await(0, "drift", func(p controller.PlaneSnapshot) bool { return p.State == controller.Down })
	if err := c.core.Set(0, shift(3), "test"); !errors.Is(err, controller.ErrNotLeader) {
		t.Fatalf("a stale token: %v", err)
	}
	if err := c.core.Set(0, shift(3), "test"); !errors.Is(err, controller.ErrNotLeader) {
		t.Errorf("afterwards: %v", err)
	}
	if m := c.model.Map(); !m.Equal(shift(2)) {
		t.Errorf("the switch has %v", m)
	}
}

// TestChainUnreachable: a plane whose switch does not answer is out of service, with the reason, and
// others go on.
func TestChainUnreachable(t *testing.T) {
	c := newChain(t, "polatis-scpi", nil)
	c.inject(device.Fault{Kind: device.Reboot, Delay: time.Hour})
	p := c.await(0, "the loss", func(p controller.PlaneSnapshot) bool { return p.State == controller.Down })
	if p.Reason == "" {
		t.Error("no reason")
	}
	if err := c.core.Enable(0, "test"); !errors.Is(err, ocsctl.ErrUnknownMap) {
		t.Errorf("enable: %v", err)
	}
}

// TestChainTakeover: a controller died when part of a move was made. The next one finishes it from
// where the switch is, and takes nothing else for a move.
func TestChainTakeover(t *testing.T) {
	for name, c := range map[string]struct {
		found circuit.Permutation
		drift bool
	}{
		"not begun":  {shift(1), false},
		"in between": {circuit.Permutation{2, circuit.Dark, 3, circuit.Dark}, false},
		"done":       {shift(2), false},
		"another's":  {circuit.Permutation{3, circuit.Dark, 0, 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ch := newChain(t, "netconf", func(ch *chain, config *controller.Config) {
				require.NoError(t, ch.model.Replace(t.Context(), c.found, device.Bulk))
				ch.until(func() bool { m, err := ch.dev.Map(0); return err == nil && m.Equal(c.found) && !ch.model.Switching() })
				intent := &controller.Intent{Epoch: 4, To: shift(2)}
				config.Recovered = []controller.Recovered{{Epoch: 4, Map: shift(1), Intent: intent}}
				config.Before = slices.Repeat([]controller.RankBefore{controller.RankLeft}, config.Ports)
			})
			if c.drift {
				ch.await(0, "drift", func(p controller.PlaneSnapshot) bool { return p.State == controller.Down })
				ch.repair(0)
				return
			}
			p := ch.await(0, "service", func(p controller.PlaneSnapshot) bool { return p.State == controller.Resident })
			ch.inService(0, p)
			if p.Map.Equal(shift(2)) {
				return // the journal's move has happened
			}
			ch.move(0, p.Epoch, shift(2), func() {
				p = ch.await(0, "the rest of the move", func(p controller.PlaneSnapshot) bool {
					return p.Map.Equal(shift(2)) && p.State == controller.Resident
				})
			})
			ch.inService(0, p)
		})
	}
}
