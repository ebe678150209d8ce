package circuits_test

import (
	"sync"
	"testing"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
	"lightpath/shim"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

// portDevice is a table of planes that reports bad ports.
type portDevice struct {
	mu   sync.Mutex
	maps []circuit.Permutation
	bad  []error // by plane
	told func(plane int)
}

func (d *portDevice) Switch(plane int, m controller.Move) error {
	d.mu.Lock()
	d.maps[plane] = m.To.Clone()
	d.mu.Unlock()
	d.told(plane)
	return nil
}

func (d *portDevice) Map(plane int) (circuit.Permutation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.maps[plane], nil
}

func (d *portDevice) OnSettled(f func(plane int)) { d.told = f }

func (d *portDevice) Report(plane int) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "light", d.bad[plane]
}

func (d *portDevice) report(plane int, err error) {
	d.mu.Lock()
	d.bad[plane] = err
	d.mu.Unlock()
	d.told(plane)
}

// TestBadPort: ranks 0 and 1, and ranks 2 and 3, have a communicator each. A port of rank 3 fails on plane 1. The
// others use the plane as before; ranks 2 and 3 go on with plane 0, without a failed call, until the port is good
// again.
func TestBadPort(t *testing.T) {
	d := &portDevice{maps: []circuit.Permutation{circuit.AllDark(4), circuit.AllDark(4)}, bad: make([]error, 2)}
	server := shimtest.UseEmulatorOn(t, 4, 2, d, nil)
	w := shimtest.NewWorld(t, 4)
	family, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.BySplit, Color: c.Rank / 2, Key: c.Rank}
	})
	shimtest.NoErrors(t, errs)
	// carries runs calls of one communicator and reports whether plane 1 carries frames of one of them.
	carries := func(half int) bool {
		before := shimtest.FramesByPlane(t, server)
		for range 20 {
			family.Must(func(c *shim.Comm) error {
				if c != family.Children[2*half] && c != family.Children[2*half+1] {
					return nil
				}
				return shimtest.CheckSums(c)
			})
		}
		after := shimtest.FramesByPlane(t, server)
		if after[0] == before[0] {
			t.Errorf("communicator %d does not use plane 0", half)
		}
		return after[1] != before[1]
	}
	uses := func(half int, want bool) {
		t.Helper()
		if !shimtest.Eventually(func() bool { return carries(half) == want }) {
			t.Errorf("communicator %d uses plane 1: %v, want %v", half, !want, want)
		}
	}
	uses(0, true)
	uses(1, true)
	d.report(1, &controller.BadPorts{Why: map[int]string{3: "no light"}, Err: driver.ErrUnwell})
	uses(1, false)
	uses(0, true)
	if carries(1) {
		t.Error("communicator 1 uses the plane of its bad port")
	}
	s, err := server.Core().Snapshot()
	require.NoError(t, err)
	if p := s.Planes[1]; p.State == controller.Down || p.Out == nil || p.Failures != 0 {
		t.Errorf("%+v", p)
	}
	d.report(1, nil)
	uses(1, true)
	shimtest.NoLosses(t, server)
}
