package netconf

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf/wire"
	"lightpath/plans/circuit"
)

const (
	// lockRetry is the time between two tries for a lock that somebody holds.
	lockRetry = 20 * time.Millisecond
	// confirmWithin is after what time a switch undoes a commit that nobody confirms.
	confirmWithin = 10 * time.Second
	// guard is how long after a change states are not looked at: the module has no word for a
	// mirror on its way, and its port states may be those of the shutters.
	guard = 30 * time.Millisecond
	// fastAveraging is the shortest averaging time of a detector, and fastWindow how long that
	// takes, with a reserve: the module says around 10 ms.
	fastAveraging = "1"
	fastWindow    = 15 * time.Millisecond
)

// Words of /port-config/port/status.
const (
	stateEnabled     = "ENABLED"
	stateUnsupported = "UNSUPPORTED"
	stateFailed      = "FAILED"
)

// pending is a confirmed commit that has been asked for.
type pending struct {
	id     string
	after  circuit.Permutation
	undone bool // the switch has been told to undo it
}

// Apply implements driver.Switch. The switch's locks are held from before the map is compared
// until the change is verified. Where the switch can undo (confirmed commits) and the map it
// then reports is not After, it is told to, and the change counts as refused.
func (w *Switch) Apply(ctx context.Context, c driver.Change) ([]driver.Circuit, error) {
	var report []driver.Circuit
	err := w.use(ctx, func() (err error) {
		if len(c.Before) != len(w.ports.in) || len(c.After) != len(w.ports.in) {
			return fmt.Errorf("%w: maps of %d and %d ports, the switch has %d", driver.ErrRefused, len(c.Before), len(c.After), len(w.ports.in))
		}
		t := &transaction{Switch: w, after: c.After}
		if err := t.begin(ctx, c.Want); err != nil {
			return err
		}
		defer t.release(ctx)
		report, err = driver.Carry(ctx, t, c, w.tol)
		return err
	})
	return report, w.wrap(err)
}

// transaction is a change on its way: a driver.Protocol that holds the locks.
type transaction struct {
	*Switch
	after  circuit.Permutation
	locked *session  // whose locks these are
	sent   time.Time // when the switch took the change
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

// begin takes the locks, waiting for whoever holds them, and prepares the detectors.
func (t *transaction) begin(ctx context.Context, want driver.Level) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()
	for {
		err := t.acquire(ctx)
		if err == nil {
			break
		}
		var held *wire.Error
		if !errors.As(err, &held) || held.Tag != "lock-denied" || sleep(ctx, lockRetry) != nil {
			return err
		}
	}
	if want < driver.Light {
		return nil
	}
	return t.shorten(ctx)
}

// acquire takes the locks on the session that there is, or on a new one where that has ended.
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

// release gives the locks back; it works after the context has ended, too. Where the switch
// does not answer, the session ends, and its locks with it.
func (t *transaction) release(ctx context.Context) {
	if t.session == nil || t.session.broken || t.locked != t.session {
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

// hold opens another session where the last one has ended, and takes the locks again: while
// they are free, no request of the old session acts any more.
func (t *transaction) hold(ctx context.Context) error {
	if t.locked == t.session && !t.session.broken {
		return nil
	}
	if err := t.connect(ctx); err != nil {
		return err
	}
	return t.acquire(ctx)
}

// Map implements driver.Protocol.
func (t *transaction) Map(ctx context.Context) (circuit.Permutation, error) {
	if err := t.hold(ctx); err != nil {
		return nil, err
	}
	return t.read(ctx, t.call)
}

// Send implements driver.Protocol. An edit is taken whole or not at all where the switch says
// that it rolls back; where it does not, what an error leaves behind is for reading back.
func (t *transaction) Send(ctx context.Context, _ uint64, remove, add []circuit.Pair) ([]error, error) {
	if err := t.hold(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrRefused, err)
	}
	store, peer := t.edited(), t.session.peer
	change := edit(store, peer, t.delta(remove, add))
	if store == running {
		_, err := t.call(ctx, change)
		t.sent = time.Now()
		return t.partly(err, len(remove)+len(add))
	}
	err := t.do(ctx, base("discard-changes"), change)
	if err != nil {
		err = fmt.Errorf("%w: %w", driver.ErrRefused, err) // only a commit touches the switch
	} else {
		err = t.commit(ctx)
	}
	t.clean(ctx, err)
	return nil, err
}

// clean leaves no candidate behind that was refused: it would keep everybody from the lock.
func (t *transaction) clean(ctx context.Context, err error) {
	if errors.Is(err, driver.ErrRefused) && !t.session.broken {
		_ = t.do(ctx, base("discard-changes")) // if the session ends, so does its candidate
	}
}

// partly sorts an answer to an edit of the running datastore: an error of a switch that does
// not roll back may come with part of the change made.
func (t *transaction) partly(err error, n int) ([]error, error) {
	if err == nil || !errors.Is(err, driver.ErrRefused) || t.session.peer.Has(wire.CapRollback) {
		return nil, err
	}
	each := make([]error, n)
	for i := range each {
		each[i] = err
	}
	return each, nil
}

// commit makes the candidate run, on probation where the switch can.
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
		return err // if lost, the next session settles it
	}
	if err := t.settle(ctx, true); err != nil {
		return err
	}
	if p.undone {
		return fmt.Errorf("%w: it made another map than asked for, and has been told to undo it", driver.ErrRefused)
	}
	return nil
}

// settle ends a confirmed commit: it confirms it where the switch has the map that was asked
// for, and has it undone where not. An end that is refused is one that has come already, or
// one that comes before its beginning: only locked, with no older session that may still act,
// can the two be told apart.
func (w *Switch) settle(ctx context.Context, locked bool) error {
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
	if err == nil || locked || !p.undone {
		w.pending = nil
	}
	return nil
}

// delta is the edit: deletes, then circuits that move, then new ones. A circuit is keyed by
// its ingress, so one that moves is a single row.
func (t *transaction) delta(remove, add []circuit.Pair) *wire.Element {
	e := wire.CrossConnects(nil, "")
	old := make(map[int]bool, len(remove))
	for _, p := range remove {
		old[p.From] = true
	}
	row := func(p circuit.Pair, op string) {
		e.Children = append(e.Children, wire.PairElement(wire.Pair{Ingress: t.ports.in[p.From], Egress: t.ports.out[p.To]}, op))
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

// States implements driver.Protocol.
func (t *transaction) States(ctx context.Context, circuits []circuit.Pair) ([]driver.State, error) {
	if err := sleep(ctx, time.Until(t.sent.Add(guard))); err != nil {
		return nil, err
	}
	data, err := t.query(ctx, get(optical("port-config")))
	if err != nil {
		return nil, err
	}
	states, err := wire.PortStates(data)
	if err != nil || len(states) == 0 {
		return nil, protocol(err)
	}
	all := make([]driver.State, len(circuits))
	for i, c := range circuits {
		all[i] = driver.Up
		for _, id := range []uint32{t.ports.in[c.From], t.ports.out[c.To]} {
			switch s, known := states[id]; {
			case !known, s == stateEnabled, s == stateUnsupported:
			case s == stateFailed:
				all[i] = driver.Failed
			case all[i] == driver.Up:
				all[i] = driver.Pending
			}
		}
	}
	return all, nil
}

// Light implements driver.Protocol.
func (t *transaction) Light(ctx context.Context, circuits []circuit.Pair) ([]float64, error) {
	data, err := t.query(ctx, get(optical("opm-power")))
	if err != nil {
		return nil, err
	}
	powers, err := wire.Powers(data)
	if err != nil || len(powers) == 0 {
		return nil, protocol(err)
	}
	dbm := make([]float64, len(circuits))
	for i, c := range circuits {
		var ok bool
		if dbm[i], ok = powers[t.ports.out[c.To]]; !ok {
			dbm[i] = math.NaN()
		}
	}
	return dbm, nil
}

// shorten sets the detectors of the egress ports to their shortest averaging time where they
// have another.
func (t *transaction) shorten(ctx context.Context) error {
	data, err := t.query(ctx, get(optical("opm-config")))
	if err != nil {
		return err
	}
	config := optical("opm-config")
	if have := data.Child(wire.OpticalNS, "opm-config"); have != nil {
		for _, row := range have.Children {
			id, err := wire.PortID(row.Value(wire.OpticalNS, "port-id"))
			if _, ours := t.ports.egress[id]; err != nil || !ours || row.Value(wire.OpticalNS, "averaging-time") == fastAveraging {
				continue
			}
			config.Children = append(config.Children, optical("port",
				wire.Leaf(wire.OpticalNS, "port-id", strconv.FormatUint(uint64(id), 10)),
				wire.Leaf(wire.OpticalNS, "averaging-time", fastAveraging)))
		}
	}
	if len(config.Children) == 0 {
		return nil
	}
	store := t.edited()
	if store == running {
		return t.do(ctx, edit(store, t.session.peer, config))
	}
	err = t.do(ctx, base("discard-changes"), edit(store, t.session.peer, config), base("commit"))
	t.clean(ctx, err)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
