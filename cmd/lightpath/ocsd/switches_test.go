package ocsd

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/cli/fabrictest"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// TestSwitchDevice: the controller's device from the two files moves the planes of a switch.
func TestSwitchDevice(t *testing.T) {
	model, path := fabrictest.Switch(t)
	text := clitest.Content(t, path)
	f, err := fabric.Decode([]byte(strings.Replace(text, `{0: "1", 1: "2", 2: "3", 3: "4"}`,
		`{0: "1/9", 1: "2/10", 2: "3/11", 3: "4/12"}`, 1)))
	require.NoError(t, err)
	d, err := switchDevice(f, portsOf(f), fabric.SwitchesConfig{Verify: "status", ReplyTimeout: time.Minute,
		DriftInterval: 50 * time.Millisecond}, nil, 1, nil)
	require.NoError(t, err)
	settled := make(chan int, 64)
	d.OnSettled(func(plane int) { settled <- plane })
	for plane := range 2 {
		require.NoError(t, d.Switch(plane, controller.Move{From: circuit.AllDark(4), To: circuit.Shift(4, 1+plane),
			Token: 1}))
		for {
			m, err := d.Map(plane)
			if err == nil && m.Equal(circuit.Shift(4, 1+plane)) {
				break
			}
			if !errors.Is(err, controller.ErrMoving) {
				t.Fatalf("plane %d: %v, %v", plane, m, err)
			}
			select {
			case <-settled:
			case <-time.After(60 * time.Second):
				t.Fatal("it never settles")
			}
		}
		if verified, unwell := d.Report(plane); verified != "status" || unwell != nil {
			t.Errorf("plane %d: %s, %v", plane, verified, unwell)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if got := model.Map(); !got.Equal(circuit.Permutation{1, 2, 3, 0, 6, 7, 4, 5}) {
		t.Errorf("the switch has %v", got)
	}
	// Ports of two forms on one switch, and a level that there is not.
	if f, err = fabric.Load(path); err != nil {
		t.Fatal(err)
	}
	if _, err := switchDevice(f, portsOf(f), fabric.SwitchesConfig{}, nil, 0, nil); err == nil ||
		!strings.Contains(err.Error(), "in/out") {
		t.Errorf("mixed ports: %v", err)
	}
	f.Planes[0].Spares = []string{"9/17"}
	for driver, says := range map[string]string{
		fabric.DriverGNMI:    `plane p0: port "1": driver gnmi needs the form in/out`,
		fabric.DriverPolatis: `plane p0: port "9/17"`,
	} {
		f.OCS[0].Driver = driver
		_, err := switchDevice(f, portsOf(f), fabric.SwitchesConfig{}, nil, 0, nil)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	f.OCS[0].Driver, f.Planes[0].Spares = fabric.DriverPolatis, nil
	if _, err := switchDevice(f, portsOf(f), fabric.SwitchesConfig{Verify: "prayer"}, nil, 0, nil); err == nil ||
		!strings.Contains(err.Error(), "switches.verify") {
		t.Errorf("verify: %v", err)
	}
}

// portsOf returns the ports that a fabric file gives to its planes.
func portsOf(f *fabric.Fabric) (tables [][]string) {
	for _, p := range f.Planes {
		tables = append(tables, p.Ports)
	}
	return tables
}
