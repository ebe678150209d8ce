package switches

import (
	"context"
	"net"
	"strconv"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	devicescpi "lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/scpi"
)

// BenchmarkMove is what the device, its driver and SCPI on this host add to the motion of a switch, which
// takes no time here: from the controller's call to the news, verified by status.
func BenchmarkMove(b *testing.B) {
	for _, planes := range []int{1, 4} {
		b.Run(strconv.Itoa(planes)+" planes", func(b *testing.B) {
			model, err := device.New(device.Config{Ports: planes * ranks, Preset: "plzt-ns"})
			require.NoError(b, err)
			defer model.Close()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			served := make(chan error, 1)
			go func() { served <- devicescpi.Serve(ctx, l, model) }()
			d, err := New(Config{
				Planes: planesOf(model, planes), Verify: driver.Status,
				Open: func(ctx context.Context, _ string, ports driver.Ports) (driver.Switch, error) {
					return scpi.Open(ctx, driver.Target{Endpoint: l.Addr().String(), Ports: ports})
				},
			})
			require.NoError(b, err)
			news := make(chan int, 2*planes)
			d.OnSettled(func(plane int) { news <- plane })
			by := 0
			for b.Loop() {
				by++
				for j := range planes {
					require.NoError(b, d.Switch(j, controller.Move{To: shift(by)}))
				}
				for range planes {
					if _, unwell := d.Report(<-news); unwell != nil {
						b.Fatal(unwell)
					}
				}
			}
			b.StopTimer()
			cancel()
			assert.NoError(b, <-served)
			assert.NoError(b, d.Close())
		})
	}
}
