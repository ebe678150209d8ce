package faults

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"lightpath/ocsctl/controller"
)

func controllerScenarios() []Scenario {
	return []Scenario{
		{
			Name: "controller-killed-standby", Fault: "SIGKILL to the controller while plane 0 moves; ranks on gRPC, another controller stands by", GoesOn: true, Bound: lease + 10*time.Second,
			setup: setup{controllers: 2, remote: true, reconfig: longMove, phases: interrupted(), open: true}, play: takeover,
		},
		{
			Name: "controller-handed-over", Fault: "SIGTERM to the controller while frames flow, as for an upgrade; another one stands by", GoesOn: true, Bound: 10 * time.Second,
			setup: setup{controllers: 2, remote: true, phases: interrupted(), open: true}, play: handOver,
		},
		{
			Name: "controller-killed-alone", Fault: "SIGKILL to the controller while plane 0 moves; ranks on its socket", Bound: 2 * time.Second,
			setup: setup{reconfig: longMove, phases: interrupted()}, play: orphaned,
		},
		{
			Name: "controller-killed-remote-alone", Fault: "SIGKILL to the controller while plane 0 moves; ranks on gRPC, nobody stands by; LIGHTPATH_TIMEOUT=3s", Bound: 8 * time.Second,
			setup: setup{remote: true, timeout: 3 * time.Second, reconfig: longMove, phases: interrupted()}, play: orphaned,
		},
		{
			Name: "controller-stopped", Fault: "SIGSTOP to the controller for longer than its lease, then SIGCONT; another one stands by; switch behind SCPI", GoesOn: true, Bound: lease + 10*time.Second,
			setup: setup{controllers: 2, remote: true, scpi: true, verify: "status", phases: interrupted(), open: true}, play: func(g *rig) error { return fenced(g, inCharge) },
		},
		{
			Name: "controller-stopped-with-planes", Fault: "the same, where the controller is the one writer of planes in the kernel until it goes on", GoesOn: true, Bound: lease + 20*time.Second,
			setup: setup{controllers: 2, remote: true, phases: interrupted(), open: true}, play: func(g *rig) error { return fenced(g, "waiting for the planes") },
		},
	}
}

// longMove is a reconfiguration that is easily met.
const longMove = 50 * time.Millisecond

// goesOn sees planes granted anew: more operations than one grant lasts.
func (g *rig) goesOn() error { return g.job.await(g.job.operations() + 5) }

// inCharge is what a controller says when it rules.
const inCharge = "in charge"

// takeover kills the controller in the middle of a move, which the next one finishes.
func takeover(g *rig) error {
	if err := g.killWhileMoving(); err != nil {
		return err
	}
	if !g.dark(0) {
		return errors.New("faults: the plane had moved before the controller was gone")
	}
	return g.recoversUnderNext()
}

// killWhileMoving kills the controller in the middle of a move of plane 0.
func (g *rig) killWhileMoving() error {
	if err := g.job.await(2); err != nil {
		return err
	}
	if err := g.whileMoving(0); err != nil {
		return err
	}
	if err := g.controllers[0].signal(syscall.SIGKILL); err != nil {
		return err
	}
	g.injected(time.Now(), "the controller is gone, and circuits are dark")
	return nil
}

// recoversUnderNext sees the job go on under the second controller.
func (g *rig) recoversUnderNext() error {
	if err := g.recovers(); err != nil {
		return err
	}
	if err := g.succeeded(); err != nil {
		return err
	}
	return g.goesOn()
}

// handOver ends the controller in good order.
func handOver(g *rig) error {
	if err := g.inOperation(0); err != nil {
		return err
	}
	at := time.Now()
	if err := g.controllers[0].signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := wait(g.ctx, "the controller ends", patience, func() (bool, error) { return g.controllers[0].ended(), nil })
	if err != nil {
		return err
	}
	if err := g.controllers[0].err; err != nil {
		return fmt.Errorf("faults: the controller: %w: %s", err, g.controllers[0].last())
	}
	g.injected(at, "the controller has ended with status 0")
	return g.recoversUnderNext()
}

// succeeded has the second controller's word that it rules, and has moved planes. Where the machine has
// stood still it may have had to take over more than once: the last time counts.
func (g *rig) succeeded() error {
	return wait(g.ctx, "the second controller rules, by its own history", patience, func() (bool, error) {
		e, err := g.happened(controller.TookOver, controller.AnyPlane, anyEvent)
		if err != nil {
			return false, err
		}
		s, err := g.operator.Status(g.ctx)
		if err != nil || s.Name != "c1" || s.Token <= 1 || s.Token != e.Token {
			return false, nil // it is asked again
		}
		g.Operator = fmt.Sprintf("took over: %s, token %d, %v after the fault", s.Name, s.Token, e.Time.Sub(g.injectedAt).Round(time.Millisecond))
		return true, nil
	})
}

// orphaned kills the only controller in the middle of a move.
func orphaned(g *rig) error {
	if err := g.killWhileMoving(); err != nil {
		return err
	}
	return g.fails(nil, "rank ", "plane ", "epoch ", "control")
}

// fenced stops the controller for longer than its lease lasts, until the other one has said something.
// When it goes on it finds that it has been replaced, and stands by.
func fenced(g *rig, until string) error {
	if err := g.inOperation(0); err != nil {
		return err
	}
	before, err := g.operator.Status(g.ctx)
	if err != nil {
		return err
	}
	if err := g.controllers[0].signal(syscall.SIGSTOP); err != nil {
		return err
	}
	g.injected(time.Now(), "the controller is stopped")
	if _, err := g.controllers[1].await(until, 0); err != nil {
		return err
	}
	told := g.controllers[0].told()
	if until == inCharge { // results come although the first one is still there, stopped
		err = g.recovers()
	}
	if err == nil {
		err = g.controllers[0].signal(syscall.SIGCONT)
	}
	if err != nil {
		return err
	}
	gone, err := g.controllers[0].await("not in charge any more", told)
	if err != nil {
		return err
	}
	if err := g.recovers(); err != nil {
		return err
	}
	if err := g.succeeded(); err != nil {
		return err
	}
	after, err := g.operator.Status(g.ctx)
	if err != nil {
		return err
	}
	if after.Token <= before.Token {
		return fmt.Errorf("faults: token %d follows %d", after.Token, before.Token)
	}
	_, why, _ := strings.Cut(gone, "reason=")
	g.Operator += "; c0: not in charge any more: " + strings.Trim(why, `"`)
	return g.goesOn()
}
