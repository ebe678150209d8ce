package netconf

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf/wire"
	"lightpath/plans/circuit"
)

// confirmWithin is the time after which a switch undoes a commit without confirmation.
const confirmWithin = 10 * time.Second

// pending is a requested confirmed commit.
type pending struct {
	id     string
	after  circuit.Permutation
	undone bool // the driver has requested its undo
}

// commit commits the candidate, by a confirmed commit if the switch has them.
func (t *transaction) commit(ctx context.Context) error {
	if !t.session.peer.Has(wire.CapConfirmed) {
		_, err := t.call(ctx, base("commit"))
		t.sent = time.Now()
		return err
	}
	p := &pending{id: "lightpath-" + rand.Text(), after: t.after}
	t.pending = p
	_, err := t.call(ctx, commitConfirmed(p.id, confirmWithin))
	t.sent = time.Now()
	if errors.Is(err, driver.ErrRefused) {
		t.pending = nil
	}
	if err != nil {
		return err // after a lost answer, the next session settles it
	}
	if err := t.settle(ctx, true); err != nil {
		return err
	}
	if p.undone {
		return fmt.Errorf("%w: it made another map than asked for, and has been told to undo it", driver.ErrRefused)
	}
	return nil
}

// settle ends a confirmed commit: it confirms the commit if the switch has the requested map, and cancels it otherwise.
// A refusal means that the commit has ended already, that it has not begun yet, or that an older session still has the
// locks. Only with the locks, when no older session can still act, does it mean that the commit has ended.
func (w *swtch) settle(ctx context.Context, locked bool) error {
	p := w.pending
	if p == nil {
		return nil
	}
	now, err := w.read(ctx, w.call)
	if err != nil && !errors.Is(err, driver.ErrNotMatching) {
		return err
	}
	p.undone = err != nil || !now.Equal(p.after)
	end := confirm(p.id)
	if p.undone {
		end = cancelCommit(p.id)
	}
	_, err = w.call(ctx, end)
	if err != nil && !errors.Is(err, driver.ErrRefused) {
		return err
	}
	if err == nil || locked {
		w.pending = nil
	}
	return nil
}
