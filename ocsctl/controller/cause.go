package controller

import (
	"context"
	"errors"
	"net"

	"lightpath/ocsctl"
	"lightpath/ocsctl/driver"
)

// Cause is the class of the error that took a plane out of service. It labels metrics and leads to advice.
type Cause string

// The causes.
const (
	CauseDrift        Cause = "drift"
	CauseNotAsWanted  Cause = "not-as-intended"
	CauseUnknown      Cause = "unknown-outcome"
	CauseFenced       Cause = "fenced"
	CauseFramesLost   Cause = "frames-lost"
	CauseDisabled     Cause = "disabled"
	CauseUnresponsive Cause = "unresponsive"
	CauseJournal      Cause = "journal"
	CauseOther        Cause = "other"
)

// Errors of planes that are out of service.
var (
	errDrift  = errors.New("drift")
	errIntent = errors.New("the journal did not take the intent")
	errLost   = errors.New("the journal has lost changes")
)

// causes are the errors of each cause. The first match counts: if a switch failed because its map has drifted, the
// cause is drift. ErrReconfFailed comes last, because it wraps most errors of a move.
var causes = []struct {
	cause Cause
	errs  []error
}{
	{CauseFenced, []error{driver.ErrFenced, ErrNotLeader}},
	{CauseJournal, []error{errIntent, errLost, ErrJournal}},
	{CauseDrift, []error{errDrift, driver.ErrDrift}},
	{CauseFramesLost, []error{ocsctl.ErrFramesLost}},
	{CauseNotAsWanted, []error{driver.ErrNotAsIntended, driver.ErrNotMatching, driver.ErrUnwell}},
	{CauseUnknown, []error{driver.ErrUnknownOutcome, ocsctl.ErrUnknownMap}},
	{CauseUnresponsive, []error{driver.ErrNoAnswer, driver.ErrProtocol, context.DeadlineExceeded}},
	{CauseNotAsWanted, []error{ocsctl.ErrReconfFailed}},
}

// CauseOf returns the cause of an error of a plane.
func CauseOf(err error) Cause {
	for _, c := range causes {
		for _, target := range c.errs {
			if errors.Is(err, target) {
				return c.cause
			}
		}
		if _, ok := errors.AsType[net.Error](err); ok && c.cause == CauseUnresponsive {
			return c.cause
		}
	}
	return CauseOther
}

// cause returns why a plane is out of service.
func (pl *plane) cause() Cause {
	if pl.fault == nil {
		return CauseDisabled // or an operator's command is under way
	}
	return CauseOf(pl.fault)
}
