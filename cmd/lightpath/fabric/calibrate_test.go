package fabric

import (
	"os"
	"strings"
	"testing"
	"time"

	"lightpath/bench/calibrate"
	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/cli/fabrictest"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
)

func estimate(value, spread float64) *calibrate.Estimate {
	return &calibrate.Estimate{Value: value, Low: value - spread, High: value + spread, Samples: 15}
}

// A measurement changes the file once: the new file agrees with the same measurement, and with the next one, which
// scatters.
func TestCalibrationSettles(t *testing.T) {
	const (
		head = "version: 1\nranks: 4 # four\nplanes:\n  - {name: p0, bandwidth: 1Gbps, ocs: sw}\n  - {name: p1, " +
			"bandwidth: 1Gbps, ocs: sw}\n"
		real = "version: 1\nranks: 2\nplanes: [{name: p0, bandwidth: 1Gbps, ocs: sw, ports: {0: a, 1: b}}]\n"
	)
	for _, c := range []struct {
		name, before, after string
		measured            calibrate.Result
		changes             int
	}{
		{
			"everything", head + "ocs: [{name: sw, driver: emulator, reconfig: 2ms}] # ours\n",
			strings.ReplaceAll(head, "1Gbps", "950Mbps") +
				"ocs: [{name: sw, driver: emulator, reconfig: 2ms}] # ours\ncosts: {alpha: 321us, hop: 45600ns, barrier: 457us}\n",
			calibrate.Result{AlphaUS: estimate(321.4, 9), HopUS: estimate(45.6, 3), BandwidthGbps: estimate(0.95, 0.001),
				ReconfigUS: estimate(2456.7, 30)}, 4,
		},
		{
			"bandwidth as it is", head + "ocs: [{name: sw, driver: emulator, reconfig: 2ms}]\ncosts: {alpha: 320us}\n", "",
			calibrate.Result{AlphaUS: estimate(321.4, 9), BandwidthGbps: estimate(0.975, 0.01)}, 0,
		},
		{
			"faster than it says", head + "ocs: [{name: sw, driver: emulator, reconfig: 2ms}]\n", "",
			calibrate.Result{AlphaUS: estimate(0, 0), BandwidthGbps: estimate(1.01, 0.001), ReconfigUS: estimate(1700, 30)}, 0,
		},
		{
			"a switch of its own time", real + "ocs: [{name: sw, driver: gnmi, endpoint: \"h:1\", reconfig: 25ms}]\n",
			real + "ocs: [{name: sw, driver: gnmi, endpoint: \"h:1\", reconfig: 18300us}]\n",
			calibrate.Result{AlphaUS: estimate(0, 0), BandwidthGbps: estimate(1, 0), ReconfigUS: estimate(18321, 30)}, 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := clitest.Write(t, "fabric.yaml", c.before)
			f, err := fabric.Load(path)
			require.NoError(t, err)
			report := calibration{Result: &c.measured}
			report.propose(f)
			if len(report.Changes) != c.changes {
				t.Errorf("changes %+v, want %d", report.Changes, c.changes)
			}
			if c.changes == 0 {
				return
			}
			if err := report.write(path, f); err != nil || !report.Written {
				t.Fatal(err)
			}
			if got := clitest.Content(t, path); got != c.after {
				t.Errorf("wrote\n%s\nwant\n%s", got, c.after)
			}
			if f, err = fabric.Load(path); err != nil {
				t.Fatal(err)
			}
			for _, scale := range []float64{1, 0.99, 1.01} {
				again := c.measured
				for _, e := range []**calibrate.Estimate{&again.AlphaUS, &again.HopUS, &again.BandwidthGbps, &again.ReconfigUS} {
					if *e != nil {
						*e = estimate((*e).Value*scale, ((*e).High-(*e).Low)/2)
					}
				}
				next := calibration{Result: &again}
				if next.propose(f); len(next.Changes) > 0 {
					t.Errorf("measured again, times %v: %+v", scale, next.Changes)
				}
			}
		})
	}
}

// The command does not write a file that an operator edits during the measurement.
func TestCalibrationSparesAnEditedFile(t *testing.T) {
	const text = "version: 1\nranks: 4\nplanes: [{name: p0, bandwidth: 1Gbps, ocs: o}]\nocs: [{name: o, driver: " +
		"emulator, reconfig: 1ms}]\n"
	path := clitest.Write(t, "fabric.yaml", text)
	f, err := fabric.Load(path)
	require.NoError(t, err)
	report := calibration{Result: &calibrate.Result{AlphaUS: estimate(300, 1), BandwidthGbps: estimate(1, 0)}}
	report.propose(f)
	edited := strings.Replace(text, "ranks: 4", "ranks: 5", 1)
	require.NoError(t, os.WriteFile(path, []byte(edited), 0o600))
	if err := report.write(path, f); err == nil || !strings.Contains(err.Error(), "changed meanwhile") ||
		clitest.Content(t, path) != edited {
		t.Errorf("%v\n%s", err, clitest.Content(t, path))
	}
}

func TestCalibrateRefuses(t *testing.T) {
	lightpath.Refuse(t, "", []string{"--fabric is required"}, "fabric", "calibrate")
	lightpath.Refuse(t, "", []string{"no such file"}, "fabric", "calibrate", "--fabric", "/nowhere")
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	file, _ := fabrictest.Kernel(t, "emulator", "unix:/nowhere")
	if o := lightpath.Run(t, "", "fabric", "calibrate", "--fabric", file); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "not up") {
		t.Errorf("of a fabric that is not up: %+v", o)
	}
	changed := clitest.Write(t, "changed.yaml", strings.Replace(clitest.Content(t, file), "1ms", "2ms", 1))
	lightpath.Succeed(t, "", "fabric", "up", "--fabric", file)
	if o := lightpath.Run(t, "", "fabric", "calibrate", "--fabric", changed); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "down first") {
		t.Errorf("of a fabric that has changed: %+v", o)
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 1234.5: 1230, 0.0123456: 0.0123, 99.96: 100} {
		if got := calibrate.Digits(v); got != want {
			t.Errorf("%v is %v, want %v", v, got, want)
		}
	}
	if time.Duration(calibrate.Digits(456.7)*1e3) != 457*time.Microsecond {
		t.Error("of microseconds")
	}
}
