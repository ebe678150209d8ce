package faults

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"lightpath/ocsctl/controller"
)

func controllerScenarios() []scenario {
	twoRemote := setup{standby: true, remote: true, phases: interrupted(), open: true}
	moving, behindSCPI := twoRemote, twoRemote
	moving.reconfig = longMove
	behindSCPI.scpi, behindSCPI.verify = true, "status"
	return []scenario{
		{
			Name: "controller-killed-standby", GoesOn: true, Bound: lease + 10*time.Second,
			Fault: "SIGKILL to the controller while plane 0 moves; ranks on gRPC, another controller stands by",
			setup: moving, play: takeover,
		},
		{
			Name: "controller-handed-over", GoesOn: true, Bound: 10 * time.Second,
			Fault: "SIGTERM to the controller while frames flow, as for an upgrade; another one stands by",
			setup: twoRemote, play: handOver,
		},
		{
			Name: "controller-killed-alone", Bound: 2 * time.Second,
			Fault: "SIGKILL to the controller while plane 0 moves; ranks on its socket",
			setup: setup{reconfig: longMove, phases: interrupted()}, play: orphaned,
		},
		{
			Name: "controller-killed-remote-alone", Bound: 8 * time.Second,
			Fault: "SIGKILL to the only controller while plane 0 moves; ranks on gRPC; LIGHTPATH_TIMEOUT=3s",
			setup: setup{remote: true, timeout: 3 * time.Second, reconfig: longMove, phases: interrupted()}, play: orphaned,
		},
		{
			Name: "controller-stopped", GoesOn: true, Bound: lease + 10*time.Second,
			Fault: "SIGSTOP to the controller for longer than its lease, then SIGCONT; another one stands by; switch " +
				"behind SCPI",
			setup: behindSCPI, play: func(g *rig) error { return fenced(g, inCharge) },
		},
		{
			Name: "controller-stopped-with-planes", GoesOn: true, Bound: lease + 20*time.Second,
			Fault: "the same, but only the stopped controller may write the planes in the kernel until it continues",
			setup: twoRemote, play: func(g *rig) error { return fenced(g, "waiting for the planes") },
		},
	}
}

// longMove is a reconfiguration time in which a fault can happen.
const longMove = 50 * time.Millisecond

// What controllers log.
const (
	inCharge    = "in charge"
	deposedText = "not in charge any more" // the controller has lost its lease
)

// goesOn waits for more operations than one grant lasts, so that ranks are granted planes anew.
func (g *rig) goesOn() error { return g.job.await(g.job.operations() + 5) }

// leadership is the controller in charge at a time.
type leadership struct {
	*process
	name  string
	token uint64
	lines int // that the controller had logged
}

// leader returns the controller in charge. On a loaded machine that need not be the first one: a controller that the
// system does not run for as long as its lease loses it.
func (g *rig) leader() (l leadership, err error) {
	err = wait(g.ctx, "a controller is in charge", patience, func() (bool, error) {
		s, err := g.operator.Status(g.ctx)
		if err != nil {
			return false, nil // ask again
		}
		for i, c := range g.controllers {
			if s.Name == controllerName(i) {
				l = leadership{c, s.Name, s.Token, c.told()}
				return true, nil
			}
		}
		return false, fmt.Errorf("controller %q is in charge", s.Name)
	})
	return l, err
}

// deposed reports whether the controller has lost its lease since it was found in charge.
func (l leadership) deposed() bool {
	_, deposed := l.said(deposedText, l.lines)
	return deposed
}

// takeover kills the controller in the middle of a move, which the next one finishes.
func takeover(g *rig) error {
	l, err := g.killWhileMoving()
	if err != nil {
		return err
	}
	return g.recoversAfter(l)
}

// killWhileMoving kills the controller in charge in the middle of a move of plane 0. On a loaded machine the move or
// the lease may end before the signal arrives. So killWhileMoving first stops the controller. It tries again unless the
// plane is dark and the controller is still in charge.
func (g *rig) killWhileMoving() (leadership, error) {
	if err := g.job.await(2); err != nil {
		return leadership{}, err
	}
	for {
		l, err := g.leader()
		if err != nil {
			return l, err
		}
		if err := g.whileMoving(0); err != nil {
			return l, err
		}
		at := time.Now()
		if err := l.signal(syscall.SIGSTOP); err != nil {
			return l, err
		}
		if g.dark(0) && !l.deposed() {
			g.injected(at, "the controller is gone, and circuits are dark")
			return l, l.signal(syscall.SIGKILL)
		}
		if err := l.signal(syscall.SIGCONT); err != nil {
			return l, err
		}
	}
}

// recoversAfter waits until the job goes on under another controller than l.
func (g *rig) recoversAfter(l leadership) error {
	if err := g.recovers(); err != nil {
		return err
	}
	if err := g.succeeded(l); err != nil {
		return err
	}
	return g.goesOn()
}

// handOver ends the controller with SIGTERM.
func handOver(g *rig) error {
	if err := g.inOperation(0); err != nil {
		return err
	}
	l, err := g.leader()
	if err != nil {
		return err
	}
	at := time.Now()
	if err := l.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ended := func() (bool, error) { return isClosed(l.done), nil }
	if err := wait(g.ctx, "the controller ends", patience, ended); err != nil {
		return err
	}
	if l.err != nil {
		return fmt.Errorf("faults: the controller: %w: %s", l.err, l.last())
	}
	g.injected(at, "the controller has ended with status 0")
	return g.recoversAfter(l)
}

// succeeded waits until the history of another controller than l says that it took over. On a machine that stood still
// it may have taken over several times; the last time counts.
func (g *rig) succeeded(l leadership) error {
	return wait(g.ctx, "another controller is in charge, by its own history", patience, func() (bool, error) {
		e, err := g.happened(controller.TookOver, controller.AnyPlane, anyEvent)
		if err != nil {
			return false, err
		}
		s, err := g.operator.Status(g.ctx)
		if err != nil || s.Name == l.name || s.Token <= l.token || s.Token != e.Token {
			return false, nil // ask again
		}
		after := e.Time.Sub(g.injectedAt).Round(time.Millisecond)
		g.Operator = fmt.Sprintf("took over: %s, token %d, %v after the fault", s.Name, s.Token, after)
		return true, nil
	})
}

// orphaned kills the only controller in the middle of a move.
func orphaned(g *rig) error {
	if _, err := g.killWhileMoving(); err != nil {
		return err
	}
	return g.fails(nil, "rank ", "plane ", "epoch ", "control")
}

// fenced stops the controller for longer than its lease, until the other one logs a text. When the stopped controller
// continues, it finds that it has been replaced, and stands by.
func fenced(g *rig, until string) error {
	if err := g.inOperation(0); err != nil {
		return err
	}
	l, err := g.leader()
	if err != nil {
		return err
	}
	other := g.controllers[0]
	if other == l.process {
		other = g.controllers[1]
	}
	lines := other.told()
	before := time.Now()
	if err := l.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	g.injected(before, "the controller is stopped")
	if _, err := other.await(until, lines); err != nil {
		return err
	}
	if until == inCharge { // the ranks recover while the first controller is still stopped
		err = g.recovers()
	}
	if err == nil {
		err = l.signal(syscall.SIGCONT)
	}
	if err != nil {
		return err
	}
	gone, err := l.await(deposedText, l.lines)
	if err != nil {
		return err
	}
	if err := g.recovers(); err != nil {
		return err
	}
	if err := g.succeeded(l); err != nil {
		return err
	}
	_, why, _ := strings.Cut(gone, "reason=")
	g.Operator += fmt.Sprintf("; %s: %s: %s", l.name, deposedText, strings.Trim(why, `"`))
	return g.goesOn()
}
