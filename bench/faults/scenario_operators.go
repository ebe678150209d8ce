package faults

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/shim"
)

// operatorScenarios test an operator's orders and a controller's answers to an operator. If the job has one rank, it
// uses no port of the controller.
func operatorScenarios() []scenario {
	return []scenario{
		{
			Name: "scpi-light-lost", GoesOn: true, Bound: 4 * time.Second,
			Fault: "a fibre of plane 1 is pulled while no rank uses it; ocs enable and ocs set fail " +
				"until it is back",
			// Meters show nothing in the second after a switch.
			setup: setup{scpi: true, verify: "light", phases: rest(2 * time.Second), open: true},
			play:  lightLost,
		},
		{
			Name: "scpi-controller-restarted", GoesOn: true, Bound: 5 * time.Second,
			Fault: "plane 0 is disabled; SIGKILL to the controller; another SCPI session removes a " +
				"circuit of plane 1; the controller starts again",
			setup: setup{scpi: true, verify: "status", file: true, ranks: 1, phases: steady(plenty), open: true},
			play:  restarted,
		},
		{
			Name: "journal-hangs", GoesOn: true, Bound: lease + 10*time.Second,
			Fault: "the journal answers nothing while an operator disables plane 1, and goes on later",
			setup: setup{standby: true, remote: true, ranks: 1, phases: steady(plenty), open: true},
			play:  journalHangs,
		},
		{
			Name: "controller-killed-no-ranks", GoesOn: true, Bound: lease + 5*time.Second,
			Fault: "SIGKILL to the controller while no rank is attached; another controller stands by",
			setup: setup{standby: true, remote: true, ranks: 1, phases: steady(plenty), open: true},
			play:  killedWithoutRanks,
		},
		{
			Name: "controller-flooded", GoesOn: true, Bound: 4 * time.Second,
			Fault: "600 connections to the controller that say nothing, while frames flow",
			setup: setup{remote: true, phases: interrupted(), open: true},
			play:  flooded,
		},
		{
			Name: "post-of-a-stranger", GoesOn: true, Bound: 2 * time.Second,
			Fault: "a client without a grant asks for a move of plane 1, which another client holds",
			setup: setup{remote: true, ranks: 1, phases: steady(plenty), open: true},
			play:  stranger,
		},
	}
}

// seen measures the time from the fault until now.
func (g *rig) seen() { g.Took = time.Since(g.injectedAt) }

// lightLost removes the light at the egress of rank 1 on plane 1. The switch's table does not change.
func lightLost(g *rig) error {
	if err := g.resting(); err != nil {
		return err
	}
	if err := g.inject("[{fault: lost-light, out: 5}]"); err != nil {
		return err
	}
	if err := g.because(controller.Excluded, 1, "light"); err != nil { // the job has all ports, also this one
		return err
	}
	for _, args := range [][]string{{"ocs", "enable"}, setRing} {
		switch said, err := g.lightpath(slices.Concat(args, []string{"--plane", "p1"})...); {
		case err == nil:
			return fmt.Errorf("faults: %s succeeded without light", strings.Join(args[:2], " "))
		case strings.Contains(said, "verified"):
			return fmt.Errorf("faults: %s failed, and says verified: %s", strings.Join(args[:2], " "), said)
		}
	}
	if err := g.without(1); err != nil {
		return err
	}
	if _, err := g.script("[{fault: clear}]"); err != nil {
		return err
	}
	return g.putBack(1, setRing...)
}

// restarted restarts a controller after an operator's order. Meanwhile another session has changed its switch.
func restarted(g *rig) error {
	if _, err := g.lightpath("ocs", "set", "--plane", "p1", "--map", "ring:1"); err != nil {
		return err
	}
	if _, err := g.lightpath("ocs", "disable", "--plane", "p0", "--reason", "fibre work"); err != nil {
		return err
	}
	g.controllers[0].kill()
	if err := g.otherWriter(); err != nil {
		return err
	}
	if err := g.runController(0); err != nil {
		return err
	}
	if err := g.downBecause(1, "port 1"); err != nil {
		return err
	}
	g.seen()
	p, err := g.status(0)
	if err == nil && (p.State != controller.Down || !strings.Contains(p.Reason, "fibre work")) {
		err = fmt.Errorf("faults: plane %s is %s %s after the restart", p.Name, p.State, p.Reason)
	}
	g.Operator += "; plane p0: " + p.Reason
	return err
}

// journalHangs gives an operator's order while the journal does not answer.
func journalHangs(g *rig) error {
	at := time.Now()
	g.valve.shut()
	_, err := g.lightpath("ocs", "disable", "--plane", "p1", "--reason", "fibre work", "--timeout", "1s")
	g.valve.open()
	if err == nil {
		return errors.New("faults: ocs disable was acknowledged without the journal")
	}
	g.injected(at, "the order was not acknowledged: "+err.Error())
	return g.takesOrders("p1")
}

// takesOrders waits until a controller disables a plane, and enables it again.
func (g *rig) takesOrders(plane string) error {
	var last error
	err := wait(g.ctx, "a controller takes orders", patience, func() (bool, error) {
		_, last = g.lightpath("ocs", "disable", "--plane", plane, "--reason", "fibre work")
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	g.seen()
	e, err := g.happened(controller.Commanded, controller.AnyPlane, anyEvent)
	if err != nil {
		return err
	}
	g.Operator = "commanded: " + e.Err
	_, err = g.lightpath("ocs", "enable", "--plane", plane)
	return err
}

// killedWithoutRanks kills the controller while no rank is attached, so the next controller waits for no rank.
func killedWithoutRanks(g *rig) error {
	at := time.Now()
	g.controllers[0].kill()
	g.injected(at, "the controller has ended")
	return g.takesOrders("p1")
}

// flooded holds connections open without sending on them.
func flooded(g *rig) error {
	if err := g.inOperation(1); err != nil {
		return err
	}
	const connections = 600
	at := time.Now()
	for range connections {
		c, err := net.DialTimeout("tcp", g.listen[0], patience)
		if err != nil {
			return err
		}
		defer c.Close()
	}
	g.injected(at, fmt.Sprintf("%d connections are made", connections))
	said, err := g.lightpath("ocs", "status")
	if err != nil {
		return err
	}
	took := time.Since(g.injectedAt)
	g.Operator, _, _ = strings.Cut(said, "\n")
	if err := g.recovers(); err != nil {
		return err
	}
	g.Took = max(g.Took, took)
	return g.goesOn()
}

// stranger asks for a move of a plane that another client holds. The requested map is the current one, so an accepted
// move would end at once.
func stranger(g *rig) error {
	var clients [2]*rpc.Client
	for port := range clients {
		c, err := rpc.Dial(g.ctx, g.listen, port, rpc.Options{Version: shim.Version})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		clients[port] = c
	}
	const plane, holder, other = 1, 1, 2
	if _, err := clients[0].Acquire(ocsctl.Lease{Mask: 1 << plane, Holder: holder}); err != nil {
		return err
	}
	before, err := g.status(plane)
	if err != nil {
		return err
	}
	at := time.Now()
	if err := clients[1].Post(plane, before.Epoch, other, before.Map); err != nil {
		return err
	}
	var refusal error
	err = wait(g.ctx, "the post is refused", patience, func() (bool, error) {
		refusal = clients[1].Refused(plane, other)
		return refusal != nil, nil
	})
	if err != nil {
		return err
	}
	g.injected(at, "the client is told: "+refusal.Error())
	g.seen()
	if _, err := clients[0].Poll(plane); err != nil || !errors.Is(refusal, ocsctl.ErrNotHolder) {
		return fmt.Errorf("faults: refused by %w; the holder's plane: %w", refusal, err)
	}
	after, err := g.status(plane)
	if err == nil && (after.Epoch != before.Epoch || after.Refused != before.Refused+1) {
		err = fmt.Errorf("faults: epoch %d follows %d, with %d posts refused", after.Epoch, before.Epoch, after.Refused)
	}
	g.Operator = fmt.Sprintf("status: plane %s is %s at epoch %d, %d posts refused",
		after.Name, after.State, after.Epoch, after.Refused)
	return err
}
