package scpi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/drivertest"
	"lightpath/ocsctl/driver/scpi"
	"lightpath/plans/circuit"
)

// deaf is what a peer answers to a query that it does not know.
type deaf int

// Answers to unknown queries.
const (
	saysError deaf = iota // in the place of the answer
	saysNothing
	hangsUp
)

// firmware stands between a driver and a model, and answers some lines otherwise.
type firmware struct {
	ident   string   // instead of the model's; "": the model's
	unknown []string // headers of queries that it does not know
	how     deaf
	noMeter int // this port number and above have no power meter: a query that names one is refused
}

// serve returns where the firmware of a model is.
func (f firmware) serve(t *testing.T, d *device.Device) string {
	model := serve(t, d)
	return drivertest.Listen(t, func(conn net.Conn) { f.session(conn, model) })
}

func (f firmware) session(conn net.Conn, model string) {
	behind, err := net.Dial("tcp", model)
	if err != nil {
		return
	}
	defer behind.Close()
	answers := bufio.NewReader(behind)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line := lines.Text()
		answer, ours := f.answer(line)
		if !ours {
			if _, err := io.WriteString(behind, line+"\n"); err != nil {
				return
			}
			if answer, err = answers.ReadString('\n'); err != nil {
				return
			}
		}
		if answer == "" && f.how == hangsUp {
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

func (f firmware) answer(line string) (answer string, ours bool) {
	refused := slices.ContainsFunc(f.unknown, func(h string) bool { return strings.Contains(line, h) })
	if f.noMeter > 0 && strings.Contains(line, "PMON") {
		for port := f.noMeter; port < f.noMeter+64; port++ {
			refused = refused || strings.Contains(strings.NewReplacer("@", ",", ")", ",").Replace(line),
				fmt.Sprintf(",%d,", port))
		}
	}
	const wrong = "-113,\"Undefined header\"\r\n"
	switch {
	case f.ident != "" && line == "*IDN?":
		return f.ident + "\r\n", true
	case !refused:
		return "", false
	case f.how == saysError, f.how == saysNothing && strings.HasSuffix(line, "SYST:ERR:ALL?"):
		return wrong, true
	}
	return "", true
}

// TestProbe: a switch is verified as far as it can, and says how far, whatever it is called.
func TestProbe(t *testing.T) {
	const ports = 6
	for name, c := range map[string]struct {
		f        firmware
		monitors device.Monitors
		level    driver.Level // of the circuit to port 0
		last     driver.Level // of that to the last port
	}{
		"all": {level: driver.Light, last: driver.Light},
		"a fifth field": {f: firmware{ident: "Polatis,N-OST-6x6,7,6.5.2.18,LTS"}, level: driver.Light,
			last: driver.Light},
		"no meters": {monitors: device.NoMonitors, level: driver.Status, last: driver.Status},
		"no meters, other name": {f: firmware{ident: "HUBER+SUHNER,6000n,7,8.1"}, monitors: device.NoMonitors,
			level: driver.Status, last: driver.Status},
		"power is an error": {f: firmware{unknown: []string{"PMON"}}, level: driver.Status, last: driver.Status},
		"power is silence": {f: firmware{unknown: []string{"PMON"}, how: saysNothing}, level: driver.Status,
			last: driver.Status},
		"power hangs up": {f: firmware{unknown: []string{"PMON"}, how: hangsUp}, level: driver.Status,
			last: driver.Status},
		"states are an error": {f: firmware{unknown: []string{"PORT:STAT"}}, level: driver.Light, last: driver.Light},
		"states are silence": {f: firmware{unknown: []string{"PORT:STAT"}, how: saysNothing}, level: driver.Light,
			last: driver.Light},
		"neither": {f: firmware{unknown: []string{"PMON", "PORT:STAT"}}, level: driver.ReadBack,
			last: driver.ReadBack},
		"the last has no meter": {f: firmware{noMeter: 2 * ports}, level: driver.Light, last: driver.Status},
		"the last, and no answer": {f: firmware{noMeter: 2 * ports, how: saysNothing}, level: driver.Light,
			last: driver.Status},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t, device.Config{Ports: ports, Preset: "palomar-ms", Monitors: c.monitors})
			d.SetAveraging(10 * time.Millisecond)
			target := driver.Target{Endpoint: c.f.serve(t, d), Ports: labels(d, ports), Timeout: hour,
				Tolerance: driver.Tolerance{Averaging: 20 * time.Millisecond}}
			if c.f.how != saysError || c.monitors == device.NoMonitors {
				target.Timeout = time.Second // the driver waits for an answer that does not come
			}
			sw, err := scpi.Open(context.Background(), target)
			require.NoError(t, err)
			closeAfter(t, sw)
			info, err := sw.Info(context20(t))
			if err != nil || info.Reaches() != max(c.level, c.last) {
				t.Fatalf("%+v reaches %v, %v", info, info.Reaches(), err)
			}
			to := circuit.Shift(ports, 0)
			verdicts, err := sw.Apply(context20(t), driver.Change{Before: circuit.AllDark(ports), After: to, Want: driver.Light})
			if err != nil || verdicts[0].Verified != c.level || verdicts[ports-1].Verified != c.last {
				t.Errorf("%v: %+v", err, verdicts)
			}
			health, err := sw.Health(context20(t))
			if err != nil || len(health) != 2*ports || health[ports].HasPower != (c.level == driver.Light) ||
				health[2*ports-1].HasPower != (c.last == driver.Light) {
				t.Errorf("%v: %+v", err, health)
			}
		})
	}
}
