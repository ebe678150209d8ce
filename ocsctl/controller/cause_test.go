package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"lightpath/ocsctl"
	"lightpath/ocsctl/driver"
)

// TestCauses: the errors that an error wraps decide the cause, and not its text.
func TestCauses(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		want Cause
	}{
		{fmt.Errorf("switches: plane p0: %w: port 3 goes to 2", driver.ErrDrift), CauseDrift},
		{fmt.Errorf("%w of 2 circuits: %w", errDrift, ocsctl.ErrPlaneDown), CauseDrift},
		{fmt.Errorf("%w: %w", driver.ErrDrift, ocsctl.ErrReconfFailed), CauseDrift},
		{fmt.Errorf("%w: 1 of 4: port 3", driver.ErrNotAsIntended), CauseNotAsWanted},
		{fmt.Errorf("%w: no light: port 3", driver.ErrUnwell), CauseNotAsWanted},
		{driver.ErrNotMatching, CauseNotAsWanted},
		{ocsctl.ErrReconfFailed, CauseNotAsWanted},
		{fmt.Errorf("switch sw: %w: %w", driver.ErrUnknownOutcome, context.DeadlineExceeded), CauseUnknown},
		{fmt.Errorf("%w: %w", driver.ErrNoAnswer, ocsctl.ErrUnknownMap), CauseUnknown},
		{fmt.Errorf("switch sw %w: %w", driver.ErrNoAnswer, refused), CauseUnresponsive},
		{fmt.Errorf("%w: %w", refused, ocsctl.ErrPlaneDown), CauseUnresponsive},
		{driver.ErrProtocol, CauseUnresponsive},
		{fmt.Errorf("%w: %w: %w", errIntent, context.DeadlineExceeded, ocsctl.ErrReconfFailed), CauseJournal},
		{ErrJournal, CauseJournal},
		{fmt.Errorf("%w: %w", ErrNotLeader, driver.ErrFenced), CauseFenced},
		{ocsctl.ErrFramesLost, CauseFramesLost},
		{errors.New("disabled, drift, timeout"), CauseOther},
	} {
		if got := CauseOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}
