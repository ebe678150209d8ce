package bench

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
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

// WriteFabric writes f and the configuration of its controller into dir. It sets the path of the fabric in sw.
func WriteFabric(dir string, f *fabric.Fabric, sw *fabric.OCSD) (fabricPath, config string, err error) {
	fabricPath, config = filepath.Join(dir, "fabric.yaml"), filepath.Join(dir, "ocsd.yaml")
	sw.Version, sw.Fabric = fabric.Version, fabricPath
	return fabricPath, config, errors.Join(
		os.WriteFile(fabricPath, f.Encode(), 0o600), os.WriteFile(config, sw.Encode(), 0o600))
}

// UsedPlan is a plan that ranks have used, with its problem.
type UsedPlan struct {
	Problem *plans.Problem
	Plan    *plans.Plan
}

// UsedPlans returns the plans of a planner in the plan cache of a job, by size. Digests are verified.
func UsedPlans(dir, planner string) ([]UsedPlan, error) {
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
	var all []UsedPlan
	for _, e := range entries {
		if e.Entry.Key.Planner == planner {
			all = append(all, UsedPlan{e.Entry.Span.High.Problem, e.Entry.Span.High.Plan})
		}
	}
	return all, nil
}
