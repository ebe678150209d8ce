package faults

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// switchScenarios are the faults of a switch behind its protocol: rank, controller, SCPI, model, kernel.
func switchScenarios() []scenario {
	return []scenario{
		{
			Name: "scpi-none", Fault: "nothing; the switch is behind SCPI", GoesOn: true, Bound: 2 * time.Second,
			setup: setup{scpi: true, verify: "status", phases: steady(20)}, play: healthy,
		},
		{
			Name: "scpi-lost-reply", Fault: "the switch makes a change, and its answer is lost", GoesOn: true,
			Bound: 4 * time.Second,
			setup: setup{scpi: true, verify: "status", phases: interrupted(), open: true}, play: lostReply,
		},
		{
			Name: "scpi-stuck-mirror", Fault: "a mirror of plane 1 does not follow, and the switch says so",
			Bound: 4 * time.Second,
			setup: setup{scpi: true, verify: "status", phases: interrupted()}, play: func(g *rig) error {
				return failedMove(g, "[{fault: stuck-mirror, in: 5}]", "not as intended")
			},
		},
		{
			Name: "scpi-stuck-mirror-silent", Fault: "a mirror of plane 1 does not follow, and the switch says that it " +
				"has; verified by tokens", Bound: 6 * time.Second,
			setup: setup{scpi: true, verify: "token", phases: interrupted()}, play: func(g *rig) error {
				return failedMove(g, "[{fault: stuck-mirror, in: 5, silent: true}]", "not as intended")
			},
		},
		{
			// No device checks that light arrives, so the switch must always meet the fabric's reconfiguration time.
			Name: "scpi-stuck-mirror-unverified", Fault: "the same, with nothing verified but the switch's table",
			Bound: 4 * time.Second,
			setup: setup{scpi: true, preset: "palomar-ms", reconfig: 250 * time.Millisecond, verify: "read-back",
				phases: interrupted()}, play: unverified,
		},
		{
			Name: "scpi-ghost-circuit", Fault: "the switch's table has a circuit of plane 1 that was never made",
			Bound: 4 * time.Second,
			setup: setup{scpi: true, verify: "status", phases: interrupted()}, play: ghost,
		},
		{
			Name:   "scpi-drift-between-operations",
			Fault:  "another SCPI session removes a circuit of plane 1 between operations; later ocs set puts it back",
			GoesOn: true, Bound: 3 * time.Second,
			setup: setup{scpi: true, verify: "status", phases: rest(time.Second), open: true},
			play:  func(g *rig) error { return driftBetween(g, g.otherWriter) },
		},
		{
			Name: "scpi-drift-in-operation", Fault: "another SCPI session removes a circuit of plane 1 while frames flow",
			Bound: 4 * time.Second,
			setup: setup{scpi: true, verify: "status", phases: interrupted()},
			play:  func(g *rig) error { return driftDuring(g, g.otherWriter) },
		},
		{
			Name: "scpi-switch-gone", Fault: "SIGKILL to the switch between operations; its circuits stay as they are",
			GoesOn: true, Bound: 10 * time.Second,
			setup: setup{scpi: true, verify: "status", phases: rest(2 * time.Second), open: true}, play: switchGone,
		},
		{
			Name: "scpi-switch-hangs", Fault: "SIGSTOP to the switch in an operation: it answers nothing",
			Bound: 20 * time.Second,
			setup: setup{scpi: true, verify: "status", phases: interrupted()}, play: switchHangs,
		},
	}
}

// lostReply loses the answer to a change. The controller reads the map instead of repeating the change.
func lostReply(g *rig) error {
	if err := g.injectInOperation(1, "[{fault: lost-reply}]"); err != nil {
		return err
	}
	// A move whose answer was lost lasts at least as long as the wait for it.
	e, err := g.happened(controller.Switched, controller.AnyPlane,
		func(e controller.Event) bool { return e.Took >= g.stretched(replyTimeout) })
	if err != nil {
		return err
	}
	g.Operator = fmt.Sprintf("switched: plane %d, took %v", e.Plane, e.Took.Round(time.Millisecond))
	return g.recovers()
}

// unverified leaves a circuit unverified: the frames on it are lost, and that is an error.
func unverified(g *rig) error {
	if err := g.injectInOperation(1, "[{fault: stuck-mirror, in: 5, silent: true}]"); err != nil {
		return err
	}
	if err := g.fails(nil, "rank ", "plane 1", "epoch ", "lost"); err != nil {
		return err
	}
	p, err := g.status(1)
	g.Operator = fmt.Sprintf("status: plane %s is %s, verified by %s", p.Name, p.State, p.Verified)
	return err
}

// ghost has the switch report two circuits at one port. The controller cannot tell which is real, so it uses neither
// plane. The plane that moves first reports it.
func ghost(g *rig) error {
	if err := g.injectInOperation(1, "[{fault: ghost, in: 5, out: 7}]"); err != nil {
		return err
	}
	if err := g.fails(nil, "rank ", "plane ", "epoch ", "no matching"); err != nil {
		return err
	}
	e, err := g.happened(controller.Failed, controller.AnyPlane,
		func(e controller.Event) bool { return strings.Contains(e.Err, "no matching") })
	g.Operator = "failed: " + e.Err
	return err
}

// otherWriter removes the circuit of rank 1 on plane 1 in another session, as a person or another
// program would.
func (g *rig) otherWriter() error {
	c, err := net.Dial("tcp", g.scpiAddress)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	at := time.Now()
	// Its ingress port is the sixth. The answer to *OPC? says that the switch has completed all commands.
	if _, err := io.WriteString(c, ":OXC:SWIT:CONN:SUB (@6),(@);*OPC?\n"); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err != nil {
		return err
	}
	m, err := g.view.Map(1)
	if err != nil {
		return err
	}
	if m[1] != circuit.Dark {
		return fmt.Errorf("faults: the switch answers %q, and port 1 of plane 1 leads to %d", answer[:n], m[1])
	}
	g.injected(at, "the circuit is dark in the kernel")
	return nil
}

// switchGone ends the switch between operations: its planes go out of service.
func switchGone(g *rig) error {
	if err := g.resting(); err != nil {
		return err
	}
	at := time.Now()
	g.sw.kill()
	g.injected(at, "the switch has ended")
	for j := range planes {
		if err := g.downBecause(j, ""); err != nil {
			return err
		}
	}
	return g.onPackets()
}

// switchHangs stops the switch, so that a move neither succeeds nor fails.
func switchHangs(g *rig) error {
	if err := g.inOperation(0); err != nil {
		return err
	}
	before := time.Now()
	if err := g.sw.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	g.injected(before, "the switch is stopped")
	if err := g.fails(nil, "rank ", "plane ", "epoch "); err != nil {
		return err
	}
	s, err := g.operator.Status(g.ctx)
	for _, p := range s.Planes {
		if p.State == controller.Down {
			g.Operator = "down: " + p.Reason
		}
	}
	if g.Operator == "" {
		err = errors.Join(err, errors.New("faults: no plane is out of service"))
	}
	return err
}
