package fabrictest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/kernel"
)

// Kernel returns a fabric file of 4 ranks with a name of its own, and takes down what is built
// of it.
func Kernel(t *testing.T, driver, endpoint string) (file, name string) {
	t.Helper()
	name = fmt.Sprintf("test%d", os.Getpid())
	t.Cleanup(func() {
		if _, err := kernel.Down(name, true); err != nil && os.Geteuid() == 0 {
			t.Error(err)
		}
	})
	return clitest.Write(t, "fabric.yaml", fmt.Sprintf(`
version: 1
name: %s
ranks: 4
planes: [{name: p0, bandwidth: 2Gbps, ocs: sw, interface: lp0, ports: {0: "1/5", 1: "2/6", 2: "3/7", 3: "4/8"}}]
ocs: [{name: sw, driver: %s, endpoint: "%s", reconfig: 1ms}]
`, name, driver, endpoint)), name
}

// Switch serves the model of a switch with 8 ports, and writes a fabric file with two planes of
// 4 ranks on it.
func Switch(t *testing.T) (*device.Device, string) {
	t.Helper()
	d, err := device.New(device.Config{Ports: 8, Preset: "rotor-20us"})
	require.NoError(t, err)
	d.SetAveraging(0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(d.Close)
	await.Background(t, func(ctx context.Context) error { return scpi.Serve(ctx, l, d) })
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	text := fmt.Sprintf(`
version: 1
ranks: 4
planes:
  - {name: p0, bandwidth: 2Gbps, ocs: sw, ports: {0: "1", 1: "2", 2: "3", 3: "4"}}
  - {name: p1, bandwidth: 2Gbps, ocs: sw, ports: {0: "5/13", 1: "6/14", 2: "7/15", 3: "8/16"}}
ocs:
  - {name: sw, driver: polatis-scpi, endpoint: "%s", reconfig: 25ms}
`, l.Addr())
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return d, path
}
