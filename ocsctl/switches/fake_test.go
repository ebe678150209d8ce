package switches

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"lightpath/internal/clock"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// fake is a switch that does what it is asked and says of its ports what the test wants.
type fake struct {
	mu     sync.Mutex
	table  circuit.Permutation
	health []driver.Health // ingress ports, then egress ports
	secret int             // how many requests for its identity it still refuses
}

func newFake(ports int) *fake {
	f := &fake{table: circuit.AllDark(ports)}
	for i := range 2 * ports {
		f.health = append(f.health, driver.Health{Port: fmt.Sprint("p", i), State: "TUNED"})
	}
	return f
}

// fakePlanes are so many planes on one fake.
func fakePlanes(n int) []Plane {
	var all []Plane
	for j := range n {
		p := Plane{Name: string(rune('a' + j)), Switch: "sw"}
		for r := range ranks {
			p.Ports.In = append(p.Ports.In, fmt.Sprint("p", j*ranks+r))
			p.Ports.Out = append(p.Ports.Out, fmt.Sprint("p", (n+j)*ranks+r))
		}
		all = append(all, p)
	}
	return all
}

func (f *fake) Info(context.Context) (driver.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.secret > 0 {
		f.secret--
		return driver.Info{}, driver.ErrNoAnswer
	}
	return driver.Info{Model: "fake"}, nil
}

func (f *fake) Read(context.Context) (circuit.Permutation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.Clone(), nil
}

func (f *fake) Apply(_ context.Context, c driver.Change) ([]driver.Circuit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.table.Equal(c.Before) {
		return nil, driver.ErrDrift
	}
	var all []driver.Circuit
	for r := range c.After {
		if c.Before[r] != c.After[r] {
			to := c.After[r]
			all = append(all, driver.Circuit{In: r, Intended: to, Accepted: true, Observed: to, Verified: c.Want})
		}
	}
	f.table = c.After.Clone()
	return all, nil
}

func (f *fake) Health(context.Context) ([]driver.Health, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]driver.Health(nil), f.health...), nil
}

func (f *fake) Close() error { return nil }

// TestLooksBetweenMoves: the moves of one plane do not keep the device from looking at the other planes of its switch.
func TestLooksBetweenMoves(t *testing.T) {
	f, now := newFake(2*ranks), time.Unix(1e9, 0)
	d, err := NewManual(Config{
		Planes: fakePlanes(2), DriftInterval: time.Second,
		Open: func(context.Context, string, driver.Ports) (driver.Switch, error) { return f, nil },
	}, func() time.Time { return now })
	require.NoError(t, err)
	defer d.Close() //nolint:errcheck // it returns nil
	d.Step()
	f.health[ranks].Failed = true // port 0 of the second plane
	for k := range 50 {
		require.NoError(t, d.Switch(0, controller.Move{To: circuit.Shift(ranks, k%2)}))
		d.Step()
		now = now.Add(100 * time.Millisecond)
	}
	if _, unwell := d.Report(1); unwell == nil {
		t.Error("nothing was seen of the port that has failed")
	}
}

// unsettled is a switch with a circuit that does not come up: a driver waits for it until its time is over.
type unsettled struct {
	*fake
	settle time.Duration
}

func (u *unsettled) Apply(ctx context.Context, c driver.Change) ([]driver.Circuit, error) {
	if err := clock.Sleep(ctx, u.settle); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnknownOutcome, err)
	}
	return nil, driver.ErrNotAsIntended
}

// TestSlowVerification: a switch with a circuit that is not up is read, however long a driver waits for the circuit at
// the start.
func TestSlowVerification(t *testing.T) {
	f := newFake(ranks)
	f.table = circuit.Shift(ranks, 1)
	now := time.Unix(1e9, 0)
	d, err := NewManual(Config{
		Planes: fakePlanes(1), LookTimeout: 10 * time.Second, MoveTimeout: time.Minute,
		Open: func(context.Context, string, driver.Ports) (driver.Switch, error) {
			return &unsettled{f, 15 * time.Second}, nil
		},
	}, func() time.Time { return now })
	require.NoError(t, err)
	defer d.Close() //nolint:errcheck // it returns nil
	for end := now.Add(2 * time.Minute); now.Before(end); {
		now = d.Step()
	}
	if m, err := d.Map(0); err != nil || !m.Equal(f.table) {
		t.Errorf("%v, %v", m, err)
	}
}

// replaced is a switch at whose address another one answers from the second reading on.
type replaced struct {
	*fake
	reads int
}

func (r *replaced) Read(ctx context.Context) (circuit.Permutation, error) {
	if r.reads++; r.reads > 1 {
		return nil, driver.ErrNoAnswer
	}
	return r.fake.Read(ctx)
}

// TestReplacedSwitch: the device opens a session with the switch that has taken the place of another one, and verifies
// its circuits.
func TestReplacedSwitch(t *testing.T) {
	before, after := &replaced{fake: newFake(ranks)}, newFake(ranks)
	after.table = circuit.Shift(ranks, 1)
	sessions := []driver.Switch{before, after}
	now := time.Unix(1e9, 0)
	d, err := NewManual(Config{
		Planes: fakePlanes(1), DriftInterval: time.Second,
		Open: func(context.Context, string, driver.Ports) (driver.Switch, error) {
			sw := sessions[0]
			sessions = sessions[1:]
			return sw, nil
		},
	}, func() time.Time { return now })
	require.NoError(t, err)
	defer d.Close() //nolint:errcheck // it returns nil
	for range 20 {
		now = d.Step()
	}
	if m, err := d.Map(0); err != nil || !m.Equal(after.table) {
		t.Errorf("%v, %v", m, err)
	}
}
