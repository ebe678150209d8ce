package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"lightpath/plans/circuit"
)

// injected notes the time of the fault and its proof.
func (g *rig) injected(at time.Time, proof string) {
	g.injectedAt, g.Injected = at, proof
}

// inject makes the switch play a script with one fault, and waits until the fault has happened.
func (g *rig) inject(script string) error {
	at := time.Now()
	what, err := g.script(script)
	if err == nil {
		g.injected(at, "the switch says: "+what)
	}
	return err
}

// injectInOperation injects a fault while a plane carries frames.
func (g *rig) injectInOperation(plane int, script string) error {
	if err := g.inOperation(plane); err != nil {
		return err
	}
	return g.inject(script)
}

// script makes the switch play a script, and returns the switch's report.
func (g *rig) script(script string) (what string, err error) {
	if err := os.WriteFile(g.path("faults.yaml"), []byte(script), 0o600); err != nil {
		return "", err
	}
	p, sign := g.controllers[0], "fault="
	if g.scpi {
		p, sign = g.sw, "ocs: fault: "
	}
	told := p.told()
	if err := p.signal(syscall.SIGHUP); err != nil {
		return "", err
	}
	l, err := p.await(sign, told)
	if err != nil {
		return "", err
	}
	_, what, _ = strings.Cut(l, sign)
	return strings.Trim(what, `"`), nil
}

// lightpath runs a command of an operator against the controllers.
func (g *rig) lightpath(args ...string) (string, error) {
	cmd := exec.CommandContext(g.ctx, g.o.Lightpath, append(args, "--controller", strings.Join(g.listen, ","))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("faults: lightpath %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}

// putBack has an operator put a plane back into service with a command, and waits until it carries frames again.
func (g *rig) putBack(plane int, command ...string) error {
	if _, err := g.lightpath(slices.Concat(command, []string{"--plane", fmt.Sprintf("p%d", plane)})...); err != nil {
		return err
	}
	return g.carriesAgain(plane)
}

// losses returns how many data frames the kernel has lost.
func (g *rig) losses() (frames uint64, err error) {
	for j := range planes {
		for r := range ranks {
			c, err := g.view.Counters(j, r)
			if err != nil {
				return 0, err
			}
			s := c.Stats()
			frames += s.Dark + s.Misdirected + s.CameBack + s.Strayed
		}
	}
	return frames, nil
}

// carried returns how many frames a plane has carried.
func (g *rig) carried(plane int) (frames uint64, err error) {
	for r := range ranks {
		c, err := g.view.Counters(plane, r)
		if err != nil {
			return 0, err
		}
		frames += c.Stats().Forwarded
	}
	return frames, nil
}

// whileCarrying returns in the middle of a transmission over a plane.
func (g *rig) whileCarrying(plane int) error {
	before, err := g.carried(plane)
	if err != nil {
		return err
	}
	start := before
	return wait(g.ctx, fmt.Sprintf("plane %d carries frames", plane), patience, func() (bool, error) {
		now, err := g.carried(plane)
		flowing := now > before && now > start+16 && !g.dark(plane)
		before = now
		return flowing, errors.Join(err, g.job.running())
	})
}

// dark reports whether circuits of a plane are dark.
func (g *rig) dark(plane int) bool {
	m, err := g.view.Map(plane)
	return err == nil && slices.Contains(m, circuit.Dark)
}

// inOperation is whileCarrying after the first operations.
func (g *rig) inOperation(plane int) error {
	if err := g.job.await(2); err != nil {
		return err
	}
	return g.whileCarrying(plane)
}

// whileMoving returns in the middle of a reconfiguration of a plane.
func (g *rig) whileMoving(plane int) error {
	if err := g.whileCarrying(plane); err != nil {
		return err
	}
	return wait(g.ctx, fmt.Sprintf("plane %d moves", plane), patience, func() (bool, error) {
		return g.dark(plane), g.job.running()
	})
}

// whileFree returns when no communicator holds a plane.
func (g *rig) whileFree() error {
	return wait(g.ctx, "the planes are free", patience, func() (bool, error) {
		s, err := g.operator.Status(g.ctx)
		return err == nil && len(s.Planes[0].Holders)+len(s.Planes[1].Holders) == 0, nil
	})
}
