package web

import "lightpath/ocsctl/controller"

// Advice tells an operator how to put a plane back into service.
type Advice struct {
	Do      string `json:"do"`      // in one line
	Section string `json:"section"` // of docs/operations.md
}

// ofSwitch reports whether the cause lies with the switch: its ports, its map or its answers.
func ofSwitch(c controller.Cause) bool {
	switch c {
	case controller.CauseDrift, controller.CauseNotAsWanted, controller.CauseUnknown, controller.CauseUnresponsive,
		controller.CauseFenced:
		return true
	}
	return false
}

// advices name sections of docs/operations.md, which a test checks.
var advices = map[controller.Cause]*Advice{
	controller.CauseDrift: {"Find who else writes the switch, then set the map that is wanted: lightpath ocs set.",
		"a plane is down: drift"},
	controller.CauseNotAsWanted: {"Clean or move the fibre of the port that the reason names, then lightpath ocs " +
		"enable, or set to make the circuit again.", "a plane is down: not as intended"},
	controller.CauseUnknown: {"Once the switch answers: lightpath ocs drift, then enable or set.",
		"a plane is down: outcome unknown, or the switch does not answer"},
	controller.CauseUnresponsive: {"Once the switch answers: lightpath ocs drift, then enable or set.",
		"a plane is down: outcome unknown, or the switch does not answer"},
	controller.CauseJournal: {"The journal did not take the move in time, or it has lost changes: look at its disk, " +
		"or at etcd, and compare the circuits, then lightpath ocs enable.", "the journal is slow or full"},
	controller.CauseFenced: {"Another controller has taken over; find out why this one was cut off.",
		"the controller was fenced"},
	controller.CauseFramesLost: {"A rank sent while its circuit moved. Look for drift at that time in the history.",
		"frames lost"},
	controller.CauseDisabled: {"An operator has it; lightpath ocs enable puts it back.", "Common tasks"},
	controller.CauseOther: {"See when it happened in the history, and compare: lightpath ocs drift.",
		"Faults and repairs"},
}
