package shimtest

import (
	"testing"

	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/stream"
)

// GPUsAndPorts are software devices whose memory RDMA ports reach.
type GPUsAndPorts struct {
	*GPUs
	Remote  devicetest.Remote
	Network *verbstest.Network
	Ports   []rdma.Device
}

// UseGPUDirect gives communicators of n ranks devices, and planes of RDMA ports that reach their memory.
func UseGPUDirect(t *testing.T, n, streams, planes int) *GPUsAndPorts {
	t.Helper()
	return UseGPUDirectOn(t, n, streams, planes, planes)
}

// UseGPUDirectOn is [UseGPUDirect] with a number of ports for all ranks together.
func UseGPUDirectOn(t *testing.T, n, streams, planes, ports int) *GPUsAndPorts {
	t.Helper()
	network, made := UseRDMA(t, ports, planes)
	t.Setenv("LIGHTPATH_DEVICE_PATH", "rdma")
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
	driver := devicetest.NewRemote(stream.Places(), n)
	return &GPUsAndPorts{UseDriver(t, driver.Driver, driver, n, streams), driver, network, made}
}
