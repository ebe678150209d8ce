package shim

import (
	"lightpath/shim/calls"
	"lightpath/shim/path/host"
)

// Run runs calls as one group and returns when all are complete, or with [errdefs.ErrInProgress] where
// their communicators do not block; they are all of one kind. Calls on streams or device memory run when the
// streams come to them, and Run returns before. Calls of one communicator
// keep their order, except that its one-sided calls come first, and its sends and receives are merged
// into one exchange after its collectives; different communicators progress at the same time. All calls are
// checked before any has an effect. Hot path: a group of shapes seen before allocates
// nothing on packet planes.
func Run(group []calls.Call) error {
	for i := range group {
		if err := calls.Check(&group[i]); err != nil {
			return err
		}
	}
	if anySwitched(group) {
		return runInTurns(group)
	}
	return runTogether(group, false)
}

// runTogether is Run for calls that all go the same way, where circuits reach the memory of devices.
func runTogether(calls []calls.Call, scripted bool) error {
	if hasPeers(calls, scripted) {
		return runOnPeers(calls, scripted)
	}
	return runHere(calls)
}

// runHere runs calls that do not go through the memory of devices.
func runHere(group []calls.Call) error {
	if streams, err := onStreams(group); err != nil {
		return err
	} else if streams && interposerOf(group[0].Comm).forOther() {
		return interpose(group)
	} else if streams {
		return enqueue(group)
	}
	awaitLaunches(group)
	return host.Run(group)
}
