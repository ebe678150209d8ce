package gnmi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	devicegnmi "lightpath/ocsctl/device/gnmi"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/gnmi"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/plans/circuit"
)

// TestFenced: once a controller with a higher token has written, those below it write no more, in every
// dialect.
func TestFenced(t *testing.T) {
	t.Parallel()
	for _, name := range dialect.Names() {
		d := newDevice(t)
		sw := open(t, d, driver.Target{Endpoint: serve(t, d, devicegnmi.Options{Dialect: name})})
		change := driver.Change{Before: circuit.AllDark(4), After: circuit.Shift(4, 1), Token: 7, Want: driver.Status}
		if all, err := sw.Apply(t.Context(), change); err != nil {
			t.Fatalf("%s: %v, %+v", name, err, all)
		}
		revision := d.Revision()
		for _, token := range []uint64{6, 1} {
			change = driver.Change{Before: circuit.Shift(4, 1), After: circuit.Shift(4, 2), Token: token, Want: driver.Status}
			all, err := sw.Apply(t.Context(), change)
			if !errors.Is(err, driver.ErrFenced) || d.Revision() != revision {
				t.Errorf("%s: token %d: %v, table changed %d times", name, token, err, d.Revision()-revision)
			}
			for _, v := range all {
				if v.Accepted || v.Observed != change.Before[v.In] {
					t.Errorf("%s: token %d: %+v", name, token, v)
				}
			}
		}
		change.Token = 7
		if _, err := sw.Apply(t.Context(), change); err != nil {
			t.Errorf("%s: the same token again: %v", name, err)
		}
	}
}

// TestFence: a token without a change fences earlier controllers.
func TestFence(t *testing.T) {
	t.Parallel()
	for _, name := range dialect.Names() {
		d := newDevice(t)
		sw := open(t, d, driver.Target{Endpoint: serve(t, d, devicegnmi.Options{Dialect: name})})
		fencer := sw.(driver.Fencer)
		if err := fencer.Fence(t.Context(), 7); err != nil || d.Revision() != 0 {
			t.Errorf("%s: token 7: %v, table changed %d times", name, err, d.Revision())
		}
		if err := fencer.Fence(t.Context(), 6); !errors.Is(err, driver.ErrFenced) {
			t.Errorf("%s: token 6: %v", name, err)
		}
		change := driver.Change{Before: circuit.AllDark(4), After: circuit.Shift(4, 1), Token: 6, Want: driver.Status}
		if _, err := sw.Apply(t.Context(), change); !errors.Is(err, driver.ErrFenced) {
			t.Errorf("%s: a change with token 6: %v", name, err)
		}
	}
}

// TestForeignName: an entry that another writer has named as we would is not written over.
func TestForeignName(t *testing.T) {
	d := newDevice(t)
	endpoint := serve(t, d, devicegnmi.Options{Dialect: "ocp"})
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // the test is over
	words, err := dialect.Lookup("ocp")
	require.NoError(t, err)
	v := words.Vars("1-5", "4", "8")
	value, err := words.EntryValue(&words.Config, v)
	require.NoError(t, err)
	if _, err := gpb.NewGNMIClient(conn).Set(t.Context(),
		&gpb.SetRequest{Update: []*gpb.Update{{Path: words.EntryPath(&words.Config, v), Val: value}}}); err != nil {
		t.Fatal(err)
	}
	sw, err := gnmi.Open(t.Context(), driver.Target{Endpoint: endpoint, Ports: labels(d, 2)})
	require.NoError(t, err)
	defer sw.Close() //nolint:errcheck // the test is over
	_, err = sw.Apply(t.Context(), driver.Change{Before: circuit.AllDark(2), After: circuit.Shift(2, 0),
		Want: driver.Status})
	if !errors.Is(err, driver.ErrRefused) || d.Map()[3] != 3 || d.Revision() != 1 {
		t.Errorf("%v; the switch has %v", err, d.Map())
	}
}

// TestInvalidDeleted: circuits that a switch takes and then finds invalid are reported, and deleted.
func TestInvalidDeleted(t *testing.T) {
	d := newDevice(t)
	endpoint := serve(t, d, devicegnmi.Options{Dialect: "ocp", AcceptInvalid: true})
	sw := open(t, d, driver.Target{Endpoint: endpoint, Tolerance: quick})
	require.NoError(t, d.Inject(device.Fault{Kind: device.PartialBulk, Count: 1}))
	all, err := sw.Apply(t.Context(), driver.Change{Before: circuit.AllDark(4), After: circuit.Shift(4, 1), Token: 1})
	if !errors.Is(err, driver.ErrNotAsIntended) || len(all) != 4 {
		t.Fatalf("%v, %+v", err, all)
	}
	for _, v := range all[1:] {
		if v.Accepted || !strings.Contains(v.Reason, "INVALID") {
			t.Errorf("%+v", v)
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // the test is over
	table := &gpb.Path{Elem: []*gpb.PathElem{{Name: "connections"}}}
	r, err := gpb.NewGNMIClient(conn).Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{table}})
	if text := r.String(); err != nil || strings.Contains(text, "INVALID") || !strings.Contains(text, "1-6") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestClosed: a driver that was closed says so.
func TestClosed(t *testing.T) {
	d := newDevice(t)
	sw := open(t, d, driver.Target{Endpoint: serve(t, d, devicegnmi.Options{})})
	for range 2 {
		require.NoError(t, sw.Close())
	}
	if _, err := sw.Read(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestGhostAlone: a circuit that is only reported is made, so that it can be unmade.
func TestGhostAlone(t *testing.T) {
	t.Parallel()
	for _, name := range dialect.Names() {
		d := newDevice(t)
		sw := open(t, d, driver.Target{Endpoint: serve(t, d, devicegnmi.Options{Dialect: name})})
		require.NoError(t, d.Inject(device.Fault{Kind: device.GhostConnect, In: 1, Out: 2}))
		before, err := sw.Read(t.Context())
		if err != nil || before[1] != 2 {
			t.Fatalf("%s: %v, %v", name, before, err)
		}
		all, err := sw.Apply(t.Context(), driver.Change{Before: before, After: circuit.Shift(4, 3), Token: 1,
			Want: driver.Status})
		if err != nil || !d.Map().Equal(circuit.Shift(4, 3)) || len(d.Table()) != 4 {
			t.Errorf("%s: %v, %+v; the switch has %v", name, err, all, d.Table())
		}
	}
}

// TestProbe: the dialect is what the switch's models say; another that is asked for finds no ports.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, name := range dialect.Names() {
		d := newDevice(t)
		endpoint := serve(t, d, devicegnmi.Options{Dialect: name})
		info, err := open(t, d, driver.Target{Endpoint: endpoint}).Info(t.Context())
		if err != nil || info.Dialect != name || info.Model == "" || !info.CanFence {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		for _, other := range append(dialect.Names(), "polatis") {
			if other == name {
				continue
			}
			if sw, err := gnmi.Open(t.Context(), driver.Target{Endpoint: endpoint, Dialect: other,
				Ports: labels(d, 2)}); err == nil {
				t.Errorf("%s: opened as %s", name, other)
				sw.Close() //nolint:errcheck // it failed already
			}
		}
	}
}

// TestTargets: what cannot be driven is refused at once, with the reason.
func TestTargets(t *testing.T) {
	d := newDevice(t)
	endpoint := serve(t, d, devicegnmi.Options{})
	for name, c := range map[string]struct {
		target driver.Target
		want   error
	}{
		"another host, cleartext": {driver.Target{Endpoint: "192.0.2.1:9339", Ports: labels(d, 2)}, gnmi.ErrExposed},
		"a name, cleartext":       {driver.Target{Endpoint: "switch.example:9339", Ports: labels(d, 2)}, gnmi.ErrExposed},
		"no ports":                {driver.Target{Endpoint: endpoint}, gnmi.ErrPorts},
		"unknown port": {driver.Target{Endpoint: endpoint,
			Ports: driver.Ports{In: []string{"99"}, Out: []string{"5"}}}, gnmi.ErrPorts},
		"port twice": {driver.Target{Endpoint: endpoint, Ports: driver.Ports{In: []string{"1", "1"},
			Out: []string{"5", "6"}}}, gnmi.ErrPorts},
		"sides differ": {driver.Target{Endpoint: endpoint, Ports: driver.Ports{In: []string{"1", "2"},
			Out: []string{"5"}}}, gnmi.ErrPorts},
	} {
		if _, err := gnmi.Open(context.Background(), c.target); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
