package exec

import (
	"fmt"
	"time"

	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
	"lightpath/plans/circuit"
)

// Switch moves planes with circuits, as a rank has a part in it. [ocsctl.Use] is one; so are its errors.
type Switch interface {
	// Post asks to move plane from epoch to target. It returns at once.
	Post(plane int, epoch uint32, target circuit.Permutation) error
	// Poll reports the plane's epoch, and its failure once there is one.
	Poll(plane int) (epoch uint32, err error)
}

// epoch returns the absolute epoch of a relative one.
func (t *Task) epoch(plane int, relative uint32) uint32 {
	if plane < len(t.base) {
		return t.base[plane] + relative
	}
	return relative
}

// settled reports whether the plane has the circuits that the stage needs: at the start of
// the program the reset of the operation before it may still be under way.
func (t *Task) settled(l *lane) (bool, error) {
	epoch, err := t.call.OCS.Poll(l.id)
	if err != nil {
		return false, t.failPlane(l, err)
	}
	if int32(epoch-l.settle) < 0 {
		return false, nil
	}
	l.gated = false
	if t.tracing && l.posted != program.None {
		t.events[l.posted].End = monotonic.Now()
	}
	return true, nil
}

// endStage does this rank's part of the reconfiguration that ends a stage: drain, then
// request. Nothing waits for the switch but what the next stage sends, so a
// reconfiguration that nothing follows is posted and left behind.
func (t *Task) endStage(l *lane) (bool, error) {
	st := &t.prog.Lanes[l.id].Stages[l.stage]
	if st.Reconf == program.None {
		l.finished = true
		return false, nil
	}
	op := &t.ops[st.Reconf]
	if op.Moves {
		ok, err := t.drained(l, op)
		if err != nil || !ok {
			return false, err
		}
		target := t.target(l.id, int(op.Config))
		from := t.epoch(l.id, op.Epoch)
		t.began(st.Reconf)
		if t.call.SwitchAt == nil {
			if err := t.call.OCS.Post(l.id, from, target); err != nil {
				return false, t.failPlane(l, err)
			}
		}
		l.settle, l.gated, l.posted = from+1, true, t.past+st.Reconf
	}
	t.complete(st.Reconf)
	if t.tracing {
		t.events[t.past+st.Reconf].End = 0 // known when the plane has settled
	}
	l.stage++
	t.enterStage(l)
	return true, nil
}

func (t *Task) drained(l *lane, op *program.Op) (bool, error) {
	if t.call.SkipDrain != nil && t.call.SkipDrain(l.id, t.epoch(l.id, op.Epoch)) {
		return true, nil
	}
	late := t.late(op) // before the look: what is drained then was in time
	ok, err := t.planes[l.id].Drained()
	if err != nil {
		return false, t.failPlane(l, err)
	}
	if !ok && late > 0 {
		return false, t.failPlane(l, fmt.Errorf("not drained %v after it: %w", late, ErrLate))
	}
	return ok, nil
}

// late returns for how long the time of a reconfiguration has been over; not positive where it
// has yet to come, or has none.
func (t *Task) late(op *program.Op) time.Duration {
	if t.call.SwitchAt == nil {
		return 0
	}
	return time.Duration(time.Now().UnixNano() - t.call.SwitchAt[op.Plane][op.Config-1])
}

// onTime fails a stage that has something left to send or pass on when the plane moves: by this
// rank's own circuit, or by circuits further on, which nobody holds frames back from where the
// kernel steers.
func (t *Task) onTime(l *lane) error {
	st := &t.prog.Lanes[l.id].Stages[l.stage]
	if st.Reconf == program.None {
		return nil
	}
	op := &t.ops[st.Reconf]
	if !op.Moves && l.steer == nil {
		return nil
	}
	if late := t.late(op); late > 0 {
		return t.failPlane(l, fmt.Errorf("%d of %d transmissions left %v after it: %w", l.left, st.Ops, late, ErrLate))
	}
	return nil
}

// watch looks for failures of the planes in use that no operation would notice.
func (t *Task) watch() error {
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
		t.prog.Rank, l.id, l.settle, t.call.Op, err)
}
