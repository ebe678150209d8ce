package main

import (
	"strings"
	"testing"

	"lightpath/shim/topology"
)

// TestGPUDirectFinding: what keeps memory of GPUs from RDMA ports, and that it is a fault only where it is asked for.
func TestGPUDirectFinding(t *testing.T) {
	gpus := []topology.GPU{{}, {}}
	ports := func(state string) []topology.RDMA {
		return []topology.RDMA{{Name: "mlx5_0", Ports: []topology.Port{{Number: 1, State: state}}}}
	}
	for _, c := range []struct {
		m        topology.Machine
		variable string
		ok       bool
		text     string
	}{
		{topology.Machine{RDMA: ports("ACTIVE")}, "", true, "no GPU"},
		{topology.Machine{RDMA: ports("ACTIVE")}, "LIGHTPATH_DEVICE_PATH=rdma", false, "no GPU"},
		{topology.Machine{GPUs: gpus, RDMA: ports("DOWN")}, "", true, "no active RDMA port"},
		{topology.Machine{GPUs: gpus}, "LIGHTPATH_DEVICE_PATH=rdma", false, "no active RDMA port"},
		{topology.Machine{GPUs: gpus, RDMA: ports("ACTIVE")}, "NCCL_NET_GDR_LEVEL=LOC", true,
			"not used: NCCL_NET_GDR_LEVEL=LOC"},
		{topology.Machine{GPUs: gpus, RDMA: ports("ACTIVE")}, "LIGHTPATH_DEVICE_PATH=staged", true,
			"not used: LIGHTPATH_DEVICE_PATH=staged"},
		{topology.Machine{GPUs: gpus, RDMA: ports("ACTIVE")}, "", true, "GPUs: 2, active ports: mlx5_0:1"},
	} {
		t.Run(c.text+" "+c.variable, func(t *testing.T) {
			if name, value, set := strings.Cut(c.variable, "="); set {
				t.Setenv(name, value)
			}
			if f := gpuDirect(&c.m); f.OK != c.ok || !strings.Contains(f.Detail, c.text) {
				t.Errorf("%+v, want %t, %q", f, c.ok, c.text)
			}
		})
	}
}
