package bench

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"lightpath/collectives/transport/ebpf"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/sizes"
)

// EmulatedFabric returns a fabric of equal planes on one emulated switch, whose controller listens on socket.
func EmulatedFabric(name, socket string, ranks, planes int, rate fabric.Rate, reconfig time.Duration) *fabric.Fabric {
	f := &fabric.Fabric{
		Version: fabric.Version, Name: name, Ranks: ranks, Circuits: plans.Simplex,
		OCS: []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + socket, Reconfig: reconfig}},
	}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: rate, OCS: "ocs0"})
	}
	return f
}

// OnKernel makes the planes of f planes in the kernel, under a name of this process.
func OnKernel(f *fabric.Fabric) {
	f.Name += strconv.Itoa(os.Getpid())
	for p := range f.Planes {
		f.Planes[p].Interface = f.Planes[p].Name
	}
}

// KernelPlanes builds the planes of f in the kernel, for frames with data bytes of payload. The caller calls down at
// the end. If down fails, `fabric status` lists the fabric, and the next call removes it.
func KernelPlanes(f *fabric.Fabric, data int) (s *kernel.State, down func() error, err error) {
	const ethernet = 14 // bytes of a header that an MTU does not count
	return kernel.Temporary(f, kernel.Options{MTU: data + ebpf.FrameOverhead - ethernet, Overhead: ebpf.FrameOverhead})
}

// WriteFabric writes f and the configuration of its controller into dir. It sets the path of the fabric in sw.
func WriteFabric(dir string, f *fabric.Fabric, sw *fabric.OCSD) (fabricPath, config string, err error) {
	fabricPath, config = filepath.Join(dir, "fabric.yaml"), filepath.Join(dir, "ocsd.yaml")
	sw.Version, sw.Fabric = fabric.Version, fabricPath
	return fabricPath, config, errors.Join(
		os.WriteFile(fabricPath, f.Encode(), 0o600), os.WriteFile(config, sw.Encode(), 0o600))
}

// UsedPlans returns the plans of a planner in the plan cache of a job, with their problems, by size. Digests are
// verified.
func UsedPlans(dir, planner string) ([]sizes.Sized, error) {
	c, err := cache.Open(dir)
	if err != nil {
		return nil, err
	}
	entries, err := c.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Err != nil {
			return nil, e.Err
		}
	}
	slices.SortFunc(entries, func(a, b cache.Info) int { return cmp.Compare(a.Entry.Span.Max, b.Entry.Span.Max) })
	var all []sizes.Sized
	for _, e := range entries {
		if e.Entry.Key.Planner == planner {
			all = append(all, e.Entry.Span.High)
		}
	}
	return all, nil
}
