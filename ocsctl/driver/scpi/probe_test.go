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
	"testing/synctest"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/drivertest"
	"lightpath/ocsctl/driver/scpi"
	"lightpath/ocsctl/internal/memnet"
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

// serve returns the target of a driver whose switch has the firmware in front of a model.
func (f firmware) serve(t *testing.T, d *device.Device, ports int) driver.Target {
	model, front := memnet.Listen(), memnet.Listen()
	serveOn(t, model, d)
	drivertest.Serve(t, front, func(conn net.Conn) { f.session(conn, model) })
	return driver.Target{Endpoint: front.Addr().String(), Dial: front.Dial, Ports: labels(d, ports), Timeout: hour,
		Tolerance: driver.Tolerance{Averaging: 20 * time.Millisecond}}
}

func (f firmware) session(conn net.Conn, model memnet.Listener) {
	behind, err := model.Dial(context.Background(), "", "")
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
		noMeters bool
		level    driver.Level // of the circuit to port 0
		last     driver.Level // of that to the last port
	}{
		"all": {level: driver.Light, last: driver.Light},
		"a fifth field": {f: firmware{ident: "Polatis,N-OST-6x6,7,6.5.2.18,LTS"}, level: driver.Light,
			last: driver.Light},
		"no meters": {noMeters: true, level: driver.Status, last: driver.Status},
		"no meters, other name": {f: firmware{ident: "HUBER+SUHNER,6000n,7,8.1"}, noMeters: true,
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
			synctest.Test(t, func(t *testing.T) {
				d := newDevice(t, device.Config{Ports: ports, Preset: "palomar-ms", NoMeters: c.noMeters})
				d.SetAveraging(10 * time.Millisecond)
				reaches(t, c.f.serve(t, d, ports), ports, c.level, c.last)
			})
		})
	}
}

// reaches checks how far a driver verifies the circuits to the first port and to the last one.
func reaches(t *testing.T, target driver.Target, ports int, level, last driver.Level) {
	t.Helper()
	sw, err := scpi.Open(t.Context(), target)
	require.NoError(t, err)
	closeAfter(t, sw)
	info, err := sw.Info(t.Context())
	if err != nil || info.Reaches() != max(level, last) {
		t.Fatalf("%+v reaches %v, %v", info, info.Reaches(), err)
	}
	to := circuit.Shift(ports, 0)
	verdicts, err := sw.Apply(t.Context(), driver.Change{Before: circuit.AllDark(ports), After: to, Want: driver.Light})
	if err != nil || verdicts[0].Verified != level || verdicts[ports-1].Verified != last {
		t.Errorf("%v: %+v", err, verdicts)
	}
	health, err := sw.Health(t.Context())
	if err != nil || len(health) != 2*ports || health[ports].HasPower != (level == driver.Light) ||
		health[2*ports-1].HasPower != (last == driver.Light) {
		t.Errorf("%v: %+v", err, health)
	}
}
