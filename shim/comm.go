package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/sharedmem"
	"lightpath/collectives/transport"
	"lightpath/shim/bootstrap"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/result"
	"lightpath/shim/settings"
	"lightpath/shim/status"
)

// linger is how long a destroyed communicator keeps its connections for ranks that have
// not destroyed theirs; the leader stays until all are gone or have said goodbye.
const linger = 10 * time.Second

// InitArgs asks for one communicator of this process.
type InitArgs struct {
	ID          UniqueID
	More        []UniqueID // the other ids where ranks meet at several places ([Scatter])
	Ranks, Rank int
	// Device is the number of a device, negative for that of the calling thread's context.
	Device int
	// From is set where the communicator comes from another one. Its device is then the
	// parent's; ID, More, Ranks and Rank are not read.
	From *Origin
	// NonBlocking: calls that would wait return [errdefs.ErrInProgress], go on in the background, and
	// [Comm.State] tells when they have ended.
	NonBlocking bool
	Name        string // for logs
}

// lifeState is where a communicator is in its life; poison is apart from it.
type lifeState int32

const (
	making lifeState = iota // its ranks have not all met
	alive
	suspended
	finalized
	destroyed
)

// Comm is one rank of a communicator. Safe for concurrent use: calls from several
// threads on one communicator are taken one at a time, in the order in which they get
// hold of it; that this order is the same on every rank is the caller's duty.
type Comm struct {
	args   InitArgs
	cfg    *settings.Config
	log    *log.Logger
	asked  asked
	id     uint64         // of the communicator, in every frame
	secret control.Secret // of its ranks
	serial uint64         // of this object in this process: the order of locks
	table  []bootstrap.Hello
	star   *control.Star
	packet transport.Endpoint
	shares *shares          // nil where those of packet planes are even
	arena  *sharedmem.Arena // nil where ranks share no memory
	light  *optical         // nil without circuits
	dev    *onDevice        // nil in programs without devices
	cut    int64            // bytes of a buffer that a call moves in one piece; 0: any
	// inter is nil where calls on streams are not interposed; it is set before the first of them.
	inter atomic.Pointer[interposer]
	// noDevice is why dev is nil.
	noDevice error
	leader   *leader // rank 0 only

	// joined: id, table, star and args are final, and the control network works. Before, only
	// the goroutine that makes the communicator reads them.
	joined  atomic.Bool
	life    atomic.Int32
	pending atomic.Int32       // operations that go on in the background
	revoked atomic.Bool        // by this rank
	ctx     context.Context    // of making it; ends with poison
	cancel  context.CancelFunc // of ctx
	kin     kinship
	parent  *Comm // whose circuits may be in the way; nil where there are none
	// unwanted: this rank takes part in a split, and gets nothing.
	unwanted bool
	door     *bootstrap.Door // where ranks of it can meet again; nil for one rank

	failing  atomic.Bool           // somebody is on the way to poison it
	poison   atomic.Pointer[error] // first failure; never reset
	poisonCh chan struct{}         // closed with poison
	inbox    chan *control.Message // from the leader, for the call in progress
	wakeMu   sync.Mutex
	wakers   []func() // of the endpoints that a call may be blocked on
	relOnce  sync.Once
	released chan struct{} // closed when everything is given back

	side      *oneSided // nil until it has joined
	operators operators // that the user has created
	probes    probes

	mu turn // held while it is made and while a group runs; guards what follows
	runner
}

var serials atomic.Uint64

// Ranks is the number of ranks of the communicator.
func (c *Comm) Ranks() int { return c.args.Ranks }

// Rank is this rank's number, 0 .. Ranks-1.
func (c *Comm) Rank() int { return c.args.Rank }

// Blocking tells whether calls return when they are complete; see [InitArgs].NonBlocking.
func (c *Comm) Blocking() bool { return !c.args.NonBlocking }

// Name is the communicator's for logs.
func (c *Comm) Name() string { return c.args.Name }

// Device is the device that the communicator was made for.
func (c *Comm) Device() int { return c.args.Device }

// AsyncError is what poisoned the communicator, nil while it is healthy. Callable at any
// time, also while a call is blocked.
func (c *Comm) AsyncError() error {
	if p := c.poison.Load(); p != nil {
		return *p
	}
	return nil
}

// State is AsyncError, and [errdefs.ErrInProgress] while something goes on in the background. What this
// rank itself has revoked has not failed.
func (c *Comm) State() error {
	if lifeState(c.life.Load()) == making {
		return errdefs.ErrInProgress // also where that has failed: until it is over nothing can be called
	}
	c.inter.Load().check()
	c.hear()
	err := c.AsyncError()
	switch {
	case err != nil && (!c.revoked.Load() || !errors.Is(err, errdefs.ErrRevoked)):
		return err
	case c.Busy() != nil:
		return errdefs.ErrInProgress
	}
	return nil
}

// Busy is the error of using a communicator whose last operation has not ended.
func (c *Comm) Busy() error {
	if c.pending.Load() == 0 && lifeState(c.life.Load()) != making {
		return nil
	}
	return fmt.Errorf("shim: comm is in use before ncclCommGetAsyncError has said that its last operation is complete: %w", errdefs.ErrInvalidArgument)
}

// usable reports why no call can be made, nil where one can.
func (c *Comm) usable() error {
	if c.pending.Load() != 0 {
		return c.Busy()
	}
	return c.sound()
}

// sound is usable for a call that is itself what goes on.
func (c *Comm) sound() error {
	switch lifeState(c.life.Load()) {
	case alive:
		return c.AsyncError()
	case making:
		return c.Busy()
	case suspended:
		return fmt.Errorf("shim: comm is suspended; call ncclCommResume first: %w", errdefs.ErrInvalidUsage)
	}
	return fmt.Errorf("shim: comm has been finalized or destroyed: %w", errdefs.ErrDestroyed)
}

// inBackground runs the rest of an operation: here, or where the communicator does not block
// on a goroutine of its own.
func (c *Comm) inBackground(f func() error) error {
	if !c.args.NonBlocking {
		return f()
	}
	c.pending.Add(1)
	go func() {
		if err := f(); err != nil {
			c.spread(err)
		}
		c.pending.Add(-1)
	}()
	return errdefs.ErrInProgress
}

// whoami names this rank for messages, also before it has a number.
func (c *Comm) whoami() string {
	if !c.joined.Load() {
		return "a rank of a communicator that is being made"
	}
	return fmt.Sprintf("rank %d", c.args.Rank)
}

// leave says goodbye to the control network.
func (c *Comm) leave() {
	if c.joined.Load() {
		c.star.Leave()
	}
}

// release gives everything back once all ranks have left, or after d, or when the
// communicator has failed. Idempotent.
func (c *Comm) release(d time.Duration) {
	c.relOnce.Do(func() {
		defer close(c.released)
		defer c.cancel()
		c.unwatch()
		if c.star != nil && d > 0 {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-c.star.EveryoneLeft():
			case <-c.poisonCh:
			case <-timer.C:
			}
		}
		if c.leader != nil {
			c.leader.close()
		}
		c.side.end()
		if c.packet != nil {
			_ = c.packet.Close() // nothing is in flight that anyone waits for
		}
		if c.arena != nil {
			c.arena.Close() // no call is inside
		}
		c.light.close()
		if c.star != nil {
			if c.args.Rank == 0 && c.AsyncError() == nil {
				c.star.AwaitLeft()
			}
			c.star.Close()
		}
		c.door.Leave()
		c.inter.Load().close()
		c.dev.close()
		c.log.Close()
	})
}

// poisonWith records the first failure and wakes everything that waits here. What the
// other ranks are to be told goes out before: a process may end as soon as a call of it
// returns, and they would learn of that end only.
func (c *Comm) poisonWith(err error, tell func()) {
	if !c.failing.CompareAndSwap(false, true) {
		return
	}
	joined := c.joined.Load()
	if tell != nil && joined {
		tell()
	}
	c.leaveFlight(err)
	c.poison.Store(&err)
	c.mu.shut()
	close(c.poisonCh)
	c.cancel()
	c.wakeMu.Lock()
	for _, wake := range c.wakers {
		wake()
	}
	c.wakeMu.Unlock()
	if joined {
		c.log.Warn("comm %#x rank %d: %v", c.id, c.args.Rank, err)
	} else {
		c.log.Warn("communicator not made: %v", err)
	}
}

// addWaker registers what wakes a call that is blocked on an endpoint.
func (c *Comm) addWaker(wake func()) {
	c.wakeMu.Lock()
	c.wakers = append(c.wakers, wake)
	c.wakeMu.Unlock()
}

// errNothing: no message came in time.
var errNothing = errors.New("shim: nothing came")

// await returns the next message of a kind and sequence that was delivered to this rank;
// older ones are dropped. It ends with the poison or the timeout.
func (c *Comm) await(kind control.Kind, seq uint64) (*control.Message, error) {
	m, err := c.awaitFor(kind, seq, c.cfg.Timeout)
	if errors.Is(err, errNothing) {
		return nil, fmt.Errorf("shim: rank %d: no word from rank 0 in %v: %w", c.args.Rank, c.cfg.Timeout, errdefs.ErrTimeout)
	}
	return m, err
}

// awaitFor is await with its own bound, after which it returns errNothing.
func (c *Comm) awaitFor(kind control.Kind, seq uint64, d time.Duration) (*control.Message, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case m := <-c.inbox:
			if m.Kind == kind && m.Seq == seq {
				return m, nil
			}
		case <-c.poisonCh:
			return nil, c.AsyncError()
		case <-timer.C:
			return nil, errNothing
		}
	}
}

// fail poisons the communicator everywhere and returns the error that it has failed with:
// err, or what came first.
func (c *Comm) fail(err error) error {
	if errors.Is(err, control.ErrUnsent) && c.joined.Load() {
		c.hearCause()
	}
	c.spread(err)
	<-c.poisonCh // whoever came first may still be telling the others
	return c.AsyncError()
}

// hearCause waits a second for what another rank has failed with, whose last words come by way of the leader. A second in
// parts: where this process itself stands still, one of them is over, and the words are read in the next.
func (c *Comm) hearCause() {
	part := time.NewTicker(time.Second / 10)
	defer part.Stop()
	for range 10 {
		select {
		case <-c.poisonCh:
			return
		case <-c.star.EveryoneLeft():
			return
		case <-part.C:
		}
	}
}

// isEcho reports whether an error is what another rank's failure looks like from here: what it had made is gone.
func isEcho(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// spread poisons the communicator here and, where err is the first failure, everywhere.
func (c *Comm) spread(err error) {
	if errors.Is(err, errdefs.ErrTimeout) || errors.Is(err, exec.ErrTimeout) {
		err = c.blame(err)
	}
	c.poisonWith(err, func() {
		class, text := result.Encode(err)
		m := &control.Message{Kind: control.MsgPoison, Arg: class, Body: []byte(text)}
		if c.args.Rank == 0 {
			c.star.Broadcast(m, -1)
		} else {
			// Where the leader is gone, everyone else notices that by themselves.
			_ = c.star.ToLeader(m)
		}
	})
}

// blame adds to a wait that has timed out which ranks of this host are stopped: whom a rank has waited
// for may itself have waited for one of them.
func (c *Comm) blame(err error) error {
	if !c.joined.Load() {
		return err
	}
	me := &c.table[c.args.Rank]
	for i := range c.table {
		h := &c.table[i]
		if h.Host == me.Host && h.PIDs == me.PIDs && h.PID != me.PID && status.ProcessAnswer(h.PID) == status.Stopped {
			err = fmt.Errorf("%w; the process of %s is stopped", err, h.Where())
		}
	}
	return err
}

// peerLost is what the star calls when a control connection ends without a goodbye.
func (c *Comm) peerLost(rank int, cause error) {
	c.spread(fmt.Errorf("shim: lost %s: %w: %w", c.table[rank].Where(), cause, errdefs.ErrRemote))
}

// deliver handles a control message, on the goroutine of its connection.
func (c *Comm) deliver(m *control.Message) {
	switch m.Kind {
	case control.MsgPoison:
		c.poisonWith(result.Decode(m), func() {
			if c.args.Rank == 0 {
				c.star.Broadcast(m, int(m.From))
			}
		})
	case control.MsgQuery:
		if sh, ok := c.flight.find(m.Seq); ok {
			c.reportShape(control.MsgState, m.Seq, &sh)
		}
	case control.MsgState, control.MsgTimeout:
		if c.leader != nil {
			c.leader.stalled(m)
		}
	case control.MsgAsk:
		c.probed(m)
	case control.MsgTell:
		c.told(m)
	case control.MsgManaged:
		if c.leader != nil {
			c.leader.accords.take(c, m)
		}
	case control.MsgRegions:
		c.regionsChanged(m)
	case control.MsgKin:
		if c.leader != nil {
			c.leader.births.ask(m)
		}
	case control.MsgVacateAsk:
		if c.leader != nil {
			go c.leader.births.vacate(m)
		}
	case control.MsgVacate:
		if c.light != nil {
			c.light.vacate(m)
		}
	case control.MsgKinAnswer:
		c.kin.answer(m)
	case control.MsgPlanAsk:
		if in := c.inter.Load(); c.leader != nil && in != nil {
			go in.answer(m)
		}
	case control.MsgPlanTold:
		if in := c.inter.Load(); in != nil {
			in.answered(m)
		}
	case control.MsgShares:
		if c.leader != nil {
			c.leader.post(m)
		} else if answer := c.shares.answer(m, len(c.packet.Planes())); answer != nil {
			_ = c.star.ToLeader(answer) // a leader that is gone is noticed by who reads
		}
	case control.MsgWant, control.MsgDone, control.MsgPlanReq, control.MsgReady, control.MsgRow:
		if c.leader != nil {
			c.leader.post(m)
		}
	default:
		select {
		case c.inbox <- m:
		case <-c.poisonCh:
		}
	}
}
