package scpi_test

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"testing"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	devicescpi "lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/drivertest"
	"lightpath/ocsctl/driver/scpi"
	"lightpath/plans/circuit"
)

// serve serves a device on a port of this host until the test ends.
func serve(t testing.TB, d *device.Device) (endpoint string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveOn(t, l, d)
	return l.Addr().String()
}

func serveOn(t testing.TB, l net.Listener, d *device.Device) {
	t.Helper()
	await.Background(t, func(ctx context.Context) error { return devicescpi.Serve(ctx, l, d) })
}

// labels are the numbers of the first n ports of a switch.
func labels(d *device.Device, n int) driver.Ports {
	var p driver.Ports
	for r := range n {
		p.In = append(p.In, strconv.Itoa(1+r))
		p.Out = append(p.Out, strconv.Itoa(1+d.Ports()+r))
	}
	return p
}

func open(t *testing.T, d *device.Device, n int, o driver.Target) driver.Switch {
	t.Helper()
	o.Endpoint, o.Ports, o.Timeout = serve(t, d), labels(d, n), cmp.Or(o.Timeout, hour)
	o.Tolerance.Settle = cmp.Or(o.Tolerance.Settle, hour)
	sw, err := scpi.Open(context.Background(), o)
	require.NoError(t, err)
	return sw
}

func TestConformance(t *testing.T) {
	drivertest.Suite{
		Serve: func(t *testing.T, l net.Listener, d *device.Device, n int) driver.Target {
			serveOn(t, l, d)
			return driver.Target{Ports: labels(d, n)}
		},
		Open: scpi.Open,
	}.Run(t)
}

// BenchmarkApply is what control and read-back add to the motion of a switch, on this host.
func BenchmarkApply(b *testing.B) {
	d, err := device.New(device.Config{Ports: 16, Preset: "plzt-ns"})
	require.NoError(b, err)
	b.Cleanup(d.Close)
	sw, err := scpi.Open(b.Context(), driver.Target{Endpoint: serve(b, d), Ports: labels(d, 16)})
	require.NoError(b, err)
	at, to := circuit.AllDark(16), circuit.Shift(16, 1)
	for b.Loop() {
		if _, err := sw.Apply(b.Context(), driver.Change{Before: at, After: to, Want: driver.Status}); err != nil {
			b.Fatal(err)
		}
		at, to = to, circuit.Shift(16, 1+to[1]%15)
	}
	require.NoError(b, sw.Close())
}
