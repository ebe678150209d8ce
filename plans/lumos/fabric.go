package lumos

import (
	"errors"
	"fmt"
)

// ErrInput is wrapped by every error about arguments.
var ErrInput = errors.New("bad input")

// Fabric is the size of a cluster. Leaves are numbered pod by pod, GPUs leaf by leaf; pods, leaves,
// spines (h), switches of a group (k) and their ports all count from 0. It is a value, checked
// by [Fabric.Validate] and by every function that takes one.
type Fabric struct {
	Pods   int `json:"pods"`    // P, at most KOCS
	KLeaf  int `json:"k_leaf"`  // ports of a leaf to GPUs, and as many to spines; even
	KSpine int `json:"k_spine"` // ports of a spine to leaves, and as many to the core; even
	Tau    int `json:"tau"`     // links between a leaf and a spine of its pod: 1 or 2
	KOCS   int `json:"k_ocs"`   // ports of an OCS in each direction
}

// Limits of a fabric, far above what can be built.
const (
	MaxPorts = 4096    // of any switch
	maxLinks = 1 << 24 // from leaves to spines, in all pods
)

// Validate names the first field that no cluster can have.
func (f Fabric) Validate() error {
	if err := f.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	return nil
}

func (f Fabric) check() error {
	for _, p := range []struct {
		name  string
		ports int
	}{{"k_leaf", f.KLeaf}, {"k_spine", f.KSpine}} {
		switch {
		case p.ports < 2 || p.ports > MaxPorts:
			return fmt.Errorf("%s: %d is not from 2 to %d", p.name, p.ports, MaxPorts)
		case p.ports%2 != 0:
			return fmt.Errorf("%s: %d is odd; ports are wired in pairs", p.name, p.ports)
		}
	}
	switch {
	case f.Tau != 1 && f.Tau != 2:
		return fmt.Errorf("tau: %d is neither 1 nor 2", f.Tau)
	case f.KOCS < 1 || f.KOCS > MaxPorts:
		return fmt.Errorf("k_ocs: %d is not from 1 to %d", f.KOCS, MaxPorts)
	case f.Pods < 1 || f.Pods > f.KOCS:
		return fmt.Errorf("pods: %d is not from 1 to k_ocs, %d: every pod has a port on every OCS", f.Pods, f.KOCS)
	case f.Pods*f.leavesPerPod()*f.KLeaf > maxLinks:
		return fmt.Errorf("pods: %d of %d GPUs are more than %d GPUs", f.Pods, f.gpusPerPod(), maxLinks)
	}
	return nil
}

// leavesPerPod returns K_spine / tau.
func (f Fabric) leavesPerPod() int { return f.KSpine / f.Tau }

// Spines returns the spines of a pod, K_leaf / tau, which is also the number of groups of OCSes.
func (f Fabric) Spines() int { return f.KLeaf / f.Tau }

// Leaves returns the leaves of all pods.
func (f Fabric) Leaves() int { return f.Pods * f.leavesPerPod() }

// gpusPerPod returns K_spine x K_leaf / tau.
func (f Fabric) gpusPerPod() int { return f.leavesPerPod() * f.KLeaf }

// GPUs returns the GPUs of all pods.
func (f Fabric) GPUs() int { return f.Pods * f.gpusPerPod() }

// ocses returns the switches of the core, K_spine in each group.
func (f Fabric) ocses() int { return f.Spines() * f.KSpine }

// Pairs returns the number of pairs of OCSes of a group. The second OCS of a pair mirrors the first.
func (f Fabric) Pairs() int { return f.KSpine / 2 }

// Pod returns the pod of a leaf.
func (f Fabric) Pod(leaf int) int { return leaf / f.leavesPerPod() }
