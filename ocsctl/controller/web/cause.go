package web

import (
	"strings"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
)

// Cause sorts the reasons why planes are out of service. Reasons are texts for people; causes are
// few, label metrics and lead to what to do.
type Cause string

// The causes.
const (
	CauseDrift        Cause = "drift"
	CauseNotAsWanted  Cause = "not-as-intended"
	CauseUnknown      Cause = "unknown-outcome"
	CauseFenced       Cause = "fenced"
	CauseConflict     Cause = "conflict"
	CausePortLost     Cause = "port-lost"
	CauseFramesLost   Cause = "frames-lost"
	CauseDisabled     Cause = "disabled"
	CauseUnresponsive Cause = "unresponsive"
	CauseJournal      Cause = "journal"
	CauseOther        Cause = "other"
)

// Advice is what to do about a plane that is out of service.
type Advice struct {
	Do      string `json:"do"`      // in one line
	Section string `json:"section"` // of docs/operations.md
}

// signs are the texts by which reasons are recognised, the more telling ones first: a switch that
// failed because its map has drifted has drifted.
var signs = []struct {
	cause Cause
	texts []string
}{
	{CauseDisabled, []string{"disabled by ", "being set by ", "being verified for "}},
	{CauseFenced, []string{driver.ErrFenced.Error(), controller.ErrNotLeader.Error()}},
	{CauseJournal, []string{"the journal did not take", controller.ErrJournal.Error()}},
	{CauseDrift, []string{driver.ErrDrift.Error(), "drift"}},
	{CauseConflict, []string{ocsctl.ErrConflict.Error()}},
	{CausePortLost, []string{ocsctl.ErrPortLost.Error()}},
	{CauseFramesLost, []string{ocsctl.ErrFramesLost.Error()}},
	{CauseNotAsWanted, []string{driver.ErrNotAsIntended.Error(), driver.ErrNotMatching.Error(), "light is lost", "no light", " is FAILED", " is failed"}},
	{CauseUnknown, []string{driver.ErrUnknownOutcome.Error(), ocsctl.ErrUnknownMap.Error(), "has not said where it is"}},
	{CauseUnresponsive, []string{"does not answer", "timeout", "timed out", "deadline exceeded", "connection refused", "unreachable", driver.ErrProtocol.Error()}},
	{CauseNotAsWanted, []string{ocsctl.ErrReconfFailed.Error()}}, // and it is not known better why
}

// causeOf recognises the cause in a reason.
func causeOf(reason string) Cause {
	for _, s := range signs {
		for _, text := range s.texts {
			if strings.Contains(reason, text) {
				return s.cause
			}
		}
	}
	return CauseOther
}

// ofSwitch reports whether the cause lies with the switch: its ports, its map or its answers.
func (c Cause) ofSwitch() bool {
	switch c {
	case CauseDrift, CauseNotAsWanted, CauseUnknown, CauseUnresponsive, CauseFenced:
		return true
	}
	return false
}

// advices name sections of docs/operations.md; a test holds them against it.
var advices = map[Cause]Advice{
	CauseDrift:        {"Find who else writes the switch, then set the map that is wanted: lightpath ocs set.", "a plane is down: drift"},
	CauseNotAsWanted:  {"Clean or move the fibre of the port that the reason names, then lightpath ocs enable, or set to make the circuit again.", "a plane is down: not as intended"},
	CauseUnknown:      {"Once the switch answers: lightpath ocs drift, then enable or set.", "a plane is down: outcome unknown, or the switch does not answer"},
	CauseUnresponsive: {"Once the switch answers: lightpath ocs drift, then enable or set.", "a plane is down: outcome unknown, or the switch does not answer"},
	CauseJournal:      {"The journal did not take the move in time: look at its disk, or at etcd, then lightpath ocs enable.", "the journal is slow or full"},
	CauseFenced:       {"Another controller has taken over; find out why this one was cut off.", "the controller was fenced"},
	CausePortLost:     {"A rank died in a reconfiguration. The plane comes back when its job is gone; else lightpath ocs enable.", "ranks wait for ports"},
	CauseConflict:     {"Ranks of one job asked for different maps. The plane comes back when the job is gone; else lightpath ocs enable.", "ranks wait for ports"},
	CauseFramesLost:   {"A rank sent while its circuit moved. Look for drift at that time in the history.", "frames lost"},
	CauseDisabled:     {"An operator has it; lightpath ocs enable puts it back.", "Every day"},
	CauseOther:        {"See when it happened in the history, and compare: lightpath ocs drift.", "What to do when"},
}

func (c Cause) advice() *Advice {
	a := advices[c]
	return &a
}
