package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal/etcd"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/ocsctl/controller/lead"
	"lightpath/plans/circuit"
)

const ports = journaltest.Ports

// slowDevice is a switch of one plane that moves until it is told that it has.
type slowDevice struct {
	mu     sync.Mutex
	at     circuit.Permutation
	moving bool
	token  uint64 // the highest seen
}

func (d *slowDevice) Switch(_ int, m controller.Move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.Token < d.token {
		return fmt.Errorf("token %d after %d: %w", m.Token, d.token, controller.ErrNotLeader)
	}
	d.token, d.moving = m.Token, true
	return nil
}

func (d *slowDevice) Map(int) (circuit.Permutation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moving {
		return nil, controller.ErrMoving
	}
	return d.at, nil
}

// settle ends a move, wherever.
func (d *slowDevice) settle(at circuit.Permutation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.moving = at, false
}

func (d *slowDevice) isMoving() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.moving
}

// rank is the sink of one port.
type rank struct {
	controller.Attachment
	port   int
	mu     sync.Mutex
	epoch  uint32
	at     circuit.Permutation
	fault  error
	closed error
}

func (r *rank) Changed(_ int, epochs []uint32, m circuit.Permutation, fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch, r.at, r.fault = epochs[r.port], m, fault
}

func (r *rank) Refused(int, uint64, error)    {}
func (r *rank) Granted(uint64, uint64, error) {}

func (*rank) Wanted(uint64, uint64) {}
func (r *rank) Closed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = err
}

// sees returns the rank's epoch, the fault of the plane, and why the controller left it.
func (r *rank) sees() (uint32, error, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch, r.fault, r.closed
}

// member is one controller of several.
type member struct {
	store  *etcd.Client
	runner *lead.Runner
	stop   context.CancelFunc
	ended  chan error
}

func start(t *testing.T, name, prefix, socket string, d controller.Device) *member {
	t.Helper()
	store, err := etcd.Open(t.Context(), etcd.Config{Name: name, Endpoints: []string{"unix:" + socket}, Prefix: prefix,
		Lease: 15 * time.Second}) // a busy host may stand still for some seconds
	require.NoError(t, err)
	m := &member{store: store, ended: make(chan error, 1)}
	m.runner, err = lead.New(lead.Options{Store: store, Ports: ports, Planes: 1,
		Build: func(c controller.Config) (*controller.Core, error) {
			c.Name, c.Ports, c.Planes = name, ports, []controller.PlaneConfig{{Name: "p0", Reconfig: time.Millisecond}}
			c.Device, c.SettleTimeout = d, journaltest.Patience
			return controller.Start(c)
		}})
	require.NoError(t, err)
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	go func() { m.ended <- m.runner.Run(ctx) }()
	t.Cleanup(func() {
		m.stop()
		_ = store.Close()
	})
	return m
}

// rules waits until m is in charge.
func (m *member) rules(t *testing.T) controller.Controller {
	t.Helper()
	var c controller.Controller
	await.Until(t, "a controller rules", func() bool {
		c, _ = m.runner.Controller()
		return c != nil
	})
	return c
}

// holder is the communicator of all ranks.
const holder = 7

// attachAll attaches ranks to all ports and has them post, unless the plane is where they want it. The rank of port 0
// holds the plane, or has held it when another controller ruled.
func attachAll(t *testing.T, c controller.Controller, target circuit.Permutation) []*rank {
	t.Helper()
	var all []*rank
	for p := range ports {
		r := &rank{port: p}
		o := controller.AttachOptions{Port: p, Who: fmt.Sprint("rank ", p)}
		if p == 0 {
			o.Held = []ocsctl.Lease{{Holder: holder, Mask: 1}}
		}
		a, err := c.Attach(r, o)
		if errors.Is(err, controller.ErrHeld) { // there was no controller before, or the grace time has ended
			o.Held = nil
			a, err = c.Attach(r, o)
		}
		require.NoError(t, err)
		r.Attachment = a
		all = append(all, r)
	}
	if s, err := c.Snapshot(); err != nil {
		t.Fatal(err)
	} else if len(s.Planes[0].Holders) == 0 {
		require.NoError(t, all[0].Acquire(1, ocsctl.Lease{Mask: 1, Holder: holder}))
		await.Until(t, "the plane is granted", func() bool {
			s, err := c.Snapshot()
			return err == nil && len(s.Planes[0].Holders) > 0
		})
	}
	for _, r := range all {
		if epoch, fault, _ := r.sees(); epoch == 0 && fault == nil {
			require.NoError(t, r.Post(0, 0, holder, target))
		}
	}
	return all
}

// TestKilledInTheMiddle: a controller is killed while its switch moves. The next controller finishes
// the move or finds it complete. If the map is neither the old nor the new one, it takes the plane
// out of service.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	from, to := circuit.Shift(ports, 1), circuit.Shift(ports, 2)
	partly := to.Clone()
	partly[0], partly[1] = circuit.Dark, circuit.Dark
	dir := t.TempDir()
	server, err := etcd.Open(t.Context(), etcd.Config{Name: "server", Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	for name, test := range map[string]struct {
		at     circuit.Permutation // where the device goes meanwhile
		again  bool                // it has to move again
		blocks bool
	}{
		"not moved":      {at: from, again: true},
		"moved":          {at: to},
		"moved in part":  {at: partly, again: true},
		"somewhere else": {at: circuit.Shift(ports, 3), blocks: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := "/" + strings.ReplaceAll(name, " ", "-")
			d := &slowDevice{at: from}
			a := start(t, "a", prefix, dir+"/etcd.sock", d)
			first := a.rules(t)
			ranks := attachAll(t, first, to)
			await.Until(t, "the device moves", d.isMoving)
			b := start(t, "b", prefix, dir+"/etcd.sock", d)
			journaltest.Await(t, a.store, controller.AllEvents(), func(e []controller.Event) bool { return len(e) > 0 })
			_ = a.store.Close() // without resigning
			d.settle(test.at)
			await.Until(t, "ranks are told", func() bool { _, _, closed := ranks[3].sees(); return closed != nil })
			second := b.rules(t)
			s, err := second.Snapshot()
			require.NoError(t, err)
			if test.blocks {
				if s.Planes[0].State != controller.Down || !strings.Contains(s.Planes[0].Reason, "drift") {
					t.Fatalf("a plane that is somewhere else: %+v", s.Planes[0])
				}
				return
			}
			ranks = attachAll(t, second, to)
			if test.again {
				await.Until(t, "the device moves again", func() bool {
					if _, _, closed := ranks[0].sees(); closed != nil { // a host that stood still longer than a lease lasts
						ranks = attachAll(t, b.rules(t), to)
					}
					return d.isMoving()
				})
				d.settle(to)
			}
			for p, r := range ranks {
				await.Until(t, "the switch has happened", func() bool {
					epoch, fault, _ := r.sees()
					return epoch == 1 && fault == nil
				})
				if r.mu.Lock(); !r.at.Equal(to) {
					t.Errorf("port %d: the map is %v", p, r.at)
				}
				r.mu.Unlock()
			}
			// The history is one, and tells of both.
			kinds := func(e []controller.Event) (k []controller.EventKind) {
				for _, x := range slices.Backward(e) {
					k = append(k, x.Kind)
				}
				return k
			}
			want := []controller.EventKind{controller.TookOver, controller.TookOver, controller.Switched}
			q := controller.Query{Plane: controller.AnyPlane, Kinds: []controller.EventKind{controller.TookOver,
				controller.Switched}}
			events := journaltest.Await(t, b.store, q, func(e []controller.Event) bool { return slices.Equal(kinds(e), want) })
			if events[0].Token <= events[2].Token || events[2].Who != "a" {
				t.Errorf("%+v", events)
			}
		})
	}
}

// TestHandOver: a controller that shuts down in peace hands over between two switches, and ranks
// go on with the epoch that they know; drift is found although nothing moved under the second one.
func TestHandOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := etcd.Open(t.Context(), etcd.Config{Name: "server", Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	d := &slowDevice{at: circuit.Shift(ports, 1)}
	a := start(t, "a", "", dir+"/etcd.sock", d)
	first := a.rules(t)
	ranks := attachAll(t, first, circuit.Shift(ports, 2))
	await.Until(t, "the device moves", d.isMoving)
	d.settle(circuit.Shift(ports, 2))
	await.Until(t, "epoch 1", func() bool { epoch, _, _ := ranks[0].sees(); return epoch == 1 })
	b := start(t, "b", "", dir+"/etcd.sock", d)
	await.Until(t, "b knows", func() bool { _, leader := b.runner.Controller(); return leader == "a" })
	a.stop()
	require.NoError(t, <-a.ended)
	second := b.rules(t)
	s, err := second.Snapshot()
	if err != nil || s.Planes[0].Epoch != 1 || s.Planes[0].State != controller.Resident || !s.Leader {
		t.Fatalf("%+v, %v", s, err)
	}
	b.stop()
	require.NoError(t, <-b.ended)
	d.settle(circuit.Shift(ports, 3))
	c := start(t, "c", "", dir+"/etcd.sock", d)
	if s, err = c.rules(t).Snapshot(); err != nil || s.Planes[0].State != controller.Down {
		t.Fatalf("%+v, %v", s, err)
	}
}
