package gnmi_test

import (
	"cmp"
	"context"
	"net"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	devicegnmi "lightpath/ocsctl/device/gnmi"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/drivertest"
	"lightpath/ocsctl/driver/gnmi"
	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/plans/circuit"
)

// newDevice returns a quick switch.
func newDevice(t *testing.T) *device.Device {
	t.Helper()
	d, err := device.New(device.Config{Ports: 4, Delays: &device.Delays{Min: 5 * time.Millisecond,
		Max: 5 * time.Millisecond}})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// open opens a driver of all ports of a device.
func open(t *testing.T, d *device.Device, target driver.Target) driver.Switch {
	t.Helper()
	target.Ports, target.Timeout = labels(d, d.Ports()), cmp.Or(target.Timeout, 30*time.Second)
	target.Tolerance.Settle = cmp.Or(target.Tolerance.Settle, 30*time.Second)
	sw, err := gnmi.Open(t.Context(), target)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
	})
	return sw
}

// serve serves a device on a port of this host until the test ends.
func serve(t testing.TB, d *device.Device, o devicegnmi.Options) (endpoint string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveOn(t, l, d, o)
	return l.Addr().String()
}

func serveOn(t testing.TB, l net.Listener, d *device.Device, o devicegnmi.Options) {
	t.Helper()
	await.Background(t, func(ctx context.Context) error { return devicegnmi.Serve(ctx, l, d, o) })
}

// labels are those of the first n ports of a switch.
func labels(d *device.Device, n int) driver.Ports {
	var p driver.Ports
	for r := range n {
		p.In = append(p.In, d.Label(r, device.Ingress))
		p.Out = append(p.Out, d.Label(r, device.Egress))
	}
	return p
}

func TestConformance(t *testing.T) {
	for _, name := range dialect.Names() {
		for _, acceptInvalid := range []bool{false, true} {
			if acceptInvalid && name != "ocp" {
				continue
			}
			title := name
			if acceptInvalid {
				title += ", accepts and then finds invalid"
			}
			t.Run(title, func(t *testing.T) {
				drivertest.Suite{
					Serve: func(t *testing.T, l net.Listener, d *device.Device, n int) driver.Target {
						serveOn(t, l, d, devicegnmi.Options{Dialect: name, AcceptInvalid: acceptInvalid})
						return driver.Target{Ports: labels(d, n)}
					},
					Open: gnmi.Open,
				}.Run(t)
			})
		}
	}
}

// BenchmarkApply is a change of a whole map of 192 ports of a switch that takes no time. It includes the read before,
// the subscription, and the read-back.
func BenchmarkApply(b *testing.B) {
	const ports = 192
	for _, name := range dialect.Names() {
		b.Run(name, func(b *testing.B) {
			d, err := device.New(device.Config{Ports: ports, Preset: "plzt-ns"})
			require.NoError(b, err)
			defer d.Close()
			sw, err := gnmi.Open(b.Context(), driver.Target{Endpoint: serve(b, d, devicegnmi.Options{Dialect: name}),
				Ports: labels(d, ports)})
			require.NoError(b, err)
			defer sw.Close() //nolint:errcheck // only measured
			before := circuit.AllDark(ports)
			for i := range b.N {
				after := circuit.Shift(ports, i)
				if all, err := sw.Apply(b.Context(), driver.Change{Before: before, After: after, Want: driver.Status,
					Token: 1}); err != nil {
					b.Fatalf("%v, %+v", err, all)
				}
				before = after
			}
		})
	}
}
