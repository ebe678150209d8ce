package endpoints

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"lightpath/collectives/program"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
	"lightpath/shim/bootstrap"
	"lightpath/shim/settings"
)

// TestMinPiece: the slowest plane that is known decides, within limits.
func TestMinPiece(t *testing.T) {
	for _, k := range []struct {
		mbps []int
		want int64
	}{
		{[]int{0, 0}, program.DefaultMinPiece},
		{[]int{0, 1000}, 6250},
		{[]int{2500, 1000, 10000}, 6250},
		{[]int{10, 1000}, leastPiece},
		{[]int{100000, 25000}, program.DefaultMinPiece},
		{[]int{math.MaxInt}, program.DefaultMinPiece},
	} {
		var table []bootstrap.Hello
		for _, mbps := range k.mbps {
			table = append(table, bootstrap.Hello{PlaneMbps: mbps})
		}
		if got := MinPiece(table); got != k.want {
			t.Errorf("planes of %v Mb/s: pieces of %d bytes, want %d", k.mbps, got, k.want)
		}
	}
}

// TestPlaneMbps: the fabric file says the rate. The loopback interface has none.
func TestPlaneMbps(t *testing.T) {
	dir := t.TempDir()
	for name, k := range map[string]struct {
		file, addresses string
		want            int
	}{
		"planes":          {"planes: [{name: a, bandwidth: 400Mbps}, {name: b, bandwidth: 400Mbps}]", "127.0.0.1:5", 400},
		"less than 1":     {"planes: [{name: a, bandwidth: 20kbps}]", "127.0.0.1:5", 1},
		"two beside":      {circuits + "packet_planes: {bandwidth: 3Gbps}", "127.0.0.1:5,127.0.0.1:6", 1500},
		"none stated":     {circuits, "127.0.0.1:5", 0},
		"a bad file":      {"planes: []", "127.0.0.1:5", 0},
		"no file":         {"", "127.0.0.1:5", 0},
		"other addresses": {"", "192.0.2.1:5", 0},
		"no planes":       {"", "", 0},
	} {
		cfg, err := settings.Of("LIGHTPATH_PLANES", "2")
		require.NoError(t, err)
		if k.file != "" {
			cfg.Fabric = filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(cfg.Fabric, []byte("version: 1\nranks: 2\n"+k.file+"\n"), 0o600))
		}
		var fab *Fabric
		if f, err := fabric.Load(cfg.Fabric); err == nil && f.Optical() {
			fab = &Fabric{Fabric: f}
		}
		if got := PlaneMbps(cfg, fab, k.addresses); got != k.want {
			t.Errorf("%s: %d Mb/s, want %d", name, got, k.want)
		}
	}
}

// circuits are two planes of 100 Gb/s with a switch.
const circuits = `planes: [{name: a, bandwidth: 100Gbps, ocs: o}, {name: b, bandwidth: 100Gbps, ocs: o}]
ocs: [{name: o, driver: emulator, endpoint: "unix:/tmp/o.sock", reconfig: 1ms}]
`
