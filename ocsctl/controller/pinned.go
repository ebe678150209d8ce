package controller

import (
	"fmt"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// pinned returns nil if a rank may move the plane to target, else the reason. Only operators move a pinned plane; ranks
// use its circuits as they are. Its owner is, for example, the job that the topology was planned for.
func (pl *plane) pinned(target circuit.Permutation) error {
	if pl.PinnedBy == "" || pl.m.Equal(target) {
		return nil
	}
	return fmt.Errorf("%s is pinned by %s: %w", pl, pl.PinnedBy, ocsctl.ErrPinned)
}
