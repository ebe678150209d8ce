package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"lightpath/internal/assert"
	"lightpath/shim/topology"
)

// server is a DGX A100: GPU 0 has twelve links to two switches, and GPU 1 has two to GPU 0. The others have none.
func server() *dgxa100.Server {
	s := dgxa100.New()
	for i, d := range s.Devices {
		device := d.(*dgxa100.Device)
		device.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			return nvml.PciInfo{Bus: uint32(0x07 + 8*i)}, nvml.SUCCESS
		}
		count := []int{12, 2}
		device.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			switch {
			case i >= len(count):
				return 0, nvml.ERROR_NOT_SUPPORTED
			case link < count[i]:
				return nvml.FEATURE_ENABLED, nvml.SUCCESS
			case link == 12:
				return nvml.FEATURE_DISABLED, nvml.SUCCESS
			}
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		device.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
			if i == 0 {
				return nvml.PciInfo{Bus: 0xc4 + uint32(link%2)}, nvml.SUCCESS
			}
			return nvml.PciInfo{Bus: 0x07}, nvml.SUCCESS
		}
		device.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			if i == 0 {
				return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
			}
			return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
		}
	}
	return s
}

func TestCollect(t *testing.T) {
	report, err := collect(server())
	if err != nil || len(report.Problems) != 0 {
		t.Fatalf("%v, problems %q", err, report.Problems)
	}
	if report.Driver != "550.54.15" || len(report.GPUs) != 8 {
		t.Fatalf("driver %q, %d GPUs", report.Driver, len(report.GPUs))
	}
	want := [][]topology.NVLink{
		{{Kind: "switch", PCI: "0000:c4:00.0", Links: 6}, {Kind: "switch", PCI: "0000:c5:00.0", Links: 6}},
		{{Kind: "gpu", PCI: "0000:07:00.0", Links: 2}},
		{},
	}
	for i, links := range want {
		if g := report.GPUs[i]; !slices.Equal(g.NVLinks, links) {
			t.Errorf("GPU %d: links %v, want %v", i, g.NVLinks, links)
		}
	}
	g := report.GPUs[3]
	if g.Index != 3 || g.PCI != "0000:1f:00.0" || g.MemoryBytes != 40<<30 || !strings.HasPrefix(g.UUID, "GPU-") ||
		g.Name == "" {
		t.Errorf("GPU 3 is %+v", g)
	}
}

func TestCollectPartly(t *testing.T) {
	s := server()
	s.Devices[2].(*dgxa100.Device).GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		return nvml.PciInfo{}, nvml.ERROR_GPU_IS_LOST
	}
	s.Devices[4].(*dgxa100.Device).GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
	s.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
	report, err := collect(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.GPUs) != 7 || report.GPUs[3].PCI != "0000:27:00.0" {
		t.Errorf("GPUs %v", report.GPUs)
	}
	text := strings.Join(report.Problems, "\n")
	assert.Contains(t, text, "driver version: ", "GPU 2: PCI address: ", "GPU 4: name: ")
}

func TestNoLibrary(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not installed",
		nvml.ERROR_DRIVER_NOT_LOADED: "NVML does not start",
	} {
		s := server()
		s.InitFunc = func() nvml.Return { return ret }
		if _, err := collect(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("init %d: %v, want %q", ret, err, want)
		}
	}
}
