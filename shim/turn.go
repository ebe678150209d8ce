package shim

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/collectives/sharedmem"
)

// Gate is struct lp_gate of cgo/core/lp_types.h: how C gets hold of a communicator, to make by itself the
// calls that it can ([sharedmem.Quick]). It lies in memory of C, a line for each, that is never freed.
type Gate struct {
	// Word is the communicator's handle while C may come in, 1 while it is inside, else 0. Who
	// takes the handle away has the communicator.
	Word  atomic.Uint64
	Quick atomic.Pointer[sharedmem.Quick] // what C works on, inside
	Shut  atomic.Uint32                   // not 0 where calls fail: C leaves them to Go, one that it has begun too
	_     uint32
	Owner atomic.Uint64 // handle of the communicator that has the gate, 0 for none; not for C
	_     [4]uint64
}

// turn is the lock of a communicator: one thread has it at a time, in Go or in C. While it is unlocked
// the arena is C's, where there is a gate.
type turn struct {
	sync.Mutex
	c      *Comm                // guarded by Mutex, as all that follows
	gate   atomic.Pointer[Gate] // nil where C stays outside; read without the lock to shut it
	quick  *sharedmem.Quick
	handle uint64
	begun  bool // C has begun a call, whose thread is on the way to go on with it
}

// Lock waits until nobody uses the communicator and no call of it is half done.
func (t *turn) Lock() {
	for {
		t.take()
		if !t.begun {
			return
		}
		t.Mutex.Unlock()
		time.Sleep(gateWait)
	}
}

// TryLock is Lock for a thread that must not wait. Where C makes calls it does not try.
func (t *turn) TryLock() bool {
	if !t.Mutex.TryLock() {
		return false
	}
	if t.gate.Load() == nil && !t.begun {
		return true
	}
	t.Mutex.Unlock()
	return false
}

// lockBegun is Lock for the thread whose call is half done.
func (t *turn) lockBegun() {
	t.take()
	t.begun = false
}

// C is inside for as long as it polls and yields, and never blocks there.
const (
	gateYields = 100
	gateWait   = 20 * time.Microsecond
)

// take waits until nobody uses the communicator.
func (t *turn) take() {
	t.Mutex.Lock()
	g := t.gate.Load()
	if g == nil {
		return
	}
	for tries := 0; !g.Word.CompareAndSwap(t.handle, 0); tries++ {
		if g.Word.Load() == 0 {
			if t.quick.Begun == 0 {
				return // it was not lent
			}
			break
		}
		if tries < gateYields {
			runtime.Gosched()
		} else {
			time.Sleep(gateWait)
		}
	}
	t.c.seq = t.c.arena.TakeBack(t.quick)
	if t.quick.Begun != 0 {
		t.quick.Begun, t.begun = 0, true
	}
}

// Unlock lets the next one in.
func (t *turn) Unlock() {
	if g := t.gate.Load(); g != nil && lifeState(t.c.life.Load()) == alive && t.c.poison.Load() == nil {
		t.c.arena.Lend(t.quick, t.c.seq)
		g.Word.Store(t.handle)
	}
	t.Mutex.Unlock()
}

// shut has calls fail that C would make. It needs no lock. Where the gate is another communicator's
// meanwhile, that one's calls all go through Go, and nothing worse.
func (t *turn) shut() {
	if g := t.gate.Load(); g != nil {
		g.Shut.Store(1)
	}
}

// operatorEnded has C make no more calls with operators of the user that it has seen. It needs no lock.
func (t *turn) operatorEnded() {
	if g := t.gate.Load(); g != nil {
		if q := g.Quick.Load(); q != nil {
			q.OperatorEnded()
		}
	}
}

// give lets C make calls, at g, of the communicator that C knows by its handle. The lock is held.
func (t *turn) give(c *Comm, g *Gate, handle uint64, q *sharedmem.Quick) bool {
	if !g.Owner.CompareAndSwap(0, handle) {
		return false // one with an older handle is about to end
	}
	t.c, t.handle, t.quick = c, handle, q
	g.Quick.Store(q)
	g.Shut.Store(0)
	t.gate.Store(g)
	if c.poison.Load() != nil {
		t.shut()
	}
	return true
}

// keep ends give, for good. The lock is held.
func (t *turn) keep() {
	if g := t.gate.Swap(nil); g != nil {
		g.Quick.Store(nil)
		g.Owner.Store(0)
		t.quick.Release()
	}
}
