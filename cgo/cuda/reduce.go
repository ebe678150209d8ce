package cuda

import (
	"fmt"

	"lightpath/shim/device"
)

// Reduce implements [device.Driver].
func (Library) Reduce(r *device.Reduction, _ device.Stream) error {
	if err := r.Check(); err != nil {
		return err
	}
	return fmt.Errorf("this build has no kernels: %w", device.ErrDriver)
}

// LoadKernels implements [device.Driver].
func (Library) LoadKernels(device.Stream) error {
	return fmt.Errorf("this build has no kernels: %w", device.ErrDriver)
}
