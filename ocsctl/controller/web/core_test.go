package web

import (
	"strings"
	"sync"
	"testing"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// instant is a switch that moves at once, unless it is stuck.
type instant struct {
	mu    sync.Mutex
	m     []circuit.Permutation
	stuck bool
}

func (d *instant) Switch(plane int, m controller.Move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stuck {
		d.m[plane] = m.To
	}
	return nil
}

func (d *instant) Map(plane int) (circuit.Permutation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.m[plane], nil
}

// deaf is a rank that listens to nothing.
type deaf struct{}

func (deaf) Changed(int, []uint32, circuit.Permutation, error) {}
func (deaf) Refused(int, uint64, error)                        {}
func (deaf) Granted(uint64, uint64, error)                     {}
func (deaf) Wanted(uint64, uint64)                             {}
func (deaf) Closed(error)                                      {}

// The page shows a real core as it shows the fake of the other tests.
func TestRealCore(t *testing.T) {
	d := &instant{m: []circuit.Permutation{circuit.Shift(2, 1), circuit.Shift(2, 1)}}
	core, err := controller.Start(controller.Config{
		Name: "ocs1", Ports: 2, Planes: []controller.PlaneConfig{{Name: "east"}, {Name: "west"}}, Device: d, Token: 7,
	})
	require.NoError(t, err)
	t.Cleanup(core.Close)
	r := newRig(t, nil, Options{Planes: []string{"east", "west"}})
	s := r.stream(t)
	r.charge.set(core, "ocs1")
	var st Status
	until := func(what string, so func() bool) {
		t.Helper()
		for !so() {
			s.next(t, "status", &st)
			if t.Failed() {
				t.Fatal(what)
			}
		}
	}
	until("in charge", func() bool { return st.Leader && st.Token == 7 && len(st.Planes) == 2 })
	var ports []controller.Attachment
	for p := range 2 {
		a, err := core.Attach(deaf{}, controller.AttachOptions{Port: p, Who: "local pid 1"})
		require.NoError(t, err)
		ports = append(ports, a)
	}
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	must(ports[0].Acquire(1, ocsctl.Lease{Mask: 3, Holder: 99}))
	must(ports[0].Post(0, st.Planes[0].Epoch, 99, circuit.Shift(2, 0)))
	until("waiting", func() bool {
		p := &st.Planes[0]
		return p.State == controller.Waiting && len(p.Missing) == 1 && p.Missing[0] == 1 &&
			strings.Contains(st.Views[0].Waiting, "ports 1") && len(st.Uses) == 1 && st.Uses[0].Holder == "0000000000000063"
	})
	epoch := st.Planes[0].Epoch
	must(ports[1].Post(0, epoch, 99, circuit.Shift(2, 0)))
	until("moved", func() bool {
		return st.Planes[0].Epoch == epoch+1 && st.Planes[0].State == controller.Resident && st.Planes[0].Posts == 2
	})
	// A mirror is stuck: the next move ends elsewhere.
	d.mu.Lock()
	d.stuck = true
	d.mu.Unlock()
	for p := range 2 {
		must(ports[p].Post(0, epoch+1, 99, circuit.Shift(2, 1)))
	}
	until("failed", func() bool {
		return st.Planes[0].State == controller.Down && st.Views[0].Cause == controller.CauseNotAsWanted &&
			st.Views[0].Advice != nil
	})
	must(core.Disable(1, "fibre work", "CN=alice"))
	until("disabled", func() bool {
		return st.Planes[1].State == controller.Down && st.Views[1].Cause == controller.CauseDisabled
	})
	for _, want := range []string{
		`lightpath_ocs_switch_seconds_count{plane="east"} 1`, `lightpath_ocs_lease_wait_seconds_count 1`,
		`lightpath_ocs_plane_posts_total{plane="east"} 4`, `lightpath_ocs_plane_failures_total{cause=`,
		`lightpath_ocs_plane_up{plane="east"} 0`, `lightpath_ocs_events_total{kind="attached"} 2`,
		`lightpath_ocs_plane_down{cause="disabled",plane="west"} 1`,
	} {
		await.Until(t, want, func() bool { _, text := r.get(t, "/metrics", nil); return strings.Contains(text, want) })
	}
}
