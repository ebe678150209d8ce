package faults

import (
	"syscall"
	"time"
)

// gapScenarios are faults while ranks compute, with the ticket of the next operation in hand
// (docs/design/iteration-run.md).
func gapScenarios() []scenario {
	job := func(pause time.Duration) setup {
		return setup{ahead: true, open: true, phases: restAfter(repeats, pause)}
	}
	once := job(600 * time.Millisecond)
	once.open, once.apart, once.phases = false, true, once.phases[:2]
	two := job(time.Second)
	two.standby, two.remote = true, true
	return []scenario{
		{
			Name: "rank-killed-in-gap", Fault: "SIGKILL to rank 2, which has the ticket of the next operation",
			Bound: 2 * time.Second, setup: once, play: func(g *rig) error { return killRank(g, g.resting) },
		},
		{
			Name: "controller-killed-in-gap", Fault: "SIGKILL to the controller while ranks have the ticket of the next " +
				"operation; another one stands by", GoesOn: true, Bound: lease + 10*time.Second,
			setup: two, play: takeoverInGap,
		},
		{
			Name: "plane-disabled-in-gap", Fault: "an operator takes plane 1 out of service while ranks have the ticket of " +
				"the next operation, and puts it back", GoesOn: true, Bound: 3 * time.Second,
			setup: job(time.Second), play: disablePlane,
		},
		{
			Name: "drift-in-gap", Fault: "another writer moves a circuit of plane 1 while ranks have the ticket of the next " +
				"operation; later ocs set puts it back", GoesOn: true, Bound: 3 * time.Second,
			setup: job(time.Second), play: func(g *rig) error { return driftBetween(g, g.thirdParty) },
		},
		{
			Name: "switch-reboots-in-gap", Fault: "the switch reboots while ranks have the ticket of the next operation, and " +
				"forgets its circuits; later ocs set puts both planes back", GoesOn: true, Bound: 3 * time.Second,
			setup: job(time.Second), play: reboot,
		},
	}
}

// repeats is how many equal operations a job of gapScenarios makes before it pauses: rank 0 predicts after three.
const repeats = 12

// takeoverInGap kills the controller while ranks have a ticket ahead.
func takeoverInGap(g *rig) error {
	if err := g.resting(); err != nil {
		return err
	}
	l, err := g.leader()
	if err != nil {
		return err
	}
	g.injected(time.Now(), "the controller is gone")
	if err := l.signal(syscall.SIGKILL); err != nil {
		return err
	}
	return g.recoversAfter(l)
}
