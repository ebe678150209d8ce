package exec

import (
	"fmt"
	"time"

	"lightpath/collectives/transport"
)

// Options control how Run waits. The zero value neither spins nor times out.
type Options struct {
	// Spin is the number of rounds without progress that Run repeats at once. Yield is the number of further rounds
	// after each of which it yields the CPU. Then Run blocks. Spinning is useful if every rank has a CPU of its own.
	Spin, Yield int
	// A wait of more than LongWait rounds is long (0: none is). After several long waits of this Run, or the first one if
	// *Slow is set, Run blocks at once: the network is slow, and the kernel may need this CPU.
	LongWait int
	// Slow says whether the last Run had several long waits. Run sets it for the next; nil: no Run learns from another.
	Slow *bool
	// Yielder learns from one Run for the next whether yields pay; nil: they always do.
	Yielder *Yielder
	// Alone means that no other goroutine of this process drives a rank for which this one may wait. Run then yields to
	// the operating system only. runtime.Gosched costs two thread switches on a goroutine that is locked to its thread,
	// as in a call from C.
	Alone bool
	// Timeout ends the Run if there is no progress for this time. 0 means no limit.
	Timeout time.Duration
	// Deadline ends the Run at this time even if there is progress. The zero time means no limit.
	Deadline time.Time
	// OnStall is called if there has been no progress for StallAfter (0: one second), and again after each further
	// StallAfter. If it returns an error, the Run ends with it.
	OnStall    func() error
	StallAfter time.Duration
}

// longWaits is the number of long waits after which the network is slow.
const longWaits = 8

// wakeUp is more than a wake-up takes. A wait that has blocked for more than that is long.
const wakeUp = 50 * time.Microsecond

// Limits of one wait for the doorbell of an endpoint.
const (
	maxWait = 10 * time.Millisecond
	// sharedWait applies if several endpoints have work: Run can wait for one of them only, and polls the others. It also
	// applies to tasks whose messages wait for their memory.
	sharedWait = 100 * time.Microsecond
	// switchWait applies while a plane with kernel forwarding switches. Its new epoch is readable at once, but the
	// doorbell rings later.
	switchWait = 200 * time.Microsecond
	// absence is much longer than the other limits. A longer gap means that this process itself was stopped.
	absence = 500 * time.Millisecond
)

// Run drives all tasks on the calling goroutine until they have finished. Tasks of one endpoint run one after another
// in the given order. Tasks of different endpoints run concurrently.
//
// The first error ends the Run, and Task.Err returns it for the task that failed. Run abandons the other unfinished
// tasks: their buffers may be partly written, and the caller must not use their communicators any more.
func Run(tasks []*Task, o *Options) error {
	if err := chainUp(tasks); err != nil {
		return err
	}
	d := driver{tasks: tasks, o: o, most: longWaits}
	if o.Slow != nil && *o.Slow {
		d.most = 1
	}
	for {
		moved, err := d.pollAll()
		if err == nil && !o.Deadline.IsZero() {
			err = d.checkDeadline()
		}
		switch {
		case err != nil:
		case d.first == len(d.tasks):
			if o.Slow != nil {
				*o.Slow = o.LongWait > 0 && d.long >= longWaits
			}
			return nil
		case moved:
			d.noteProgress()
		default:
			err = d.pause()
		}
		if err != nil {
			abandon(tasks)
			return err
		}
	}
}

// abandon makes the planes forget the payload of all tasks, so that the caller may use or free it.
func abandon(tasks []*Task) {
	for _, t := range tasks {
		for i := range t.lanes {
			if b, ok := t.planes[i].borrower.(transport.Abandoner); ok && t.remaining > 0 {
				b.Abandon()
			}
		}
	}
}

// Try is like Run, but makes at most the given number of rounds and never waits. If it returns neither ended nor an
// error, call Run with the same tasks, on any goroutine.
func Try(tasks []*Task, rounds int) (ended bool, err error) {
	if err := chainUp(tasks); err != nil {
		return false, err
	}
	d := driver{tasks: tasks}
	for range rounds {
		_, err := d.pollAll()
		if err != nil {
			abandon(tasks)
		}
		if err != nil || d.first == len(tasks) {
			return err == nil, err
		}
	}
	return false, nil
}

// chainUp makes each task wait for the previous one on its endpoint.
func chainUp(tasks []*Task) error {
	for i, t := range tasks {
		if !t.bound {
			return fmt.Errorf("exec: task %d is not bound: %w", i, ErrCall)
		}
		t.after = nil
		for j := i - 1; j >= 0; j-- {
			if tasks[j].endpoint == t.endpoint {
				t.after = tasks[j]
				break
			}
		}
	}
	return nil
}

// driver is the state of one Run.
type driver struct {
	tasks []*Task
	o     *Options
	first int // all tasks before this one have finished
	idle  int // consecutive rounds without progress
	long  int // number of long waits
	most  int // value of long from which Run blocks at once
	// The present wait may yield, or has begun to block.
	yields, blocks bool
	// still is the time of the last progress, stalled that of the last OnStall, looked the end of the last wait.
	still, stalled, looked time.Time
}

// pollAll polls every task that may run.
func (d *driver) pollAll() (bool, error) {
	moved := false
	for i := d.first; i < len(d.tasks); i++ {
		t := d.tasks[i]
		if t.remaining == 0 || t.after != nil && t.after.remaining != 0 {
			continue
		}
		if p := t.call.Poison; p != nil {
			if e := p.Load(); e != nil {
				t.err = *e
				return moved, t.err
			}
		}
		m, err := t.poll()
		if err != nil {
			t.err = err
			return moved, err
		}
		moved = moved || m
	}
	for d.first < len(d.tasks) && d.tasks[d.first].remaining == 0 {
		d.first++
	}
	return moved, nil
}

// pause spins, yields or blocks after a round without progress.
func (d *driver) pause() error {
	d.idle++
	if d.idle <= min(d.o.Spin, d.patience()) {
		return nil
	}
	if err := d.checkSwitches(); err != nil {
		return err
	}
	if d.idle == d.o.Spin+1 {
		d.yields = d.o.Yielder.Begin()
	}
	if d.idle <= d.patience() {
		if d.yields = d.o.Yielder.Yield(d.o.Alone); d.yields {
			return nil
		}
	}
	if !d.blocks {
		d.blocks = true
		d.still = time.Now()
		d.stalled, d.looked = d.still, d.still
	}
	return d.block()
}

// patience returns the number of rounds without progress before Run blocks.
func (d *driver) patience() int {
	switch {
	case d.o.LongWait > 0 && d.long >= d.most:
		return 0
	case !d.yields:
		return d.o.Spin
	}
	return d.o.Spin + d.o.Yield
}

// noteProgress records progress.
func (d *driver) noteProgress() {
	if d.idle > d.o.LongWait || d.blocks && d.looked.Sub(d.still) > wakeUp {
		d.long++
	}
	d.idle, d.blocks = 0, false
}

// checkSwitches checks the switches of all tasks for failures.
func (d *driver) checkSwitches() error {
	for _, t := range d.tasks[d.first:] {
		if t.remaining == 0 {
			continue
		}
		if err := t.checkSwitches(); err != nil {
			t.err = err
			return err
		}
	}
	return nil
}

// block waits for a doorbell for a limited time.
func (d *driver) block() error {
	e, shared := d.endpoint()
	armed := e.Arm()
	moved, err := d.pollAll()
	if err != nil || d.first == len(d.tasks) {
		return err
	}
	if moved {
		d.noteProgress()
		return nil
	}
	switch {
	case shared, d.current().call.Memory != nil: // it rings no doorbell
		e.Wait(armed, sharedWait)
	case d.current().switching():
		e.Wait(armed, switchWait)
	default:
		e.Wait(armed, maxWait)
	}
	return d.checkTimeout(time.Now())
}

// checkTimeout ends the Run after Timeout and calls OnStall after StallAfter. Time in which this process was stopped
// does not count: peers may have made progress, or may have been stopped too.
func (d *driver) checkTimeout(now time.Time) error {
	if gap := now.Sub(d.looked); gap > absence {
		d.still, d.stalled = d.still.Add(gap), d.stalled.Add(gap)
	}
	d.looked = now
	if d.o.Timeout > 0 && now.Sub(d.still) > d.o.Timeout {
		t := d.current()
		w, _ := t.Waiting()
		t.err = fmt.Errorf("exec: rank %d operation %d: no progress for %v, waiting for %v: %w",
			w.Rank, t.call.Op, d.o.Timeout, w, ErrTimeout)
		return t.err
	}
	after := d.o.StallAfter
	if after == 0 {
		after = time.Second
	}
	if d.o.OnStall == nil || now.Sub(d.stalled) < after {
		return nil
	}
	d.stalled = now
	return d.o.OnStall()
}

// checkDeadline returns an error if the deadline has passed.
func (d *driver) checkDeadline() error {
	if d.first == len(d.tasks) || time.Now().Before(d.o.Deadline) {
		return nil
	}
	t := d.current()
	w, _ := t.Waiting()
	t.err = fmt.Errorf("exec: rank %d operation %d: not done by its deadline, waiting for %v: %w",
		w.Rank, t.call.Op, w, ErrDeadline)
	return t.err
}

// current returns the first unfinished task.
func (d *driver) current() *Task { return d.tasks[d.first] }

// endpoint returns the endpoint to wait for, and reports whether other endpoints have work too.
func (d *driver) endpoint() (e transport.Endpoint, shared bool) {
	first := d.current()
	for _, t := range d.tasks[d.first+1:] {
		if t.remaining != 0 && t.endpoint != first.endpoint {
			return first.endpoint, true
		}
	}
	return first.endpoint, false
}
