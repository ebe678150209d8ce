package netconf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/internal/clock"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf/wire"
	"lightpath/plans/circuit"
)

// lockRetry is the time between two tries for a lock that another session holds.
const lockRetry = 20 * time.Millisecond

// Apply implements driver.Switch. The switch's locks are held from before the map is compared
// until the change is verified. If the switch can undo (confirmed commits) and then reports another map than After, the
// driver makes it undo the change, which counts as refused.
func (w *swtch) Apply(ctx context.Context, c driver.Change) ([]driver.Circuit, error) {
	var report []driver.Circuit
	err := w.use(ctx, func() (err error) {
		t := &transaction{swtch: w, after: c.After}
		defer t.release(ctx)
		tol := w.tol
		if err := t.begin(ctx); err != nil {
			return err
		}
		if c.Want >= driver.Light {
			window, err := t.shorten(ctx)
			if err != nil {
				return err
			}
			tol.Averaging = max(tol.Averaging, window)
		}
		report, err = driver.Carry(ctx, t, c, tol)
		return err
	})
	return report, w.wrap(err)
}

// transaction is a change in progress: a driver.Protocol that holds the locks.
type transaction struct {
	*swtch
	after  circuit.Permutation
	locked *session  // whose locks these are
	sent   time.Time // when the switch accepted the change
}

// stores are the datastores to lock, in order; the last one is edited.
func (t *transaction) stores() []string {
	if t.session.peer.Has(wire.CapCandidate) {
		return []string{running, candidate}
	}
	return []string{running}
}

func (t *transaction) edited() string {
	s := t.stores()
	return s[len(s)-1]
}

// begin takes the locks, and waits while other sessions hold them.
func (t *transaction) begin(ctx context.Context) error {
	end := time.Now().Add(t.wait)
	for {
		err := t.acquire(ctx)
		if !held(err) || time.Now().After(end) {
			return err
		}
		if err := clock.Sleep(ctx, lockRetry); err != nil {
			return err
		}
	}
}

// held reports whether a lock was refused because another session has it, or has an unconfirmed commit. For the latter,
// netconfd answers in-use.
func held(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && (e.Tag == "lock-denied" || e.Tag == "in-use")
}

// acquire takes the locks in the present session, or in a new one if that has ended.
func (t *transaction) acquire(ctx context.Context) error {
	stores := t.stores()
	if _, err := t.query(ctx, lock(stores[0])); err != nil {
		return err
	}
	t.locked = t.session
	for _, s := range stores[1:] {
		if err := t.do(ctx, lock(s)); err != nil {
			t.release(ctx)
			return err
		}
	}
	return t.settle(ctx, true)
}

// release releases the locks, also after the context has ended. If the switch does not answer, release ends the
// session, which releases its locks.
func (t *transaction) release(ctx context.Context) {
	has := t.holds()
	t.locked = nil
	if !has {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.wait)
	defer cancel()
	stores := t.stores()
	for i := len(stores) - 1; i >= 0; i-- {
		if _, err := t.call(ctx, unlock(stores[i])); errors.Is(err, errLost) {
			return
		}
	}
}

// holds reports whether this transaction still has the locks.
func (t *transaction) holds() bool {
	return t.locked != nil && t.locked == t.session && !t.session.broken
}

// Map implements driver.Protocol. If the session has ended, it opens another and takes the locks again: when they are
// free, no request of the old session can still act.
func (t *transaction) Map(ctx context.Context) (circuit.Permutation, error) {
	if !t.holds() {
		if err := t.connect(ctx); err != nil {
			return nil, err
		}
		if err := t.acquire(ctx); err != nil {
			return nil, err
		}
	}
	return t.read(ctx, t.call)
}

// Send implements driver.Protocol. A switch that announces rollback accepts an edit as a whole or not at all. At other
// switches, an error may leave a part of it, which reading back shows.
func (t *transaction) Send(ctx context.Context, _ uint64, remove, add []circuit.Pair) ([]error, error) {
	if !t.holds() {
		return nil, fmt.Errorf("%w: the session ended, and its locks with it, before the change was asked for",
			driver.ErrRefused)
	}
	store, peer := t.edited(), t.session.peer
	change := edit(store, peer, t.delta(remove, add))
	if store == running {
		_, err := t.call(ctx, change)
		t.sent = time.Now()
		return t.partly(err, len(remove)+len(add))
	}
	_, err := t.call(ctx, change)
	if err != nil {
		err = fmt.Errorf("%w: %w", driver.ErrRefused, err) // only a commit changes the switch
	} else {
		err = t.commit(ctx)
	}
	t.clean(ctx, err)
	return nil, err
}

// clean discards a refused candidate, which would prevent other sessions from taking the lock.
func (t *transaction) clean(ctx context.Context, err error) {
	if errors.Is(err, driver.ErrRefused) && !t.session.broken {
		_ = t.do(ctx, base("discard-changes")) // if the session ends, so does its candidate
	}
}

// partly interprets the answer to an edit of the running datastore: after an error, a switch without rollback may have
// made a part of the change.
func (t *transaction) partly(err error, n int) ([]error, error) {
	if err == nil || !errors.Is(err, driver.ErrRefused) || t.session.peer.Has(wire.CapRollback) {
		return nil, err
	}
	each := slices.Repeat([]error{err}, n)
	return each, nil
}

// delta returns the edit: deletes, then circuits that move, then new ones. A row is keyed by its ingress, so a circuit
// that moves is a single row.
func (t *transaction) delta(remove, add []circuit.Pair) *wire.Element {
	e := wire.CrossConnects(nil)
	old := make(map[int]bool, len(remove))
	for _, p := range remove {
		old[p.From] = true
	}
	row := func(p circuit.Pair, op string) {
		e.Children = append(e.Children, wire.PairElement(wire.Pair{Ingress: t.ports.in[p.From],
			Egress: t.ports.out[p.To]}, op))
	}
	for _, p := range remove {
		if t.after[p.From] == circuit.Dark {
			row(p, "delete")
		}
	}
	for _, p := range add {
		if old[p.From] {
			row(p, "replace")
		}
	}
	for _, p := range add {
		if !old[p.From] {
			row(p, "create")
		}
	}
	return e
}
