package netconf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver/netconf/wire"
	"lightpath/plans/circuit"
)

// The datastores. Running is the device itself.
const (
	running   = "running"
	candidate = "candidate"
)

// defaultConfirm and maxConfirm bound how long a confirmed commit waits (RFC 6241, section 8.4).
const (
	defaultConfirm = 600 * time.Second
	maxConfirm     = time.Hour
)

// config holds the values that clients can change.
type config struct {
	pairs     map[uint32]uint32 // egress by ingress
	averaging uint64            // averaging-time of all detectors, 1..8
}

func (c config) clone() config { return config{maps.Clone(c.pairs), c.averaging} }

// store has the datastores of a server, their locks, and an unconfirmed commit.
type store struct {
	dev       *device.Device
	cfg       Config
	in, out   []uint32 // port numbers
	fromID    map[uint32]int
	toID      map[uint32]int
	mu        sync.Mutex // held during an operation
	cand      *config    // nil while it is as running
	locks     map[string]uint64
	probation *probation
}

// probation is a commit that is undone unless it is confirmed.
type probation struct {
	session uint64
	persist string // "": only the session can confirm it
	undo    config
	timer   *time.Timer
}

func newStore(d *device.Device, c Config) (*store, error) {
	st := &store{dev: d, cfg: c, fromID: make(map[uint32]int), toID: make(map[uint32]int), locks: make(map[string]uint64)}
	seen := make(map[uint32]bool)
	for _, side := range []struct {
		device.Side
		ids  *[]uint32
		back map[uint32]int
	}{{device.Ingress, &st.in, st.fromID}, {device.Egress, &st.out, st.toID}} {
		for p := range d.Ports() {
			id, err := wire.PortID(d.Label(p, side.Side))
			if err != nil || seen[id] {
				return nil, fmt.Errorf("label %q of port %d is no number or not its own", d.Label(p, side.Side), p)
			}
			seen[id], side.back[id] = true, p
			*side.ids = append(*side.ids, id)
		}
	}
	return st, nil
}

// close drops the unconfirmed commit.
func (st *store) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.probation != nil {
		st.probation.timer.Stop()
		st.probation = nil
	}
}

// running reads the device's configuration. Ghost rows are no configuration.
func (st *store) running() config {
	c := config{pairs: make(map[uint32]uint32), averaging: averagingTime(st.dev.Averaging())}
	for in, out := range st.dev.Map() {
		if out != circuit.Dark {
			c.pairs[st.in[in]] = st.out[out]
		}
	}
	return c
}

// averagingTime returns the module's value for a window: 1 is 10 ms, and each step doubles it.
func averagingTime(window time.Duration) uint64 {
	v := uint64(1)
	for w := 10 * time.Millisecond; w < window && v < 8; w *= 2 {
		v++
	}
	return v
}

func (st *store) lock(id uint64, name string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if name == candidate && !st.cfg.Candidate {
		return rpcError("invalid-value", "", "there is no candidate")
	}
	denied := &wire.Error{Type: "protocol", Tag: "lock-denied"}
	switch owner, held := st.locks[name]; {
	case held:
		denied.Message, denied.Session = "lock held", owner
		return denied
	case name == candidate && st.cand != nil:
		denied.Message = "the candidate has changes"
		return denied
	case name == running && st.probation != nil && st.probation.session != id:
		denied.Message, denied.Session = "a commit waits to be confirmed", st.probation.session
		return denied
	}
	st.locks[name] = id
	return nil
}

func (st *store) unlock(id uint64, name string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.locks[name] != id {
		return rpcError("operation-failed", "", "not locked by this session")
	}
	delete(st.locks, name)
	return nil
}

// mine returns an error if another session has the lock of a datastore.
func (st *store) mine(id uint64, name string) error {
	if owner, held := st.locks[name]; held && owner != id {
		e := rpcError("in-use", "", fmt.Sprintf("%s is locked by session %d", name, owner))
		e.Type = "protocol"
		return e
	}
	return nil
}

// ended releases the locks of a session, and undoes its unconfirmed commit.
func (st *store) ended(id uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if p := st.probation; p != nil && p.session == id && p.persist == "" {
		_ = st.undo() // no client waits for the result
	}
	if st.locks[candidate] == id {
		st.cand = nil
	}
	maps.DeleteFunc(st.locks, func(_ string, owner uint64) bool { return owner == id })
}

func (st *store) edit(ctx context.Context, id uint64, op *wire.Element) error {
	target, err := datastore(op, "target")
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.mine(id, target); err != nil {
		return err
	}
	now := st.running()
	if target == candidate && st.cand != nil {
		now = st.cand.clone()
	}
	next, err := st.merge(now, op)
	switch {
	case err != nil:
		return err
	case target == running && st.cfg.Candidate, target == candidate && !st.cfg.Candidate:
		return rpcError("operation-not-supported", "", "the target cannot be edited")
	case op.Value(wire.BaseNS, "test-option") == "test-only":
		return st.check(next)
	case target == candidate:
		if op.Value(wire.BaseNS, "test-option") != "set" {
			if err := st.check(next); err != nil {
				return err
			}
		}
		st.cand = &next
		return nil
	}
	return st.put(ctx, next)
}

// check returns an error if the device would refuse a configuration.
func (st *store) check(next config) error {
	for _, err := range st.dev.Check(st.delta(next)) {
		if err != nil {
			return rpcError("operation-failed", "/cross-connects", err.Error())
		}
	}
	return nil
}

// put applies a configuration to the device. It changes nothing if the device would refuse any part of it.
func (st *store) put(ctx context.Context, next config) error {
	if err := st.check(next); err != nil {
		return err
	}
	remove, add := st.delta(next)
	if next.averaging != averagingTime(st.dev.Averaging()) {
		st.dev.SetAveraging(10 * time.Millisecond << (next.averaging - 1))
	}
	if len(remove)+len(add) == 0 {
		return nil
	}
	if err := errors.Join(st.dev.Apply(ctx, remove, add, st.cfg.Mode)...); err != nil {
		return rpcError("operation-failed", "/cross-connects", err.Error())
	}
	return nil
}

// delta returns the circuits to remove and to add, in order of ingress port.
func (st *store) delta(next config) (remove, add []circuit.Pair) {
	for in, out := range st.dev.Map() {
		want := circuit.Dark
		if egress, ok := next.pairs[st.in[in]]; ok {
			want = st.toID[egress]
		}
		if want == out {
			continue
		}
		if out != circuit.Dark {
			remove = append(remove, circuit.Pair{From: in, To: out})
		}
		if want != circuit.Dark {
			add = append(add, circuit.Pair{From: in, To: want})
		}
	}
	return remove, add
}

func (st *store) commit(ctx context.Context, id uint64, op *wire.Element) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.cfg.Candidate {
		return rpcError("operation-not-supported", "", "commit")
	}
	if err := errors.Join(st.mine(id, running), st.mine(id, candidate)); err != nil {
		return err
	}
	p := st.probation
	if persistID := op.Value(wire.BaseNS, "persist-id"); p != nil || persistID != "" {
		if err := p.mayEnd(id, persistID); err != nil {
			return err
		}
	}
	confirmed := op.Child(wire.BaseNS, "confirmed") != nil
	timeout, err := confirmTimeout(op)
	if err != nil {
		return err
	}
	before := st.running()
	if st.cand != nil {
		if err := st.put(ctx, *st.cand); err != nil {
			// All or nothing: undo the part that was made.
			return errors.Join(err, st.put(ctx, before))
		}
		st.cand = nil
	}
	if p != nil {
		p.timer.Stop()
		before, st.probation = p.undo, nil
	}
	if confirmed {
		next := &probation{session: id, persist: op.Value(wire.BaseNS, "persist"), undo: before}
		next.timer = time.AfterFunc(timeout, func() { st.expire(next) })
		st.probation = next
	}
	return nil
}

func confirmTimeout(op *wire.Element) (time.Duration, error) {
	s := op.Value(wire.BaseNS, "confirm-timeout")
	if s == "" {
		return defaultConfirm, nil
	}
	v, err := strconv.ParseUint(s, 10, 32)
	if err != nil || v < 1 || v > uint64(maxConfirm/time.Second) {
		return 0, rpcError("invalid-value", "", "confirm-timeout")
	}
	return time.Duration(v) * time.Second, nil
}

// mayEnd reports whether a session may confirm or cancel a commit; p is nil if there is none.
func (p *probation) mayEnd(id uint64, persistID string) error {
	switch {
	case p == nil:
		return rpcError("invalid-value", "", "no commit waits to be confirmed")
	case persistID != p.persist:
		return rpcError("invalid-value", "", "persist-id")
	case p.persist == "" && p.session != id:
		return rpcError("in-use", "", "another session's commit waits to be confirmed")
	}
	return nil
}

func (st *store) cancel(id uint64, persistID string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.probation.mayEnd(id, persistID); err != nil {
		return err
	}
	return st.undo()
}

// expire undoes a commit that no client has confirmed in time.
func (st *store) expire(p *probation) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.probation == p {
		_ = st.undo() // no client waits for the result; the device logs refusals
	}
}

// undo restores the configuration before the unconfirmed commit.
func (st *store) undo() error {
	p := st.probation
	p.timer.Stop()
	st.probation, st.cand = nil, nil
	return st.put(context.Background(), p.undo)
}

func (st *store) discard(id uint64) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.cfg.Candidate {
		return rpcError("operation-not-supported", "", "discard-changes")
	}
	if err := st.mine(id, candidate); err != nil {
		return err
	}
	st.cand = nil
	return nil
}

// validate checks the candidate as a commit would.
func (st *store) validate(op *wire.Element) error {
	source, err := datastore(op, "source")
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.cfg.Candidate {
		return rpcError("operation-not-supported", "", "validate")
	}
	if source == running || st.cand == nil {
		return nil
	}
	return st.check(*st.cand)
}

// datastore returns the datastore that a parameter names.
func datastore(op *wire.Element, parameter string) (string, error) {
	p := op.Child(wire.BaseNS, parameter)
	if p == nil || len(p.Children) != 1 {
		return "", rpcError("missing-element", "", parameter)
	}
	name := p.Children[0].Name.Local
	if !slices.Contains([]string{running, candidate}, name) {
		return "", rpcError("invalid-value", "", parameter)
	}
	return name, nil
}
