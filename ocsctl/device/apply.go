package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/plans/circuit"
)

// Apply removes circuits, then makes circuits, and returns while the switch still moves; see Status and Wait. It
// returns one result per circuit of remove, then of add: nil if the switch accepted it. It does not change a circuit to
// add that already exists.
func (d *Device) Apply(ctx context.Context, remove, add []circuit.Pair, mode Mode) []error {
	d.lock()
	defer d.unlock()
	results := make([]error, len(remove)+len(add))
	if err := d.ready(ctx); err != nil {
		for i := range results {
			results[i] = err
		}
		return results
	}
	d.faults.arm()
	now := d.cfg.Now()
	for i, p := range remove {
		if results[i] = d.mayRemove(p); results[i] == nil {
			d.cut(now, d.byIn[p.From], "")
		}
		d.refused(now, p, results[i])
	}
	limit := d.faults.bulkLimit(mode, len(add))
	at := now.Add(d.preset.Delays.Program + d.preset.Delays.PerCircuit*time.Duration(len(add)))
	if mode == Serial && d.busyUntil.After(at) {
		at = d.busyUntil
	}
	for i, p := range add {
		var err error
		if i >= limit.taken {
			err = fmt.Errorf("%s: %w", d.name(p), ErrPartial)
			if !limit.silent {
				d.refused(now, p, err)
				results[len(remove)+i] = err
			}
			continue
		}
		if err = d.mayAdd(p); err == nil {
			due := d.connect(now, at, p)
			if mode == Serial && due.After(at) {
				at = due
			}
		}
		results[len(remove)+i] = err
		d.refused(now, p, err)
	}
	if mode == Serial {
		d.busyUntil = at
	}
	d.schedule()
	return results
}

// Check returns the result that Apply would return now, and changes nothing. It is for protocols whose requests are
// accepted as a whole or refused.
func (d *Device) Check(remove, add []circuit.Pair) []error {
	d.lock()
	defer d.unlock()
	results := make([]error, 0, len(remove)+len(add))
	inFree, outFree := make(map[int]bool), make(map[int]bool)
	for _, p := range remove {
		err := d.mayRemove(p)
		if err == nil && inFree[p.From] {
			err = fmt.Errorf("%s: %w", d.name(p), ErrNoCircuit)
		}
		if err == nil {
			inFree[p.From], outFree[p.To] = true, true
		}
		results = append(results, err)
	}
	inUsed, outUsed := make(map[int]bool), make(map[int]bool)
	for _, p := range add {
		err := d.inRange(p)
		if err == nil && !d.cfg.BreakConflicts {
			same := d.byIn[p.From] != nil && d.byIn[p.From].out == p.To && !inFree[p.From]
			busyIn := inUsed[p.From] || d.byIn[p.From] != nil && !inFree[p.From]
			busyOut := outUsed[p.To] || d.byOut[p.To] != nil && !outFree[p.To]
			if (busyIn || busyOut) && !same {
				err = fmt.Errorf("%s: %w", d.name(p), ErrBusy)
			}
		}
		if err == nil {
			inUsed[p.From], outUsed[p.To] = true, true
		}
		results = append(results, err)
	}
	return results
}

// Replace gives the table the circuits of to. It removes others and does not touch circuits that both have. The error
// joins all refusals. It refuses the whole of a map that is no permutation.
func (d *Device) Replace(ctx context.Context, to circuit.Permutation, mode Mode) error {
	if err := to.Validate(d.cfg.Ports); err != nil {
		return fmt.Errorf("%w: %w", ErrPort, err)
	}
	var remove, add []circuit.Pair
	for in, out := range d.Map() {
		if out == to[in] {
			continue
		}
		if out != circuit.Dark {
			remove = append(remove, circuit.Pair{From: in, To: out})
		}
		if to[in] != circuit.Dark {
			add = append(add, circuit.Pair{From: in, To: to[in]})
		}
	}
	return errors.Join(d.Apply(ctx, remove, add, mode)...)
}

// Wait returns when no circuit is Tuning and all watchers have been called, or with the context's error. Watchers must
// not call it.
func (d *Device) Wait(ctx context.Context) error {
	for {
		changed := d.Changed()
		if !d.Switching() && d.told() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Device) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !d.bootAt.IsZero() {
		return ErrDown
	}
	return nil
}

func (d *Device) name(p circuit.Pair) string {
	return fmt.Sprintf("%s to %s", d.portName(p.From, d.cfg.In), d.portName(p.To, d.cfg.Out))
}

func (d *Device) portName(port int, labels Labels) string {
	if port < 0 || port >= d.cfg.Ports {
		return fmt.Sprintf("port[%d]", port)
	}
	return labels(port)
}

func (d *Device) inRange(p circuit.Pair) error {
	if p.From < 0 || p.From >= d.cfg.Ports || p.To < 0 || p.To >= d.cfg.Ports {
		return fmt.Errorf("%s: %w", d.name(p), ErrPort)
	}
	return nil
}

func (d *Device) mayRemove(p circuit.Pair) error {
	if err := d.inRange(p); err != nil {
		return err
	}
	if r := d.byIn[p.From]; r != nil && r.out == p.To {
		return nil
	}
	if d.ghost(p) >= 0 {
		return fmt.Errorf("%s: %w", d.name(p), ErrGhost)
	}
	return fmt.Errorf("%s: %w", d.name(p), ErrNoCircuit)
}

func (d *Device) mayAdd(p circuit.Pair) error {
	if err := d.inRange(p); err != nil {
		return err
	}
	if r := d.byIn[p.From]; r != nil && r.out == p.To || d.cfg.BreakConflicts {
		return nil
	}
	if d.byIn[p.From] != nil || d.byOut[p.To] != nil {
		return fmt.Errorf("%s: %w", d.name(p), ErrBusy)
	}
	return nil
}

// ghost returns the position of a ghost, -1 if there is none.
func (d *Device) ghost(p circuit.Pair) int {
	return slices.IndexFunc(d.ghosts, func(r *row) bool { return r.in == p.From && r.out == p.To })
}

// connect begins a circuit at time at and returns when it will be tuned.
func (d *Device) connect(now, at time.Time, p circuit.Pair) time.Time {
	if i := d.ghost(p); i >= 0 {
		d.ghosts = slices.Delete(d.ghosts, i, i+1)
	}
	if r := d.byIn[p.From]; r != nil && r.out == p.To {
		return at
	}
	delays := d.preset.Delays
	for _, r := range []*row{d.byIn[p.From], d.byOut[p.To]} {
		if r != nil && d.byIn[r.in] == r {
			d.cut(now, r, "conflict")
			at = at.Add(delays.Conflict)
		}
	}
	due := at.Add(delays.Min + time.Duration(d.cfg.Draw(int64(delays.Max-delays.Min)+1)) + delays.Settle)
	r := &row{in: p.From, out: p.To, state: Tuning, outcome: Tuned, due: due}
	d.faults.touch(r)
	d.byIn[p.From], d.byOut[p.To] = r, r
	d.revision++
	d.emit(now, Event{Kind: Made, In: r.in, Out: r.out, State: Tuning})
	return r.due
}

// cut removes a circuit. Its light goes off at once.
func (d *Device) cut(now time.Time, r *row, note string) {
	d.byIn[r.in], d.byOut[r.out] = nil, nil
	d.revision++
	d.illuminate(now, r.out)
	d.emit(now, Event{Kind: Broken, In: r.in, Out: r.out, State: Blocked, Note: note})
}

func (d *Device) refused(now time.Time, p circuit.Pair, err error) {
	if err != nil {
		d.emit(now, Event{Kind: Refused, In: p.From, Out: p.To, Note: err.Error()})
	}
}

// advance applies all changes that are due at now, each with its own time.
func (d *Device) advance(now time.Time) {
	if !d.bootAt.IsZero() && !now.Before(d.bootAt) {
		d.boot(d.bootAt)
	}
	if d.next.IsZero() || now.Before(d.next) {
		return
	}
	var due []*row
	for _, r := range d.byIn {
		if r != nil && r.state == Tuning && !r.due.After(now) {
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b *row) int { return a.due.Compare(b.due) })
	for _, r := range due {
		r.state = r.outcome
		d.illuminate(r.due, r.out)
		d.emit(r.due, Event{Kind: Settled, In: r.in, Out: r.out, State: r.state})
	}
	d.schedule()
}

// schedule sets the timer to the next change.
func (d *Device) schedule() {
	d.next = time.Time{}
	for _, r := range d.byIn {
		if r != nil && r.state == Tuning && (d.next.IsZero() || r.due.Before(d.next)) {
			d.next = r.due
		}
	}
	wake := d.next
	if !d.bootAt.IsZero() && (wake.IsZero() || d.bootAt.Before(wake)) {
		wake = d.bootAt
	}
	if wake.IsZero() || d.closed || d.manual {
		return
	}
	if d.timer == nil {
		d.timer = time.AfterFunc(time.Until(wake), d.tick)
	} else {
		d.timer.Reset(time.Until(wake))
	}
}

// tick advances the state, which taking the lock does.
func (d *Device) tick() {
	d.lock()
	d.unlock()
}
