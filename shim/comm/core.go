package comm

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/shim/bootstrap"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/settings"
)

// Core is one rank of a communicator. Safe for concurrent use: calls of several threads run one at a time, in the
// order in which they get its [Turn]. The caller makes sure that this order is the same on every rank.
type Core struct {
	Identity
	Turn     Turn // held while the communicator is made and while a group runs
	Above    Above
	failure  failure
	life     life
	gone     departures
	messages messages
	accord   accord
	hooks    atomic.Pointer[[]Hooks]
	slots    slots
}

// Identity names a rank and its connections to the others. It is final once the communicator has joined. Before, only
// the goroutine that makes the communicator reads it.
type Identity struct {
	Rank, Ranks int
	ID          uint64         // of the communicator, in every frame
	Secret      control.Secret // of its ranks
	Serial      uint64         // of this object in this process: the order of locks
	Name        string         // for logs
	Device      int            // the device that the communicator was made for
	NonBlocking bool           // calls return before they complete

	Cfg   *settings.Config
	Log   *log.Logger
	Table []bootstrap.Hello // by rank
	Star  *control.Star     // the control network; nil before the ranks have met

	LocalRanks int  // ranks of the communicator on this host
	SoleRank   bool // no other rank of this host is in this process
}

// Above holds what rooms above this one know. They replace functions while the communicator is made.
type Above struct {
	CountCalls     func() (collectives, all uint64) // the number of the last collective, and that of all calls
	CountMessages  func() map[int]control.Messages  // with other ranks, on the host path
	CallInProgress func() string                    // names the call that this rank is in, "" for none
	Verdict        func() string                    // names the faults that ranks see, "" for none
	TellRanks      func(*control.Message)           // sends a failure to all ranks after the leader has ended
}

var serials atomic.Uint64

// New returns a communicator whose ranks have not met.
func New(id Identity) *Core {
	c := &Core{Identity: id}
	c.Serial = serials.Add(1)
	c.failure.done, c.failure.told = make(chan struct{}), make(chan struct{})
	c.life.released = make(chan struct{})
	c.life.ctx, c.life.cancel = context.WithCancel(context.Background())
	c.life.ended, c.life.ending = make(chan struct{}), make(chan struct{})
	c.messages.inbox = make(chan *control.Message, 64)
	c.messages.queue = make(chan queued, queueLength)
	c.Turn.core = c
	nothing := func() string { return "" }
	c.Above = Above{
		CountCalls: func() (collectives, all uint64) { return 0, 0 }, CallInProgress: nothing, Verdict: nothing,
		CountMessages: func() map[int]control.Messages { return nil }, TellRanks: func(*control.Message) {},
	}
	c.Handle(control.MsgPoison, c.failedElsewhere)
	c.handleReady()
	c.HandleAtLeader(control.MsgManaged, c.addResult)
	return c
}

// Join starts the control network of a communicator whose ranks have met. From now on a failure on one rank fails all,
// also one from before.
func (c *Core) Join(star *control.Star) {
	c.Star = star
	star.Start(control.Events{Deliver: c.Deliver, Departed: c.peerDeparted, Lost: c.peerLost})
	f := &c.failure
	f.mu.Lock()
	c.life.joined.Store(true)
	untold := f.untold
	f.mu.Unlock()
	if untold != nil {
		untold()
	}
}

// CountLocal counts how the ranks are placed on hosts and in processes.
func (c *Core) CountLocal() {
	me := &c.Table[c.Rank]
	c.SoleRank = true
	for i := range c.Table {
		if c.Table[i].Host != me.Host {
			continue
		}
		c.LocalRanks++
		if i != c.Rank && c.Table[i].Process == me.Process {
			c.SoleRank = false
		}
	}
}

// Hosts returns the number of ranks on each host.
func (c *Core) Hosts() map[string]int {
	hosts := map[string]int{}
	for i := range c.Table {
		hosts[c.Table[i].Host]++
	}
	return hosts
}

// Life returns the state.
func (c *Core) Life() LifeState { return LifeState(c.life.state.Load()) }

var errSuspended = fmt.Errorf("shim: comm is suspended; call ncclCommResume first: %w", errdefs.ErrInvalidUsage)

// Usable returns why no call can be made, nil if one can. Hot path.
func (c *Core) Usable() error {
	if c.life.pending.Load() != 0 {
		return c.Busy()
	}
	return c.Healthy()
}

// Healthy is [Core.Usable] also while a call is in progress in the background. Hot path.
func (c *Core) Healthy() error {
	switch c.Life() {
	case Alive:
		return c.AsyncError()
	case Making:
		return c.Busy()
	case Suspended:
		return errSuspended
	}
	return fmt.Errorf("shim: comm has been finalized or destroyed: %w", errdefs.ErrDestroyed)
}

// AsyncError returns the failure of the communicator, nil while it is healthy. Callable at any time, also while a call
// is blocked.
func (c *Core) AsyncError() error {
	if p := c.failure.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Failed reports whether the communicator has failed. Hot path.
func (c *Core) Failed() bool { return c.failure.err.Load() != nil }

// Poison returns the address of the failure, for loops that check it often.
func (c *Core) Poison() *atomic.Pointer[error] { return &c.failure.err }

// MaxStallInterval is the longest [Core.StallInterval].
const MaxStallInterval = 500 * time.Millisecond

// StallInterval returns how often a stalled rank reports: each half second, or four times in a shorter timeout. So the
// leader knows where all ranks are when the first of them gives up.
func (c *Core) StallInterval() time.Duration { return min(MaxStallInterval, c.Cfg.Timeout/4) }

// maxSlots bounds the rooms that keep state of a communicator.
const maxSlots = 24

type slots [maxSlots]unsafe.Pointer

var numSlots int

// Slot holds a room's state of each communicator, a *T. Rooms declare slots as package variables.
type Slot[T any] struct{ at int }

// NewSlot returns a slot that no other room has. Call it to initialize a package variable.
func NewSlot[T any]() Slot[T] {
	if numSlots == maxSlots {
		panic("comm: more slots than maxSlots")
	}
	numSlots++
	return Slot[T]{numSlots - 1}
}

// Of returns the state of a communicator, nil where there is none. Hot path: no lock, no allocation.
func (s Slot[T]) Of(c *Core) *T { return (*T)(atomic.LoadPointer(&c.slots[s.at])) }

// Set sets the state of a communicator; nil removes it.
func (s Slot[T]) Set(c *Core, state *T) { atomic.StorePointer(&c.slots[s.at], unsafe.Pointer(state)) }
