package exec

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Options are the policy of a Run. The zero value neither spins nor times out.
type Options struct {
	// Spin is how many fruitless rounds are followed at once by the next, Yield how many
	// more by one after the others on this CPU have had theirs. Then Run blocks. Spinning
	// pays where every rank has a CPU to itself.
	Spin, Yield int
	// Brief, where not 0, is how many rounds (Spin included) are enough once standstills of this Run have
	// outlasted it again and again: what is waited for then comes at the pace of a wire, and may need this CPU.
	Brief int
	// Alone says that no other goroutine of this process drives a rank that this one may wait
	// for: yields then go to the system only. A runtime.Gosched by a goroutine that is locked
	// to its thread, as one that C has called is, costs two switches of threads.
	Alone bool
	// Timeout is how long nothing may move before Run gives up; 0 is for ever.
	Timeout time.Duration
	// Deadline is when Run gives up though bytes move; zero is never.
	Deadline time.Time
	// OnStall is called when nothing has moved for StallAfter (0: one second), and again
	// each time that has passed. An error ends the Run.
	OnStall    func(stalled []*Task) error
	StallAfter time.Duration
}

// lessons is how many standstills that outlast Options.Brief teach a Run to sleep early.
const lessons = 8

// Bounds of one wait for the endpoint's doorbell. Where several endpoints have work only
// one can be waited for, and the others are looked at often.
const (
	minWait    = time.Millisecond
	maxWait    = 10 * time.Millisecond
	sharedWait = 100 * time.Microsecond
	// switchWait bounds it while a plane that steers is to switch: what its controller publishes
	// can be read at once, but the news of it comes by way of other threads.
	switchWait = 200 * time.Microsecond
	// absence is far beyond all of them: whoever comes back later has not been running.
	absence = 500 * time.Millisecond
)

// Run drives all tasks to their end on the calling goroutine. Tasks of one endpoint run one
// after another in the order given, those of different endpoints at the same time. The
// first error ends the Run; Task.Err says whose it was. Tasks that have not finished then
// are given up: their buffers may have been written, and their communicators are of no
// further use.
func Run(tasks []*Task, o *Options) error {
	if err := chainUp(tasks); err != nil {
		return err
	}
	d := driver{tasks: tasks, o: o}
	for {
		moved, err := d.round()
		if err == nil && !o.Deadline.IsZero() {
			err = d.late()
		}
		switch {
		case err != nil:
			return err
		case d.first == len(d.tasks):
			return nil
		case moved:
			d.moved()
		default:
			if err := d.rest(); err != nil {
				return err
			}
		}
	}
}

// Try is Run for so many rounds at most, one at once after another: it never waits. Where it reports neither that the tasks have
// ended nor an error, Run goes on with them, on whatever goroutine.
func Try(tasks []*Task, rounds int) (ended bool, err error) {
	if err := chainUp(tasks); err != nil {
		return false, err
	}
	d := driver{tasks: tasks}
	for range rounds {
		if _, err := d.round(); err != nil || d.first == len(tasks) {
			return err == nil, err
		}
	}
	return false, nil
}

// chainUp has each task wait for the one before it on its endpoint.
func chainUp(tasks []*Task) error {
	for i, t := range tasks {
		if !t.bound {
			return fmt.Errorf("exec: task %d is not bound: %w", i, ErrCall)
		}
		t.after = nil
		for j := i - 1; j >= 0; j-- {
			if tasks[j].lookup == t.lookup {
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
	first int // tasks before it have finished
	idle  int // fruitless rounds in a row
	long  int // standstills that outlasted Brief
	wait  time.Duration
	// still is when the first wait of this standstill began, stalled when OnStall was last
	// called in it, looked when a wait last ended.
	still, stalled, looked time.Time
}

// round polls every task whose turn it is.
func (d *driver) round() (bool, error) {
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

// rest passes the time until something may have changed.
func (d *driver) rest() error {
	d.idle++
	patience := d.patience()
	if d.idle <= min(d.o.Spin, patience) {
		return nil
	}
	if err := d.watch(); err != nil {
		return err
	}
	if d.idle <= patience {
		Yield(d.o.Alone)
		return nil
	}
	if d.idle == patience+1 {
		d.still = time.Now()
		d.stalled, d.looked, d.wait = d.still, d.still, minWait
	}
	return d.block()
}

// patience is how many fruitless rounds there are before the first sleep.
func (d *driver) patience() int {
	if d.o.Brief > 0 && d.long >= lessons {
		return d.o.Brief
	}
	return d.o.Spin + d.o.Yield
}

// moved ends a standstill, if there was one.
func (d *driver) moved() {
	if d.idle > d.o.Brief {
		d.long++
	}
	d.idle, d.wait = 0, minWait
}

// Yield lets others have the CPU: those of this process too, unless alone (see Options).
func Yield(alone bool) {
	if !alone {
		runtime.Gosched()
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// watch asks the switches for failures.
func (d *driver) watch() error {
	for _, t := range d.tasks[d.first:] {
		if t.remaining == 0 {
			continue
		}
		if err := t.watch(); err != nil {
			t.err = err
			return err
		}
	}
	return nil
}

// block waits for a doorbell, with a bound.
func (d *driver) block() error {
	e, shared := d.endpoint()
	armed := e.Arm()
	moved, err := d.round()
	if err != nil || d.first == len(d.tasks) {
		return err
	}
	if moved {
		d.moved()
		return nil
	}
	switch {
	case shared:
		e.Wait(armed, sharedWait)
	case d.current().switching():
		e.Wait(armed, switchWait)
	case d.current().call.Gate != nil: // which rings no doorbell
		e.Wait(armed, sharedWait)
	default:
		e.Wait(armed, d.wait)
		d.wait = min(2*d.wait, maxWait)
	}
	return d.expire(time.Now())
}

// expire acts on a standstill that has lasted too long. Where this process itself stood still, that does not count:
// the others may have moved, or not have been able to either.
func (d *driver) expire(now time.Time) error {
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
	return d.o.OnStall(d.tasks[d.first:])
}

// late reports that the deadline has passed with work left.
func (d *driver) late() error {
	if d.first == len(d.tasks) || time.Now().Before(d.o.Deadline) {
		return nil
	}
	t := d.current()
	w, _ := t.Waiting()
	t.err = fmt.Errorf("exec: rank %d operation %d: not done by its deadline, waiting for %v: %w", w.Rank, t.call.Op, w, ErrDeadline)
	return t.err
}

// current is the first task that is running.
func (d *driver) current() *Task { return d.tasks[d.first] }

// endpoint returns the endpoint to wait for, and whether others have work too.
func (d *driver) endpoint() (e interface {
	Arm() uint32
	Wait(armed uint32, d time.Duration)
}, shared bool) {
	first := d.current()
	for _, t := range d.tasks[d.first+1:] {
		if t.remaining != 0 && t.lookup != first.lookup {
			return first.lookup, true
		}
	}
	return first.lookup, false
}
