package shmring

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Futex operations (linux/futex.h), in the form shared between processes.
const (
	futexWait = 0
	futexWake = 1
)

// DoorbellSize is the memory a [Doorbell] needs, 64-byte aligned and zero at first.
const DoorbellSize = 64

// Doorbell wakes one waiter in any process that shares its memory. Anyone may Ring.
//
// Arm sets a flag. The next Ring clears it, then advances seq and wakes the waiter. While no waiter is about to sleep,
// Ring only reads the cache line, which stays in the cache of every caller. The caller of Ring must publish its change
// (an atomic store) before Ring, and the waiter must look for it after Arm. Then one of the two sees the other.
type Doorbell struct {
	seq, armed *atomic.Uint32
}

// NewDoorbell makes a view of the doorbell in mem.
func NewDoorbell(mem []byte) (*Doorbell, error) {
	if len(mem) < DoorbellSize || uintptr(unsafe.Pointer(&mem[0]))%lineSize != 0 {
		return nil, errors.New("shmring: a doorbell needs 64 aligned bytes")
	}
	return &Doorbell{
		seq:   (*atomic.Uint32)(unsafe.Pointer(&mem[0])),
		armed: (*atomic.Uint32)(unsafe.Pointer(&mem[4])),
	}, nil
}

// Ring wakes the waiter; where none has armed it costs one load.
func (d *Doorbell) Ring() {
	if d.armed.Load() != 0 && d.armed.Swap(0) != 0 {
		d.seq.Add(1)
		futex(d.seq, futexWake, 1<<30, nil)
	}
}

// Address is where its memory is: the count, u32, and the flag, u32. Who rings from another language
// takes the flag down, if it is up, adds one to the count and wakes all that wait on it. What follows the two is
// not the doorbell's: ranks say there where they run (cgo/front/cpu_spread.h).
func (d *Doorbell) Address() uintptr { return uintptr(unsafe.Pointer(d.seq)) }

// Arm returns a count with which Wait notices every later Ring. Arm reads the count before it sets the flag: a Ring
// in between would clear the flag and count. With a count read after that, Wait would sleep without a Ring to come.
func (d *Doorbell) Arm() uint32 {
	seq := d.seq.Load()
	d.armed.Store(1)
	return seq
}

// Wait blocks until a Ring since Arm, at most for limit. It may return early. One Arm
// serves one Wait.
func (d *Doorbell) Wait(armed uint32, limit time.Duration) {
	if limit <= 0 || d.seq.Load() != armed {
		return
	}
	ts := unix.NsecToTimespec(int64(limit))
	futex(d.seq, futexWait, armed, &ts)
}

// futex is the shared (between processes) form; errors mean "look again", as a wake does.
func futex(word *atomic.Uint32, op int, val uint32, timeout *unix.Timespec) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(op), uintptr(val),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
}
