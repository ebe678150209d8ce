package exec

import (
	"fmt"

	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
	"lightpath/plans/circuit"
)

// Switch is a rank's view of the switches of planes with circuits. Package shim/circuits implements it; package ocsctl
// defines the errors.
type Switch interface {
	// Post requests that plane switches from epoch to the map target. It returns at once.
	Post(plane int, epoch uint32, target circuit.Permutation) error
	// Poll returns the plane's epoch, or an error if the plane has failed.
	Poll(plane int) (epoch uint32, err error)
}

// epoch returns the absolute epoch of a relative one.
func (t *Task) epoch(plane int, relative uint32) uint32 {
	if plane < len(t.base) {
		return t.base[plane] + relative
	}
	return relative
}

// hasCircuits reports whether the plane has the circuits of the stage. At the start of a program, a reconfiguration of
// the previous operation may still be in progress.
func (t *Task) hasCircuits(l *lane) (bool, error) {
	epoch, err := t.call.OCS.Poll(l.id)
	if err != nil {
		return false, t.failPlane(l, err)
	}
	if int32(epoch-l.awaitedEpoch) < 0 {
		t.noteHold(l, true)
		return false, nil
	}
	t.noteHold(l, false)
	l.awaitsCircuits = false
	if t.tracing && l.posted != program.None {
		t.events[l.posted].End = monotonic.Now()
	}
	return true, nil
}

// endStage takes part in the reconfiguration at the end of a stage: the rank drains, then posts its request. Only the
// sends of the next stage wait for the switch, so the program does not wait for its last reconfiguration.
func (t *Task) endStage(l *lane) (bool, error) {
	st := &t.prog.Lanes[l.id].Stages[l.stage]
	if st.Reconf == program.None {
		l.finished = true
		return false, nil
	}
	in := &t.code[st.Reconf]
	if in.Moves {
		ok, err := t.drained(l, in)
		if err != nil || !ok {
			return false, err
		}
		target := t.target(l.id, int(in.Config))
		from := t.epoch(l.id, in.Epoch)
		t.noteBegin(st.Reconf)
		if err := t.call.OCS.Post(l.id, from, target); err != nil {
			return false, t.failPlane(l, err)
		}
		l.awaitedEpoch, l.awaitsCircuits, l.posted = from+1, true, t.codeBefore+st.Reconf
	}
	t.complete(st.Reconf)
	if t.tracing {
		t.events[t.codeBefore+st.Reconf].End = 0 // hasCircuits sets it
	}
	l.stage++
	t.enterStage(l)
	return true, nil
}

func (t *Task) drained(l *lane, in *program.Instruction) (bool, error) {
	if t.call.SkipDrain != nil && t.call.SkipDrain(l.id, t.epoch(l.id, in.Epoch)) {
		return true, nil
	}
	ok, err := t.planes[l.id].Drained()
	if err != nil {
		return false, t.failPlane(l, err)
	}
	return ok, nil
}

// checkSwitches checks the planes in use for failures of their switches.
func (t *Task) checkSwitches() error {
	if t.call.OCS == nil {
		return nil
	}
	for i := range t.lanes {
		if pl := &t.prog.Lanes[i]; len(pl.TX)+len(pl.RX) == 0 {
			continue
		}
		if _, err := t.call.OCS.Poll(i); err != nil {
			return t.failPlane(&t.lanes[i], err)
		}
	}
	return nil
}

func (t *Task) failPlane(l *lane, err error) error {
	return fmt.Errorf("exec: rank %d plane %d epoch %d operation %d: %w",
		t.prog.Rank, l.id, l.awaitedEpoch, t.call.Op, err)
}
