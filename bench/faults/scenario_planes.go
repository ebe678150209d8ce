package faults

import (
	"fmt"
	"strings"
	"time"

	"lightpath/ocsctl/controller"
)

// rest returns a job with a pause after its first operations, for faults between operations. It then runs for long
// enough to see planes fail and come back.
func rest(pause time.Duration) []phase { return restAfter(4, pause) }

func restAfter(operations int, pause time.Duration) []phase {
	return []phase{{operations, small, 0}, {1, small, pause}, {plenty, small, 20 * time.Millisecond}}
}

// resting returns when the ranks pause after the job's first operations. They hold no plane, or they hold all with a
// ticket ahead.
func (g *rig) resting() error {
	if err := g.job.await(g.phases[0].operations); err != nil {
		return err
	}
	if !g.ahead {
		return g.whileFree()
	}
	s, err := g.operator.Status(g.ctx)
	if err != nil {
		return err
	}
	for _, p := range s.Planes {
		if len(p.Holders) == 0 {
			return fmt.Errorf("faults: the ranks hold no plane %s for their next operation", p.Name)
		}
	}
	return g.job.running()
}

func planeScenarios() []scenario {
	return []scenario{
		{
			Name: "drift-between-operations", Fault: "another writer moves a circuit of plane 1 between operations; later " +
				"ocs set puts it back", GoesOn: true, Bound: 3 * time.Second,
			setup: setup{phases: rest(time.Second), open: true},
			play:  func(g *rig) error { return driftBetween(g, g.thirdParty) },
		},
		{
			Name: "drift-in-operation", Fault: "another writer moves a circuit of plane 1 while frames flow",
			Bound: 2 * time.Second,
			setup: setup{phases: interrupted()}, play: func(g *rig) error { return driftDuring(g, g.thirdParty) },
		},
		{
			Name: "stuck-mirror", Fault: "a mirror of plane 1 does not follow, and the switch says so", Bound: 4 * time.Second,
			setup: setup{phases: interrupted()}, play: func(g *rig) error {
				return failedMove(g, "[{fault: stuck-mirror, in: 5}]", "failed|port 1")
			},
		},
		{
			Name: "stuck-mirror-silent", Fault: "a mirror of plane 1 does not follow, and the switch says that it has",
			Bound: 4 * time.Second,
			setup: setup{phases: interrupted()}, play: func(g *rig) error {
				return failedMove(g, "[{fault: stuck-mirror, in: 5, silent: true}]", "port 1")
			},
		},
		{
			Name: "ghost-circuit", Fault: "the switch's table has a circuit of plane 1 that was never made; the " +
				"controller sees the light", GoesOn: true, Bound: 2 * time.Second,
			setup: setup{phases: interrupted(), open: true}, play: harmlessGhost,
		},
		{
			Name: "slow-circuit", Fault: "circuits from a port of plane 1 take 300 ms longer", GoesOn: true,
			Bound: 4 * time.Second,
			setup: setup{phases: steady(plenty), open: true}, play: slowCircuit,
		},
		{
			Name: "slow-circuit-beyond-bound", Fault: "circuits from a port of plane 1 take 20 s longer", Bound: 6 * time.Second,
			setup: setup{phases: interrupted()}, play: func(g *rig) error {
				return failedMove(g, "[{fault: slow-pair, in: 5, delay_ms: 20000}]", "not settled after")
			},
		},
		{
			Name: "plane-disabled", Fault: "an operator takes plane 1 out of service, and puts it back", GoesOn: true,
			Bound: 3 * time.Second,
			setup: setup{phases: rest(time.Second), open: true}, play: disablePlane,
		},
		{
			Name: "all-planes-disabled", Fault: "an operator takes both planes out of service, and puts them back", GoesOn: true,
			Bound: 3 * time.Second,
			setup: setup{phases: rest(time.Second), open: true}, play: disableAll,
		},
		{
			Name: "switch-reboots", Fault: "the switch reboots between operations and forgets its circuits; later ocs set " +
				"puts both planes back", GoesOn: true, Bound: 3 * time.Second,
			setup: setup{phases: rest(time.Second), open: true}, play: reboot,
		},
		{
			Name: "switch-reboots-in-operation", Fault: "the switch reboots while frames flow", Bound: 2 * time.Second,
			setup: setup{phases: interrupted()}, play: rebootDuring,
		},
	}
}

// downBecause waits until a plane is out of service for a reason that contains one of words, "a|b".
func (g *rig) downBecause(plane int, words string) error {
	return g.because(controller.Failed, plane, words)
}

// because is downBecause for an event of another kind.
func (g *rig) because(kind controller.EventKind, plane int, words string) error {
	e, err := g.happened(kind, plane, anyEvent)
	if err != nil {
		return err
	}
	if !containsAny(e.Err, words) {
		return fmt.Errorf("faults: plane %d, %s for another reason than %q: %s", plane, kind, words, e.Err)
	}
	g.Operator = string(kind) + ": " + e.Err
	return nil
}

// carriesAgain waits until a plane carries frames that it does not carry now.
func (g *rig) carriesAgain(plane int) error {
	before, err := g.carried(plane)
	if err != nil {
		return err
	}
	return wait(g.ctx, fmt.Sprintf("plane %d carries frames again", plane), patience, func() (bool, error) {
		now, err := g.carried(plane)
		if err != nil || now > before {
			return err == nil, err
		}
		return false, g.job.running()
	})
}

// without runs until the ranks have completed three operations, in which a plane has carried nothing.
func (g *rig) without(planes ...int) error {
	if err := g.recovers(); err != nil {
		return err
	}
	before := make([]uint64, len(planes))
	for i, j := range planes {
		var err error
		if before[i], err = g.carried(j); err != nil {
			return err
		}
	}
	if err := g.job.await(g.job.operations() + 3); err != nil {
		return err
	}
	for i, j := range planes {
		now, err := g.carried(j)
		if err != nil {
			return err
		}
		if now != before[i] {
			return fmt.Errorf("faults: plane %d carried %d frames while it was out of service", j, now-before[i])
		}
	}
	return nil
}

// thirdParty has another writer remove the circuit of rank 1 on plane 1, whose ingress port is 5.
func (g *rig) thirdParty() error { return g.inject("[{fault: third-party, in: 5}]") }

// setRing is an operator's command that sets the circuits of a plane.
var setRing = []string{"ocs", "set", "--map", "ring:1"}

func driftBetween(g *rig, change func() error) error {
	if err := g.resting(); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	if err := g.downBecause(1, "port 1"); err != nil {
		return err
	}
	if _, err := g.lightpath("ocs", "enable", "--plane", "p1"); err == nil {
		return fmt.Errorf("faults: ocs enable put a plane back that has drifted")
	}
	if err := g.without(1); err != nil {
		return err
	}
	if err := g.warned("p1 is out of service"); err != nil {
		return err
	}
	return g.putBack(1, setRing...)
}

func driftDuring(g *rig, change func() error) error {
	if err := g.inOperation(1); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	if err := g.fails(nil, "rank ", "plane 1", "epoch "); err != nil {
		return err
	}
	return g.downBecause(1, "port 1|of rank 1") // the controller finds the change by itself or at the next move
}

// failedMove makes the next moves of plane 1 fail.
func failedMove(g *rig, script, reason string) error {
	if err := g.injectInOperation(1, script); err != nil {
		return err
	}
	if err := g.fails(nil, "rank ", "plane 1", "epoch ", reason); err != nil {
		return err
	}
	first, _, _ := strings.Cut(reason, "|") // the controller's words
	return g.downBecause(1, first)
}

// harmlessGhost adds a circuit to the switch's table that no frame uses.
func harmlessGhost(g *rig) error {
	if err := g.injectInOperation(1, "[{fault: ghost, in: 5, out: 7}]"); err != nil {
		return err
	}
	if err := g.recovers(); err != nil {
		return err
	}
	if err := g.goesOn(); err != nil {
		return err
	}
	p, err := g.status(1)
	g.Operator = fmt.Sprintf("status: plane %s is %s, verified by %s", p.Name, p.State, p.Verified)
	return err
}

func slowCircuit(g *rig) error {
	if err := g.job.await(2); err != nil {
		return err
	}
	if err := g.inject("[{fault: slow-pair, in: 5, delay_ms: 300}]"); err != nil {
		return err
	}
	if err := g.recovers(); err != nil {
		return err
	}
	e, err := g.happened(controller.Switched, 1, func(e controller.Event) bool { return e.Took > 300*time.Millisecond })
	g.Operator = fmt.Sprintf("switched: plane 1, took %v", e.Took.Round(time.Millisecond))
	return err
}

func disablePlane(g *rig) error {
	if err := g.resting(); err != nil {
		return err
	}
	if err := g.disable("p1"); err != nil {
		return err
	}
	if err := g.without(1); err != nil {
		return err
	}
	if err := g.warned("p1 is out of service"); err != nil {
		return err
	}
	return g.putBack(1, "ocs", "enable")
}

// disable makes an operator take planes out of service.
func (g *rig) disable(planes ...string) error {
	at := time.Now()
	for _, p := range planes {
		if _, err := g.lightpath("ocs", "disable", "--plane", p, "--reason", "fibre work"); err != nil {
			return err
		}
	}
	g.injected(at, "the commands have succeeded")
	e, err := g.happened(controller.Commanded, controller.AnyPlane, anyEvent)
	g.Operator = "commanded: " + e.Err
	return err
}

func disableAll(g *rig) error {
	if err := g.resting(); err != nil {
		return err
	}
	if err := g.disable("p0", "p1"); err != nil {
		return err
	}
	if err := g.onPackets(); err != nil {
		return err
	}
	for j := range planes {
		if err := g.putBack(j, "ocs", "enable"); err != nil {
			return err
		}
	}
	return nil
}

// onPackets checks that operations continue while no plane carries a frame.
func (g *rig) onPackets() error {
	if err := g.without(0, 1); err != nil {
		return err
	}
	return g.warned("no plane with circuits is in service")
}

func reboot(g *rig) error {
	if err := g.resting(); err != nil {
		return err
	}
	if err := g.inject("[{fault: reboot, delay_ms: 200}]"); err != nil {
		return err
	}
	for j := range planes {
		if err := g.downBecause(j, ""); err != nil {
			return err
		}
	}
	if err := g.onPackets(); err != nil {
		return err
	}
	for j := range planes {
		if err := g.putBack(j, setRing...); err != nil {
			return err
		}
	}
	return nil
}

func rebootDuring(g *rig) error {
	if err := g.injectInOperation(0, "[{fault: reboot, delay_ms: 200}]"); err != nil {
		return err
	}
	if err := g.fails(nil, "rank ", "plane ", "epoch "); err != nil {
		return err
	}
	return g.downBecause(0, "")
}
