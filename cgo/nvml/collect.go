package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"lightpath/shim/topology"
)

// collect returns the GPUs that lib knows. If queries of a GPU fail, the GPU is listed with its other properties and a
// problem.
func collect(lib nvml.Interface) (*topology.GPUReport, error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
		defer func() { _ = lib.Shutdown() }() // the process ends with it
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, errors.New("libnvidia-ml.so.1 is not installed: it comes with NVIDIA's driver")
	default:
		return nil, fmt.Errorf("NVML does not start: %w", ret)
	}
	report := &topology.GPUReport{GPUs: []topology.GPU{}}
	failed := func(what string, ret nvml.Return) bool {
		if ret == nvml.SUCCESS {
			return false
		}
		report.Problems = append(report.Problems, fmt.Sprintf("%s: %v", what, ret))
		return true
	}
	var ret nvml.Return
	if report.Driver, ret = lib.SystemGetDriverVersion(); ret != nvml.SUCCESS {
		failed("driver version", ret)
	}
	count, ret := lib.DeviceGetCount()
	failed("number of GPUs", ret)
	for i := range count {
		device, ret := lib.DeviceGetHandleByIndex(i)
		if failed(fmt.Sprintf("GPU %d", i), ret) {
			continue
		}
		if gpu, ok := describe(device, i, failed); ok {
			report.GPUs = append(report.GPUs, gpu)
		}
	}
	return report, nil
}

// describe returns the properties of one GPU. It omits a GPU without an address, which has no place in the topology.
func describe(device nvml.Device, index int, failed func(string, nvml.Return) bool) (topology.GPU, bool) {
	gpu := topology.GPU{Index: index, NUMANode: topology.Unknown, NVLinks: []topology.NVLink{}}
	what := func(field string) string { return fmt.Sprintf("GPU %d: %s", index, field) }
	pci, ret := device.GetPciInfo()
	if failed(what("PCI address"), ret) {
		return gpu, false
	}
	gpu.PCI = busID(pci)
	gpu.Name, ret = device.GetName()
	failed(what("name"), ret)
	gpu.UUID, ret = device.GetUUID()
	failed(what("UUID"), ret)
	memory, ret := device.GetMemoryInfo()
	failed(what("memory"), ret)
	gpu.MemoryBytes = memory.Total
	gpu.NVLinks, ret = links(device)
	failed(what("NVLink"), ret)
	return gpu, true
}

// links counts the active NVLinks by their remote end.
func links(device nvml.Device) ([]topology.NVLink, nvml.Return) {
	list := []topology.NVLink{}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := device.GetNvLinkState(link)
		switch {
		// A GPU may have fewer links than the maximum.
		case ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT:
			continue
		case ret != nvml.SUCCESS:
			return list, ret
		case state != nvml.FEATURE_ENABLED:
			continue
		}
		end := topology.NVLink{Kind: "other"}
		// Older drivers do not tell the remote end: the link still counts.
		if pci, ret := device.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
			end.PCI = busID(pci)
		}
		if kind, ret := device.GetNvLinkRemoteDeviceType(link); ret == nvml.SUCCESS {
			switch kind {
			case nvml.NVLINK_DEVICE_TYPE_GPU:
				end.Kind = "gpu"
			case nvml.NVLINK_DEVICE_TYPE_SWITCH:
				end.Kind = "switch"
			case nvml.NVLINK_DEVICE_TYPE_IBMNPU:
				end.Kind = "cpu"
			}
		}
		at := slices.IndexFunc(list, func(l topology.NVLink) bool { return l.Kind == end.Kind && l.PCI == end.PCI })
		if at < 0 {
			list, at = append(list, end), len(list)
		}
		list[at].Links++
	}
	slices.SortFunc(list, func(a, b topology.NVLink) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.PCI, b.PCI))
	})
	return list, nvml.SUCCESS
}

// busID returns an address as sysfs writes it, with function 0: the other functions of a GPU are its sound and USB
// controllers.
func busID(p nvml.PciInfo) string { return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device) }
