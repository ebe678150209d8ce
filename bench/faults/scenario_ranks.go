package faults

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/kernel"
)

// Sizes of operations, in bytes of each rank's buffers. A small one sends for some milliseconds; a large one lasts long
// enough for a fault in its middle.
const (
	small = 200 << 10
	large = 4 << 20
)

// steady is a job without incident.
func steady(n int) []phase { return []phase{{n, small, 5 * time.Millisecond}} }

// plenty is more operations than any scenario waits for.
const plenty = 2000

// interrupted is a job of large operations, which a fault interrupts.
func interrupted() []phase { return []phase{{2, small, 0}, {plenty, large, 0}} }

func rankScenarios() []scenario {
	return []scenario{
		{
			Name: "none", Fault: "nothing", GoesOn: true, Bound: time.Second,
			setup: setup{phases: steady(20)}, play: healthy,
		},
		{
			Name: "skipped-drain", Fault: "ranks ask for a switch of plane 0 with frames on the wire", Bound: 2 * time.Second,
			setup: setup{rate: 20e6, phases: []phase{{9, large, 0}}, env: []string{"LIGHTPATH_FAULT=skip-drain:0:2"}},
			play:  skippedDrain,
		},
		{
			Name: "rank-killed-in-operation", Fault: "SIGKILL to rank 2 while frames flow", Bound: 2 * time.Second,
			setup: setup{phases: interrupted()}, play: func(g *rig) error {
				return killRank(g, func() error { return g.whileCarrying(1) })
			},
		},
		{
			Name: "rank-killed-between-operations", Fault: "SIGKILL to rank 2 before it has asked for the next operation",
			Bound: 2 * time.Second,
			setup: setup{phases: []phase{{4, small, 0}, {1, small, 600 * time.Millisecond}}, apart: true},
			play:  func(g *rig) error { return killRank(g, g.resting) },
		},
		{
			Name: "rank-stalled", Fault: "SIGSTOP to rank 1 in an operation; LIGHTPATH_TIMEOUT=2s", Bound: 6 * time.Second,
			setup: setup{phases: interrupted(), timeout: 2 * time.Second}, play: stallRank,
		},
	}
}

// healthy is the control: circuits move, and nothing is lost.
func healthy(g *rig) error {
	g.injected(time.Now(), "-")
	if err := g.job.await(20); err != nil {
		return err
	}
	if err := g.recovers(); err != nil {
		return err
	}
	<-g.job.done
	for j := range planes {
		p, err := g.status(j)
		if err != nil {
			return err
		}
		if p.State != controller.Resident || p.Switches < 20 {
			return fmt.Errorf("faults: plane %d is %s after %d switches", j, p.State, p.Switches)
		}
		if j > 0 {
			g.Operator += ", "
		}
		g.Operator += fmt.Sprintf("%s: %d switches", p.Name, p.Switches)
	}
	return g.inService()
}

// skippedDrain waits until frames are lost and all ranks have reported it. Ranks may notice before the next reading of
// the counters, so the fault counts from the last reading without a loss.
func skippedDrain(g *rig) error {
	var lost uint64
	before := time.Now()
	err := wait(g.ctx, "frames are lost", patience, func() (ok bool, err error) {
		at, running := time.Now(), g.job.running()
		if lost, err = g.losses(); err != nil || lost > 0 {
			return lost > 0, err
		}
		before = at
		return false, running
	})
	if err != nil {
		return err
	}
	g.injected(before, fmt.Sprintf("the switch has dropped %d frames", lost))
	if err := g.fails(nil, "rank ", "plane 0", "epoch ", "lost"); err != nil {
		return err
	}
	seen, err := kernel.Inspect(g.view.State())
	if err == nil && len(seen.Problems) == 0 {
		err = errors.New("faults: fabric status shows no losses")
	}
	if err == nil {
		g.Operator = "fabric status: " + seen.Problems[0]
	}
	return err
}

// killRank ends a rank at a moment, and waits for the others to name it.
func killRank(g *rig, moment func() error) error {
	if err := g.job.await(2); err != nil {
		return err
	}
	if err := moment(); err != nil {
		return err
	}
	before := time.Now()
	if err := g.job.signal(2, syscall.SIGKILL); err != nil {
		return err
	}
	g.injected(before, "rank 2 is gone")
	if err := g.fails([]int{2}, "rank 2|rank of port 2"); err != nil {
		return err
	}
	return errors.Join(g.detached(2), g.inService())
}

// inService checks that no plane has been out of service.
func (g *rig) inService() error {
	for j := range planes {
		p, err := g.status(j)
		if err != nil {
			return err
		}
		if p.State == controller.Down || p.Failures > 0 {
			return fmt.Errorf("faults: plane %d is %s, with %d failures: %s", j, p.State, p.Failures, p.Reason)
		}
	}
	return nil
}

// detached waits for the controller's event that the rank of a port has left without a goodbye.
func (g *rig) detached(port int) error {
	e, err := g.happened(controller.Detached, controller.AnyPlane, func(e controller.Event) bool {
		return e.Port == port &&
			e.Err != ""
	})
	g.Operator = fmt.Sprintf("detached: port %d: %s", port, e.Err)
	return err
}

// stallRank stops a rank for longer than the others wait.
func stallRank(g *rig) error {
	if err := g.inOperation(0); err != nil {
		return err
	}
	before := time.Now()
	if err := g.job.signal(1, syscall.SIGSTOP); err != nil {
		return err
	}
	g.injected(before, "rank 1 is stopped")
	err := wait(g.ctx, "the controller says whom a plane waits for", patience, func() (bool, error) {
		s, err := g.operator.Status(g.ctx)
		for _, p := range s.Planes {
			if p.State == controller.Waiting && slices.Contains(p.Missing, 1) {
				g.Operator = fmt.Sprintf("status: plane %s waits for ports %v", p.Name, p.Missing)
			}
		}
		return g.Operator != "", errors.Join(err, g.job.running())
	})
	if err != nil {
		return err
	}
	// A rank whose timeout ends later may first get the news that an earlier rank has ended.
	if err := g.fails([]int{1}, "rank 1|ports 1|rank of port [023] disconnected"); err != nil {
		return err
	}
	if !g.job.named("rank 1|ports 1") {
		return fmt.Errorf("faults: no rank names the one that is stopped: %s", g.Ranks)
	}
	// When the rank continues, the controller tells it that it has lost its place.
	return g.job.signal(1, syscall.SIGCONT)
}
