package controller

import (
	"fmt"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// A pinned plane has an owner, such as a job whose topology was planned for it. Only operators move it: ranks use its
// circuits as they are. pinned returns why a rank may not move the plane to target; nil if it may.
func (pl *plane) pinned(target circuit.Permutation) error {
	if pl.PinnedBy == "" || same(pl.m, target) {
		return nil
	}
	return fmt.Errorf("plane %s is pinned by %s: %w", pl.Name, pl.PinnedBy, ocsctl.ErrPinned)
}
