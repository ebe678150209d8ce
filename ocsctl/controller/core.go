package controller

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/monotonic"
	"lightpath/internal/shmring"
	"lightpath/plans/circuit"
)

// Core is a running controller: the goroutine that makes all decisions, and the queue of commands to it. Methods may
// be called from any goroutine, but not from within a [Sink], [DataPath] or [Inbox].
type Core struct {
	cfg     *Config
	machine *machine // used by the core's goroutine only
	bell    *shmring.Bell
	clock   func() int64
	post    PostFunc // takePost

	mu       sync.Mutex
	commands []func(now int64)
	spare    []func(now int64) // the slice to use next
	stopped  bool
	queued   atomic.Bool // there are commands, or stopped is set
	inboxes  atomic.Pointer[[]Inbox]
	done     chan struct{} // closed when the goroutine has ended
	closed   sync.Once

	manual  bool // there is no goroutine: see NewManual
	running bool // of manual: commands are being executed

	watch watchers
}

var _ Controller = (*Core)(nil)

// Start starts a controller that runs until Close. It reads the maps of the planes and moves nothing.
func Start(config Config) (*Core, error) {
	c, err := newCore(config, monotonic.Now, func(int64) time.Time { return time.Now() })
	if err != nil {
		return nil, err
	}
	c.begin()
	go c.run()
	return c, nil
}

// NewManual returns a controller without goroutine or clock, for tests and simulations. One goroutine calls it; a
// request is done when it returns. Only Step does what is due. now is the clock, which the device and the data path
// share.
func NewManual(config Config, now func() int64) (*Core, error) {
	c, err := newCore(config, now, func(now int64) time.Time { return time.Unix(0, now) })
	if err != nil {
		return nil, err
	}
	c.manual = true
	c.begin()
	return c, nil
}

// Step does all that is due, and returns the time of the next call. It is for controllers of NewManual only.
func (c *Core) Step() (next int64) {
	c.collect()
	c.drain()
	c.running = true // commands that the step queues follow it
	next = c.machine.step(c.clock())
	c.running = false
	if c.queued.Load() {
		c.drain()
		return c.clock()
	}
	return next
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
		c.watchKinds(c.log, Failed, Restored, Commanded, Remapped, Dimmed, Brightened, Excluded, Included)
	}
	c.machine = newMachine(cfg, wall, func(f func(int64)) { _ = c.do(f) }, c.record)
	c.post = c.takePost
	return c, nil
}

// begin reads the maps of the planes and subscribes to the device.
func (c *Core) begin() {
	c.machine.start(c.clock())
	if d, ok := c.cfg.Device.(Timed); ok {
		d.OnSettled(func(plane int) { _ = c.do(func(now int64) { c.machine.news(plane, now) }) })
		for j := range c.cfg.Planes { // changes before the subscription
			c.machine.news(j, c.clock())
		}
	}
}

// Name returns the controller's name.
func (c *Core) Name() string { return c.cfg.Name }

// NumPorts returns the number of ports of every plane.
func (c *Core) NumPorts() int { return c.cfg.Ports }

// Planes returns the configuration of the planes; read-only.
func (c *Core) Planes() []PlaneConfig { return c.cfg.Planes }

// Bell returns the doorbell of the core. A front end rings it after it has put something into an [Inbox] or into a
// ring of the data path. It is valid until Close.
func (c *Core) Bell() *shmring.Bell { return c.bell }

// AddInbox makes the core collect from i until remove has returned.
func (c *Core) AddInbox(i Inbox) (remove func(), err error) {
	change := func(f func([]Inbox) []Inbox) error {
		return c.Do(func(int64) {
			next := f(slices.Clone(*c.inboxes.Load()))
			c.inboxes.Store(&next)
		})
	}
	if err := change(func(all []Inbox) []Inbox { return append(all, i) }); err != nil {
		return nil, err
	}
	return func() {
		_ = change(func(all []Inbox) []Inbox { // an error: the core has stopped
			return slices.DeleteFunc(all, func(x Inbox) bool { return x == i })
		})
	}, nil
}

// do queues a command; the core executes commands in order.
func (c *Core) do(f func(now int64)) error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return ErrStopped
	}
	c.commands = append(c.commands, f)
	c.queued.Store(true)
	if !c.manual {
		c.bell.Ring() // under the lock, since Close frees the bell after taking it
	}
	c.mu.Unlock()
	if c.manual {
		c.drain()
	}
	return nil
}

// drain executes the commands of a manual core, and the commands that these queue.
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

// Do runs f on the core's goroutine, as a command, and waits for it. Callers read the state of a data path with it.
func (c *Core) Do(f func(now int64)) error {
	done := make(chan struct{})
	if err := c.do(func(now int64) { f(now); close(done) }); err != nil {
		return err
	}
	<-done
	return nil
}

// spinFor is how long the core polls before it sleeps, if the machine has more cores than ranks.
const spinFor = int64(50 * time.Microsecond)

// run is the core's goroutine. It sleeps on the bell until the next action is due.
func (c *Core) run() {
	runtime.LockOSThread()
	defer close(c.done)
	// Timer slack of 1 ns instead of 50 us, and a higher priority than the ranks. Both only improve latency, so
	// errors are ignored.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10)
	spare := runtime.NumCPU() > c.cfg.Ports
	busy := c.clock()
	for {
		posts := c.machine.posts
		c.collect()
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
		c.collect()
		next = min(c.machine.step(c.clock()), c.clock()+int64(time.Second))
		if !c.queued.Load() && c.machine.posts == posts {
			c.bell.Wait(armed, time.Duration(next-c.clock()))
		}
		busy = c.clock()
	}
}

func (c *Core) collect() {
	for _, i := range *c.inboxes.Load() {
		i.Collect(c.post)
	}
}

// takePost takes a post from an inbox. Its time is not before the post: else a move that it completes would begin while
// its bytes were on the wire.
func (c *Core) takePost(a Attachment, plane int, epoch uint32, holder uint64, target circuit.Permutation) {
	c.machine.posts++
	c.machine.post(a.(*attachment), plane, roundKey{epoch, holder}, target, c.clock())
}

// execute runs the queued commands. stop reports that these were the last.
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
		c.collect() // first the posts that ranks made before these commands
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

// Close ends every attachment and stops the core. The circuits stay as they are. Later calls do nothing.
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

// Resign ends the controller's rule for the reason why: it moves nothing any more and closes the attachments, so that
// ranks look for the next controller. Snapshot and Watch still work.
func (c *Core) Resign(why error) {
	_ = c.do(func(now int64) { c.machine.retire(why, now) })
}

// Set implements Controller.
func (c *Core) Set(plane int, target circuit.Permutation, who string) error {
	return c.Change(Change{Planes: []PlaneChange{{Plane: plane, Target: target}}}, who)
}

// Disable implements Controller.
func (c *Core) Disable(plane int, reason, who string) error {
	return c.await(func(done func(error)) error { return c.BeginDisable(plane, reason, who, done) })
}

// Enable implements Controller.
func (c *Core) Enable(plane int, who string) error {
	return c.await(func(done func(error)) error { return c.BeginEnable(plane, who, done) })
}

// BeginDisable is to Disable what BeginChange is to Change.
func (c *Core) BeginDisable(plane int, reason, who string, done func(error)) error {
	if err := c.checkPlane(plane); err != nil {
		return fmt.Errorf("controller: disable: %w", err)
	}
	return c.do(func(now int64) { c.machine.disable(plane, reason, who, done, now) })
}

// BeginEnable is to Enable what BeginChange is to Change.
func (c *Core) BeginEnable(plane int, who string, done func(error)) error {
	if err := c.checkPlane(plane); err != nil {
		return fmt.Errorf("controller: enable: %w", err)
	}
	return c.do(func(now int64) { c.machine.enable(plane, &order{who: who, done: done}, now) })
}

// await calls begin, and waits until the core calls done.
func (c *Core) await(begin func(done func(error)) error) error {
	ended := make(chan error, 1)
	if err := begin(func(err error) { ended <- err }); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-c.done:
		select { // retire has answered, unless the core never ran the command
		case err := <-ended:
			return err
		default:
			return ErrStopped
		}
	}
}

func (c *Core) checkPlane(plane int) error {
	if plane < 0 || plane >= len(c.cfg.Planes) {
		return fmt.Errorf("plane %d of %d", plane, len(c.cfg.Planes))
	}
	return nil
}

// checkMap checks a plane number and a map for the plane.
func (c *Core) checkMap(plane int, target circuit.Permutation) error {
	if err := c.checkPlane(plane); err != nil {
		return err
	}
	if err := target.Validate(c.cfg.Ports); err != nil {
		return fmt.Errorf("%s: target %w", &c.cfg.Planes[plane], err)
	}
	return nil
}

var errNoPort = errors.New("the attachment has no port")
