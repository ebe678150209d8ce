package ocsd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
)

func TestEmulateRefuses(t *testing.T) {
	for _, c := range []struct {
		says []string
		args []string
	}{
		{[]string{"nothing to serve"}, []string{"emulate"}},
		{[]string{"this host"}, []string{"emulate", "--scpi", "0.0.0.0:0"}},
		{[]string{"preset"}, []string{"emulate", "--scpi", "127.0.0.1:0", "--preset", "magic"}},
		{[]string{"cold-boot"}, []string{"emulate", "--scpi", "127.0.0.1:0", "--cold-boot", "hot"}},
		{[]string{"fault script"}, []string{"emulate", "--scpi", "127.0.0.1:0", "--faults", "-"}},
	} {
		lightpath.Refuse(t, "[1, 1, 2, 3]", c.says, append([]string{"ocs"}, c.args...)...)
	}
}

// A fault is reported with the ports that its script names.
func TestReportedFaults(t *testing.T) {
	none := circuit.Dark
	for want, e := range map[string]device.Event{
		"reboot":                   {Note: "reboot", In: none, Out: none},
		"slow-pair, in 3":          {Note: "slow-pair", In: 3, Out: none},
		"lost-light, out 3":        {Note: "lost-light", In: none, Out: 3},
		"third-party, in 0, out 5": {Note: "third-party", In: 0, Out: 5},
	} {
		if text := describe(e); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// TestOCSEmulate sets a circuit of one model by the driver of each protocol; the other drivers see it.
func TestOCSEmulate(t *testing.T) {
	d, err := device.New(device.Config{Ports: 4, Preset: "rotor-20us"})
	require.NoError(t, err)
	defer d.Close()
	dir := t.TempDir()
	password, hosts := filepath.Join(dir, "password"), filepath.Join(dir, "known_hosts")
	require.NoError(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	addresses := make([]string, len(deviceServers))
	for i := range addresses {
		addresses[i] = "127.0.0.1:0"
	}
	listeners, err := listenAll(addresses)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- emulate(ctx, d, listeners, emulateFlags{user: "operator", passwordFile: password, knownHosts: hosts})
	}()
	clitest.Appears(t, hosts)
	fabrics := make(map[string]string)
	for i, name := range []string{"polatis-scpi", "gnmi", "netconf"} {
		fabrics[name] = filepath.Join(dir, name+".yaml")
		text := fmt.Sprintf(`
version: 1
ranks: 4
planes: [{name: p0, bandwidth: 2Gbps, ocs: sw, ports: {0: "1/5", 1: "2/6", 2: "3/7", 3: "4/8"}}]
ocs: [{name: sw, driver: %s, endpoint: "%s", reconfig: 25ms}]
`, name, listeners[i].Addr())
		require.NoError(t, os.WriteFile(fabrics[name], []byte(text), 0o600))
	}
	login := []string{"--user", "operator", "--password-file", password, "--known-hosts", hosts}
	shift := 0
	for setter := range fabrics {
		shift++
		ring := fmt.Sprintf("ring:%d", shift)
		lightpath.Succeed(t, "", append([]string{"ocs", "set", "--fabric", fabrics[setter], "--plane", "p0", "--map", ring,
			"--verify",
			"status"}, login...)...)
		if got := d.Map(); !got.Equal(circuit.Shift(4, shift)) {
			t.Errorf("%s set %s, and the switch has %v", setter, ring, got)
		}
		for reader := range fabrics {
			lightpath.Succeed(t, "", append([]string{"ocs", "drift", "--fabric", fabrics[reader], "--plane", "p0", "--map",
				ring},
				login...)...)
		}
	}
	cancel()
	assert.NoError(t, <-done)
}
