package scpi_test

import (
	"context"
	"net"
	"strconv"
	"testing"

	"lightpath/ocsctl/device"
	devicescpi "lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/drivertest"
	"lightpath/ocsctl/driver/scpi"
)

// serve serves a device until the test ends.
func serve(t *testing.T, d *device.Device) (endpoint string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- devicescpi.Serve(ctx, l, d) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return l.Addr().String()
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
	o.Endpoint, o.Ports = serve(t, d), labels(d, n)
	sw, err := scpi.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return sw
}

func TestConformance(t *testing.T) {
	drivertest.Suite{Open: open}.Run(t)
}
