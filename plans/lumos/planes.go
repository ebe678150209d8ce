package lumos

import (
	"fmt"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// PlaneName returns the name of OCS k of group h in files.
func PlaneName(h, k int) string { return fmt.Sprintf("g%do%d", h, k) }

// Planes selects the OCSes that become planes of a fabric file, and holds the file's values for them.
type Planes struct {
	Groups    []int // all their OCSes; at most as many planes as a fabric may have
	Bandwidth fabric.Rate
	Endpoint  string // of the emulated switch
	Reconfig  time.Duration
}

// File returns the fabric file whose ranks are the pods and whose planes are OCSes, by group and
// number: what plans, the shim and the controller know as interleaved planes.
func (p Planes) File(f Fabric) (*fabric.Fabric, error) {
	if err := p.check(f); err != nil {
		return nil, err
	}
	file := &fabric.Fabric{
		Version: fabric.Version, Name: "lumos", Ranks: f.Pods, Circuits: plans.Interleaved, Forwarding: true,
		OCS: []fabric.OCS{{Name: "core", Driver: fabric.DriverEmulator, Endpoint: p.Endpoint, Reconfig: p.Reconfig}},
	}
	for _, h := range p.Groups {
		for k := range f.KSpine {
			file.Planes = append(file.Planes, fabric.Plane{Name: PlaneName(h, k), Bandwidth: p.Bandwidth, OCS: "core"})
		}
	}
	return file, nil
}

// Maps returns the map of every plane of the file.
func (p Planes) Maps(c *Configuration) []circuit.Permutation {
	var all []circuit.Permutation
	for _, h := range p.Groups {
		for k := range c.Fabric.KSpine {
			all = append(all, c.Map(h, k))
		}
	}
	return all
}

func (p Planes) check(f Fabric) error {
	if err := f.Validate(); err != nil {
		return err
	}
	seen := map[int]bool{}
	for _, h := range p.Groups {
		if h < 0 || h >= f.Spines() || seen[h] {
			return fmt.Errorf("%w: groups: %d is none of 0..%d, or named twice", ErrInput, h, f.Spines()-1)
		}
		seen[h] = true
	}
	if n := len(p.Groups) * f.KSpine; n == 0 || n > plans.MaxPlanes {
		return fmt.Errorf("%w: groups: %d of %d OCSes are %d planes, and a fabric file holds 1 to %d", ErrInput,
			len(p.Groups), f.KSpine, n, plans.MaxPlanes)
	}
	return nil
}
