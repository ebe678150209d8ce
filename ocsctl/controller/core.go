package controller

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/monotonic"
	"lightpath/internal/shmring"
	"lightpath/plans/circuit"
)

// Core is a running controller: one goroutine that decides everything, and what others hand to
// it. Methods may be called from any goroutine, but not from within a [Sink], [DataPath] or
// [Inbox].
type Core struct {
	cfg     *Config
	machine *machine // the goroutine's alone
	bell    *shmring.Bell
	clock   func() int64
	post    PostFunc // what inboxes call

	mu       sync.Mutex
	commands []func(now int64)
	spare    []func(now int64) // to be reused
	stopped  bool
	queued   atomic.Bool // commands or stopped
	inboxes  atomic.Pointer[[]Inbox]
	done     chan struct{} // closed when the goroutine has ended
	closed   sync.Once

	manual  bool // there is no goroutine: see NewManual
	running bool // of manual: commands are being executed

	watch watchers
}

var _ Controller = (*Core)(nil)

// Start makes a controller that runs until Close. It reads where the planes are, and moves
// nothing by itself.
func Start(config Config) (*Core, error) {
	c, err := newCore(config, monotonic.Now, func(int64) time.Time { return time.Now() })
	if err != nil {
		return nil, err
	}
	c.begin()
	go c.run()
	return c, nil
}

// NewManual makes a controller without a goroutine and a clock of its own, for tests and
// simulations: one goroutine calls it, requests are done when they return, and time passes by
// Step only. Now is what the clock of its device and of its data path shows.
func NewManual(config Config, now func() int64) (*Core, error) {
	c, err := newCore(config, now, func(now int64) time.Time { return time.Unix(0, now) })
	if err != nil {
		return nil, err
	}
	c.manual = true
	c.begin()
	return c, nil
}

// Step does everything that is due, and returns when it has to be called next. It is for
// controllers that NewManual made.
func (c *Core) Step() (next int64) {
	c.collect(c.post)
	c.drain()
	return c.machine.step(c.clock())
}

func newCore(config Config, clock func() int64, wall func(int64) time.Time) (*Core, error) {
	cfg, err := config.complete()
	if err != nil {
		return nil, err
	}
	bell, err := shmring.NewBell()
	if err != nil {
		return nil, err
	}
	c := &Core{cfg: cfg, bell: bell, clock: clock, done: make(chan struct{})}
	c.inboxes.Store(&[]Inbox{})
	if cfg.Log != nil {
		c.watchKinds(c.log, Failed, Restored, Commanded)
	}
	c.machine = newMachine(cfg, wall, func(f func(int64)) { _ = c.do(f) }, c.record)
	c.post = c.machine.collect
	return c, nil
}

// begin reads where the planes are, and listens to the device.
func (c *Core) begin() {
	c.machine.start(c.clock())
	if d, ok := c.cfg.Device.(Timed); ok {
		d.OnSettled(func(plane int) { _ = c.do(func(now int64) { c.machine.news(plane, now) }) })
		for j := range c.cfg.Planes { // what happened before it was listened to
			c.machine.news(j, c.clock())
		}
	}
}

// Name is the controller's.
func (c *Core) Name() string { return c.cfg.Name }

// NumPorts is the number of ports of every plane.
func (c *Core) NumPorts() int { return c.cfg.Ports }

// Planes describes the planes; read-only.
func (c *Core) Planes() []PlaneConfig { return c.cfg.Planes }

// Bell wakes the core: who puts something into an [Inbox] or into rings of the data path rings it
// afterwards. It lives until Close.
func (c *Core) Bell() *shmring.Bell { return c.bell }

// AddInbox has the core look into i until remove has returned.
func (c *Core) AddInbox(i Inbox) (remove func(), err error) {
	change := func(f func([]Inbox) []Inbox) error {
		return c.call(func(int64) {
			next := f(append([]Inbox(nil), *c.inboxes.Load()...))
			c.inboxes.Store(&next)
		})
	}
	if err := change(func(all []Inbox) []Inbox { return append(all, i) }); err != nil {
		return nil, err
	}
	return func() {
		_ = change(func(all []Inbox) []Inbox { // an error: the core has stopped
			var rest []Inbox
			for _, x := range all {
				if x != i {
					rest = append(rest, x)
				}
			}
			return rest
		})
	}, nil
}

// Do runs f on the core's goroutine and waits for it: for what a data path knows of itself.
func (c *Core) Do(f func(now int64)) error { return c.call(f) }

// do hands a command to the core; commands are executed in order.
func (c *Core) do(f func(now int64)) error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return ErrStopped
	}
	c.commands = append(c.commands, f)
	c.queued.Store(true)
	if !c.manual {
		c.bell.Ring() // under the lock: Close frees the bell after it
	}
	c.mu.Unlock()
	if c.manual {
		c.drain()
	}
	return nil
}

// drain executes the commands of a manual core, and those that they give.
func (c *Core) drain() {
	if c.running {
		return
	}
	c.running = true
	for ran := true; ran; {
		ran, _ = c.execute()
	}
	c.running = false
}

// call is do, and waits until the command has been executed.
func (c *Core) call(f func(now int64)) error {
	done := make(chan struct{})
	if err := c.do(func(now int64) { f(now); close(done) }); err != nil {
		return err
	}
	<-done
	return nil
}

// spinFor is how long the core looks for more before it sleeps, on machines with cores to spare.
const spinFor = int64(50 * time.Microsecond)

// run is the core's goroutine. It sleeps on its doorbell until the next thing is due.
func (c *Core) run() {
	runtime.LockOSThread()
	defer close(c.done)
	// Timers to the nanosecond instead of 50 us, and before the ranks where that is allowed:
	// both improve latency only, so failing is fine.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10)
	spare := runtime.NumCPU() > c.cfg.Ports
	busy := c.clock()
	for {
		posts := c.machine.posts
		c.collect(c.post)
		next := c.machine.step(c.clock())
		ran, stop := c.execute()
		if stop {
			return
		}
		now := c.clock()
		if ran || c.machine.posts != posts {
			busy = now
			continue
		}
		if next <= now || spare && now-busy < spinFor {
			continue
		}
		armed := c.bell.Arm()
		c.collect(c.post)
		next = min(c.machine.step(c.clock()), c.clock()+int64(time.Second))
		if !c.queued.Load() && c.machine.posts == posts {
			c.bell.Wait(armed, time.Duration(next-c.clock()))
		}
		busy = c.clock()
	}
}

func (c *Core) collect(post PostFunc) {
	inboxes := *c.inboxes.Load()
	if len(inboxes) == 0 {
		return
	}
	c.machine.now = c.clock()
	for _, i := range inboxes {
		i.Collect(post)
	}
}

// collect is what inboxes pass posts to.
func (m *machine) collect(a Attachment, plane int, epoch uint32, holder uint64, target circuit.Permutation) {
	m.posts++
	m.post(a.(*attachment), plane, roundKey{epoch, holder}, target, m.now)
}

// execute runs the queued commands; stop is set with the last ones.
func (c *Core) execute() (ran, stop bool) {
	if !c.queued.Load() {
		return false, false
	}
	c.mu.Lock()
	commands := c.commands
	c.commands, c.spare = c.spare[:0], nil
	stop = c.stopped
	c.queued.Store(stop)
	c.mu.Unlock()
	if len(commands) > 0 {
		c.collect(c.post) // who gives a command has made its posts before
	}
	for i, f := range commands {
		f(c.clock())
		commands[i] = nil
	}
	c.mu.Lock()
	c.spare = commands[:0]
	c.mu.Unlock()
	if stop {
		c.machine.retire(ErrStopped, c.clock())
	}
	return len(commands) > 0, stop
}

// Close ends every attachment and stops; the planes stay where they are. Idempotent.
func (c *Core) Close() {
	c.closed.Do(func() {
		c.mu.Lock()
		c.stopped = true
		c.queued.Store(true)
		c.mu.Unlock()
		c.bell.Ring()
		if c.manual {
			c.drain()
			close(c.done)
		}
		<-c.done
		c.watch.close()
		c.bell.Close()
	})
}

// Resign ends the controller's rule, because why: nothing moves any more, and every rank is sent
// to find the next controller. Snapshot and Watch go on.
func (c *Core) Resign(why error) {
	_ = c.do(func(now int64) { c.machine.retire(why, now) })
}

// Set implements Controller.
func (c *Core) Set(plane int, target circuit.Permutation, who string) error {
	if err := c.check(plane, target); err != nil {
		return fmt.Errorf("controller: set: %w", err)
	}
	return c.await(func(now int64, done func(error)) {
		c.machine.set(plane, &order{target: target.Clone(), who: who, done: done}, now)
	})
}

// Disable implements Controller.
func (c *Core) Disable(plane int, reason, who string) error {
	if err := c.check(plane, nil); err != nil {
		return fmt.Errorf("controller: disable: %w", err)
	}
	return c.await(func(now int64, done func(error)) { c.machine.disable(plane, reason, who, done, now) })
}

// Enable implements Controller.
func (c *Core) Enable(plane int, who string) error {
	if err := c.check(plane, nil); err != nil {
		return fmt.Errorf("controller: enable: %w", err)
	}
	return c.await(func(now int64, done func(error)) { c.machine.enable(plane, &order{who: who, done: done}, now) })
}

// await has the core begin something, and waits for its end.
func (c *Core) await(begin func(now int64, done func(error))) error {
	ended := make(chan error, 1)
	if err := c.do(func(now int64) { begin(now, func(err error) { ended <- err }) }); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-c.done:
		select { // retirement has answered, unless the command was never run
		case err := <-ended:
			return err
		default:
			return ErrStopped
		}
	}
}

// check checks what a caller names; target nil: none.
func (c *Core) check(plane int, target circuit.Permutation) error {
	if plane < 0 || plane >= len(c.cfg.Planes) {
		return fmt.Errorf("plane %d of %d", plane, len(c.cfg.Planes))
	}
	if target == nil {
		return nil
	}
	if err := target.Validate(c.cfg.Ports); err != nil {
		return fmt.Errorf("plane %d: target %w", plane, err)
	}
	return nil
}

var errNoPort = errors.New("the attachment has no port")
