package comm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/collectives/sharedmem"
)

// Gate is struct lp_gate of cgo/core/lp_types.h. Through it C locks a communicator, to make calls by itself where it
// can ([sharedmem.Quick]). Gates are in C memory that is never freed, one cache line each.
type Gate struct {
	// Word is the communicator's handle while C may enter, 1 while C is inside, otherwise 0. A thread that swaps the
	// handle out of Word holds the communicator.
	Word  atomic.Uint64
	Quick atomic.Pointer[sharedmem.Quick] // the data that C uses inside
	Shut  atomic.Uint32                   // not 0 if calls fail: C leaves calls to Go, also a call that it has begun
	_     uint32
	Owner atomic.Uint64 // handle of the communicator that has the gate, 0 for none; not for C
	_     [4]uint64
}

// Turn is the lock of a communicator. One thread holds it at a time, in Go or in C. While it is free, C may use the
// state that [Turn.Share] lends.
type Turn struct {
	sync.Mutex
	core   *Core
	gate   atomic.Pointer[Gate] // nil if C does not enter; read without the lock to shut it
	lent   Lender               // guarded by Mutex, like the fields below
	quick  *sharedmem.Quick
	handle uint64
	begun  bool // C has begun a call, and its thread is about to continue it in Go
}

// BySerial is the one order in which all threads lock communicators, whatever their order in a group.
func BySerial(a, b *Core) int {
	if a.Serial < b.Serial {
		return -1
	}
	return 1
}

// Lender lends state to C and takes it back. Both are called with the turn held.
type Lender interface {
	Lend(q *sharedmem.Quick)
	TakeBack(q *sharedmem.Quick)
}

// C polls and yields inside, and never blocks. A thread that waits for C yields gateYields times, then sleeps.
const (
	gateYields = 100
	gateWait   = 20 * time.Microsecond
)

// Lock waits until no thread uses the communicator and no call of it is half done.
func (t *Turn) Lock() {
	for {
		t.enter()
		if !t.begun {
			return
		}
		t.Mutex.Unlock()
		time.Sleep(gateWait)
	}
}

// TryLock is [Turn.Lock] for a thread that must not wait. If C makes calls, TryLock returns false.
func (t *Turn) TryLock() bool {
	if !t.Mutex.TryLock() {
		return false
	}
	if t.gate.Load() == nil && !t.begun {
		return true
	}
	t.Mutex.Unlock()
	return false
}

// LockBegun is [Turn.Lock] for the thread whose call C has begun.
func (t *Turn) LockBegun() {
	t.enter()
	t.begun = false
}

// enter waits until no thread uses the communicator.
func (t *Turn) enter() {
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
	t.lent.TakeBack(t.quick)
	if t.quick.Begun != 0 {
		t.quick.Begun, t.begun = 0, true
	}
}

// Unlock ends the turn of this thread.
func (t *Turn) Unlock() {
	if g := t.gate.Load(); g != nil && t.core.Life() == Alive && !t.core.Failed() {
		t.lent.Lend(t.quick)
		g.Word.Store(t.handle)
	}
	t.Mutex.Unlock()
}

// Shared returns the data that C uses, nil if C makes no calls of the communicator. The caller holds the turn.
func (t *Turn) Shared() *sharedmem.Quick {
	if t.gate.Load() == nil {
		return nil
	}
	return t.quick
}

// Share lets C make calls through g, of the communicator that C knows by its handle. It reports whether C can. The
// caller holds the turn.
func (t *Turn) Share(g *Gate, handle uint64, q *sharedmem.Quick, lent Lender) bool {
	if !g.Owner.CompareAndSwap(0, handle) {
		return false // a communicator with an older handle is about to end
	}
	t.handle, t.quick, t.lent = handle, q, lent
	g.Quick.Store(q)
	g.Shut.Store(0)
	t.gate.Store(g)
	if t.core.Failed() {
		t.shut()
	}
	return true
}

// OperatorEnded stops C from making calls with user operators that it has seen. It needs no lock.
func (t *Turn) OperatorEnded() {
	if g := t.gate.Load(); g != nil {
		if q := g.Quick.Load(); q != nil {
			q.OperatorEnded()
		}
	}
}

// shut makes the calls fail that C would make. It needs no lock. If another communicator has the gate by now, its
// calls go through Go, which does no harm.
func (t *Turn) shut() {
	if g := t.gate.Load(); g != nil {
		g.Shut.Store(1)
	}
}

// keep ends [Turn.Share] for good. The turn is held.
func (t *Turn) keep() {
	if g := t.gate.Swap(nil); g != nil {
		g.Quick.Store(nil)
		g.Owner.Store(0)
		t.quick.Release()
	}
}
