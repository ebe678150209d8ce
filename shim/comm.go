package shim

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/collectives/transport"
)

// maxRanks bounds a communicator; frames carry ranks in 16 bits.
const maxRanks = 4096

// linger is how long a destroyed communicator keeps its connections for ranks that have
// not destroyed theirs; the leader stays until all are gone or have said goodbye.
const linger = 10 * time.Second

// InitArgs asks for one communicator of this process.
type InitArgs struct {
	ID                  UniqueID
	Ranks, Rank, Device int
	// Blocking is the configuration's; calls complete before they return either way.
	Blocking bool
	Name     string // for logs
}

// lifeState is where a communicator is in its life; poison is apart from it.
type lifeState int32

const (
	alive lifeState = iota
	finalized
	destroyed
)

// Comm is one rank of a communicator. Safe for concurrent use: calls from several
// threads on one communicator are taken one at a time, in the order in which they get
// hold of it; that this order is the same on every rank is the caller's duty.
type Comm struct {
	args   InitArgs
	cfg    *Config
	log    *logger
	id     uint64 // of the communicator, in every frame
	serial uint64 // of this object in this process: the order of locks
	table  []hello
	star   *star
	packet transport.Endpoint
	light  *optical // nil without circuits
	leader *leader  // rank 0 only

	life     atomic.Int32
	failing  atomic.Bool           // somebody is on the way to poison it
	poison   atomic.Pointer[error] // first failure; never reset
	poisonCh chan struct{}         // closed with poison
	inbox    chan *message         // from the leader, for the call in progress
	wakeMu   sync.Mutex
	wakers   []func() // of the endpoints that a call may be blocked on
	relOnce  sync.Once
	released chan struct{} // closed when everything is given back

	operators operators // that the user has created

	mu sync.Mutex // held while a group runs; guards what follows
	runner
}

var serials atomic.Uint64

// Ranks is the number of ranks of the communicator.
func (c *Comm) Ranks() int { return c.args.Ranks }

// Rank is this rank's number, 0 .. Ranks-1.
func (c *Comm) Rank() int { return c.args.Rank }

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

// usable reports why no call can be made, nil where one can.
func (c *Comm) usable() error {
	if lifeState(c.life.Load()) != alive {
		return fmt.Errorf("shim: comm has been finalized or destroyed: %w", ErrDestroyed)
	}
	return c.AsyncError()
}

// Finalize ends the communicator: every call has completed when it returned, so there is
// nothing to flush, and the other ranks learn that this one will make no more. Calls are
// refused afterwards; Destroy is still due.
func (c *Comm) Finalize() error {
	if !c.life.CompareAndSwap(int32(alive), int32(finalized)) {
		return fmt.Errorf("shim: finalize: %w", ErrDestroyed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.light.quiesce(linger)
	c.leave()
	return c.AsyncError()
}

// Destroy frees the communicator. A call in progress on another thread is waited for.
// It does not wait for other ranks: what they still need of this one is kept in the
// background until they have left too. Destroying twice is [ErrDestroyed].
func (c *Comm) Destroy() error {
	was := lifeState(c.life.Swap(int32(destroyed)))
	if was == destroyed {
		return fmt.Errorf("shim: destroy: %w", ErrDestroyed)
	}
	registrations.drop(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if was == alive {
		c.light.quiesce(linger)
		c.leave()
	}
	c.departCircuits()
	go c.release(linger)
	return nil
}

// departWait is how long the leader's Destroy waits for the other ranks, whose tickets it issues.
const departWait = 50 * time.Millisecond

// departCircuits takes leave of the controller before a process may end: one that ends without is
// a rank that died, to the controller and to its operator. Nothing is on its way here any more.
func (c *Comm) departCircuits() {
	if c.light == nil || c.AsyncError() != nil {
		return
	}
	if c.leader != nil {
		select {
		case <-c.star.allLeft:
			c.leader.close()
		case <-time.After(departWait):
			return // release comes to it
		}
	}
	c.light.close()
}

// Abort fails the communicator on every rank and frees it here: calls blocked on any
// thread return [ErrAborted].
func (c *Comm) Abort() error {
	if lifeState(c.life.Swap(int32(destroyed))) == destroyed {
		return fmt.Errorf("shim: abort: %w", ErrDestroyed)
	}
	registrations.drop(c)
	c.spread(fmt.Errorf("shim: rank %d aborted: %w", c.args.Rank, ErrAborted))
	c.leave()
	c.mu.Lock() // the blocked call has left
	defer c.mu.Unlock()
	go c.release(0)
	return nil
}

// leave says goodbye to the control network.
func (c *Comm) leave() {
	if c.star != nil {
		c.star.leave()
	}
}

// release gives everything back once all ranks have left, or after d, or when the
// communicator has failed. Idempotent.
func (c *Comm) release(d time.Duration) {
	c.relOnce.Do(func() {
		defer close(c.released)
		if c.star != nil && d > 0 {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-c.star.allLeft:
			case <-c.poisonCh:
			case <-timer.C:
			}
		}
		if c.leader != nil {
			c.leader.close()
		}
		if c.packet != nil {
			_ = c.packet.Close() // nothing is in flight that anyone waits for
		}
		c.light.close()
		if c.star != nil {
			if c.args.Rank == 0 && c.AsyncError() == nil {
				c.star.awaitLeft()
			}
			c.star.close()
		}
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
	if tell != nil && c.star != nil {
		tell()
	}
	c.poison.Store(&err)
	close(c.poisonCh)
	c.wakeMu.Lock()
	for _, wake := range c.wakers {
		wake()
	}
	c.wakeMu.Unlock()
	c.log.warn("comm %#x rank %d: %v", c.id, c.args.Rank, err)
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
func (c *Comm) await(kind msgKind, seq uint64) (*message, error) {
	m, err := c.awaitFor(kind, seq, c.cfg.Timeout)
	if errors.Is(err, errNothing) {
		return nil, fmt.Errorf("shim: rank %d: no word from rank 0 in %v: %w", c.args.Rank, c.cfg.Timeout, ErrTimeout)
	}
	return m, err
}

// awaitFor is await with its own bound, after which it returns errNothing.
func (c *Comm) awaitFor(kind msgKind, seq uint64, d time.Duration) (*message, error) {
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
	c.spread(err)
	<-c.poisonCh // whoever came first may still be telling the others
	return c.AsyncError()
}

// spread poisons the communicator here and, where err is the first failure, everywhere.
func (c *Comm) spread(err error) {
	c.poisonWith(err, func() {
		class, text := encodeError(err)
		m := &message{Kind: msgPoison, Arg: class, Body: []byte(text)}
		if c.args.Rank == 0 {
			c.star.broadcast(m, -1)
		} else {
			// Where the leader is gone, everyone else notices that by themselves.
			_ = c.star.toLeader(m)
		}
	})
}

// peerLost is what the star calls when a control connection ends without a goodbye.
func (c *Comm) peerLost(rank int, cause error) {
	c.spread(fmt.Errorf("shim: lost %s: %w: %w", c.table[rank].where(), cause, ErrRemote))
}

// deliver handles a control message, on the goroutine of its connection.
func (c *Comm) deliver(m *message) {
	switch m.Kind {
	case msgPoison:
		c.poisonWith(decodeError(m), func() {
			if c.args.Rank == 0 {
				c.star.broadcast(m, int(m.From))
			}
		})
	case msgQuery:
		if sh, ok := c.history.find(m.Seq); ok {
			c.reportShape(msgState, m.Seq, &sh)
		}
	case msgState, msgTimeout:
		if c.leader != nil {
			c.leader.stalled(m)
		}
	case msgWant, msgDone, msgPlanReq, msgReady, msgRow:
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
