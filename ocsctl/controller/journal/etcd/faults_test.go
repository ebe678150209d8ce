package etcd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/controllertest"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/plans/circuit"
)

// site is a store and a controller that reaches it through a network that fails.
type site struct {
	*testing.T
	dir    string
	server *Client
	relay  *relay
	client *Client
	rule   *leadership
}

func newSite(t *testing.T) *site {
	s := &site{T: t, dir: t.TempDir()}
	s.server = open(t, s.dir)
	s.relay = newRelay(t, s.server.conf.socket())
	s.client = open(t, "", through("a", s.relay.address))
	s.rule = lead(t, s.client)
	return s
}

// restart stops the server, calls meanwhile, and starts the server again.
func (s *site) restart(meanwhile func()) {
	s.Helper()
	_ = s.server.Close()
	meanwhile()
	s.server = open(s.T, s.dir)
}

// change moves plane 0 to an epoch and disables it. It reports whether the journal has acknowledged both.
func (s *site) change(epoch uint32) bool {
	s.Helper()
	i := intent(epoch)
	i.Epoch--
	moved := controller.Event{Kind: controller.Switched, Epoch: epoch, To: i.To, Port: -1}
	off := controller.Event{Kind: controller.Commanded, Epoch: epoch, Port: -1, Err: reason(epoch)}
	return journaltest.Intend(s.T, s.rule, i) == nil && journaltest.Record(s.T, s.rule, moved) == nil &&
		journaltest.Record(s.T, s.rule, off) == nil
}

func reason(epoch uint32) string { return "disabled by ann: " + strings.Repeat("again ", int(epoch)) }

// next ends the controller without a word, and returns the rule after it.
func (s *site) next() (*leadership, []controller.Recovered) {
	s.Helper()
	_ = s.client.Close()
	_, _ = s.server.etcd.Revoke(s.Context(), s.rule.lease) // an error: it has ended
	ctx, cancel := context.WithTimeout(s.Context(), journaltest.Patience)
	defer cancel()
	l, err := open(s.T, "", through("b", s.server.conf.socket())).Campaign(ctx)
	require.NoError(s, err)
	at, err := l.Recovered(journaltest.Ports, journaltest.Planes)
	if err != nil || at == nil {
		s.Fatal(at, err)
	}
	return l.(*leadership), at
}

// TestFaults checks that faults of etcd and of the network lose no change that the journal has acknowledged.
func TestFaults(t *testing.T) {
	t.Parallel()
	const pause = 20 * time.Millisecond
	for name, fault := range map[string]func(s *site){
		"cut connections": func(s *site) { s.relay.cut() },
		"lost requests": func(s *site) {
			s.relay.stick(there)
			time.AfterFunc(pause, func() { s.relay.cut(); s.relay.free() })
		},
		"lost answers": func(s *site) {
			s.relay.stick(back)
			time.AfterFunc(pause, func() { s.relay.cut(); s.relay.free() })
		},
		"late answers": func(s *site) {
			s.relay.stick(back)
			time.AfterFunc(pause, s.relay.free)
		},
		"a restart": func(s *site) { s.restart(func() {}) },
		"a lost lease": func(s *site) {
			if _, err := s.server.etcd.Revoke(s.Context(), s.rule.lease); err != nil {
				s.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			last := uint32(0)
			for s.change(last+1) && last < 5 {
				if last++; last == 2 {
					fault(s)
				}
			}
			if want := uint32(5); last != want && name != "a lost lease" || last < 2 {
				t.Errorf("%d changes were acknowledged", last)
			}
			_, at := s.next()
			if r := at[0]; r.Epoch < last || r.Epoch == last && !r.Map.Equal(intent(last).To) {
				t.Errorf("epoch %d was acknowledged, the next controller has %+v", last, r)
			}
			if r := at[0]; r.Disabled != reason(last) && r.Disabled != reason(last+1) {
				t.Errorf("%q was acknowledged, the next controller has %q", reason(last), r.Disabled)
			}
		})
	}
}

// TestLostWrites: etcd loses writes that it has acknowledged, as if it was restored from a backup. The controller in
// charge stops, and a rank shows the next one that the journal is behind.
func TestLostWrites(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data, backup := filepath.Join(s.dir, "data"), filepath.Join(t.TempDir(), "backup")
	replace := func(to, from string) {
		_ = os.RemoveAll(to)
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	}
	s.change(1)
	s.restart(func() { replace(backup, data) })
	if !s.change(2) || !s.change(3) {
		t.Fatal("not acknowledged")
	}
	s.restart(func() { replace(data, backup) })
	if s.change(4) || s.rule.Err() == nil {
		t.Fatal("the controller in charge goes on without its writes")
	}
	l, at := s.next()
	if at[0].Epoch != 1 {
		t.Fatalf("the writes are not lost: %+v", at[0])
	}
	panel := controllertest.NewPanel(journaltest.Ports, journaltest.Planes)
	require.NoError(t, panel.Switch(0, controller.Move{To: at[0].Map})) // the switch does not show it either
	core, err := controller.Start(controller.Config{
		Ports: journaltest.Ports, Planes: make([]controller.PlaneConfig, journaltest.Planes), Device: panel, Journal: l,
		Token: l.Token(), LastSeq: l.LastSeq(), Leading: l.Err, Recovered: at,
	})
	require.NoError(t, err)
	t.Cleanup(core.Close)
	if _, err := core.Attach(quietSink{}, controller.AttachOptions{Known: []uint32{3}}); err != nil {
		t.Fatal(err)
	}
	snapshot, err := core.Snapshot()
	if p := snapshot.Planes[0]; err != nil || p.Epoch != 3 || !strings.Contains(p.Reason, "the journal has lost changes") {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestFullStore: etcd refuses writes for want of space. The journal does not ask without a pause, and once there is
// space it writes the state of the plane, although nothing else changes.
func TestFullStore(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64
	c := open(t, t.TempDir(), func(c *Config) {
		c.OnWrite = func(_ time.Duration, err error) {
			if err != nil {
				refused.Add(1)
			}
		}
	})
	l := lead(t, c)
	if err := journaltest.Intend(t, l, intent(1)); err != nil {
		t.Fatal(err)
	}
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		all, err := c.etcd.MemberList(t.Context())
		require.NoError(t, err)
		_, err = pb.NewMaintenanceClient(c.etcd.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
			Action: action, Alarm: pb.AlarmType_NOSPACE, MemberID: all.Members[0].ID})
		require.NoError(t, err)
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	began := time.Now()
	l.Record(controller.Event{Kind: controller.Failed, Epoch: 7, Port: -1, Desired: intent(1).To}, nil)
	await.Until(t, "refusals", func() bool { return refused.Load() > 2 })
	if pause := time.Since(began); pause < time.Second/2 { // the plane and the event are refused once each before it
		t.Errorf("the third write came after %v", pause)
	}
	alarm(pb.AlarmRequest_DEACTIVATE)
	await.Until(t, "the state of the plane", func() bool { s := storedState(t, c); return s.Failed && s.Epoch == 7 })
}

// quietSink ignores what a rank is told.
type quietSink struct{ controller.Sink }

func (quietSink) Changed(int, []uint32, circuit.Permutation, error) {}
func (quietSink) Wanted(uint64, uint64)                             {}
func (quietSink) Closed(error)                                      {}
