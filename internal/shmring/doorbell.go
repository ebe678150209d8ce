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

// DoorbellSize is the memory of a [Doorbell] in bytes. It is 64-byte aligned and zero before first use.
const DoorbellSize = 64

// Doorbell wakes one waiter in any process that shares its memory. Any goroutine of any process may call Ring;
// one goroutine at a time may call Arm and Wait.
//
// Arm sets a flag. The next Ring clears the flag, increments the count and wakes the waiter. Without an armed
// waiter, Ring only reads the cache line, so the line stays in the cache of every ringer.
//
// The ringer publishes its event (an atomic store) before Ring; the waiter looks for the event after Arm.
// Then either the waiter finds the event or Ring finds the flag.
type Doorbell struct {
	seq, armed *atomic.Uint32
}

// NewDoorbell returns a view of the doorbell in mem.
func NewDoorbell(mem []byte) (*Doorbell, error) {
	if len(mem) < DoorbellSize || uintptr(unsafe.Pointer(&mem[0]))%lineSize != 0 {
		return nil, errors.New("shmring: a doorbell needs 64 aligned bytes")
	}
	return &Doorbell{
		seq:   (*atomic.Uint32)(unsafe.Pointer(&mem[0])),
		armed: (*atomic.Uint32)(unsafe.Pointer(&mem[4])),
	}, nil
}

// Ring wakes the waiter. If no waiter has armed, it costs one load.
func (d *Doorbell) Ring() {
	if d.armed.Load() != 0 && d.armed.Swap(0) != 0 {
		d.seq.Add(1)
		futex(d.seq, futexWake, 1<<30, nil)
	}
}

// Address returns the address of the doorbell's memory: the count (u32), then the flag (u32). C code rings as Ring
// does: it clears the flag and, if the flag was set, increments the count and wakes all futex waiters on it.
// The doorbell does not use the bytes after these two; ranks publish their CPU there (cgo/front/cpu_spread.h).
func (d *Doorbell) Address() uintptr { return uintptr(unsafe.Pointer(d.seq)) }

// Arm returns the count to pass to Wait, which then notices every Ring from now on.
//
// It reads the count before it sets the flag. A Ring between the two clears no flag yet; in the other order such
// a Ring would clear the flag and increment the count before the read, and Wait would miss it.
func (d *Doorbell) Arm() uint32 {
	seq := d.seq.Load()
	d.armed.Store(1)
	return seq
}

// Wait blocks until a Ring since Arm, or until limit has passed. It may return early. Each Wait needs its own Arm.
func (d *Doorbell) Wait(armed uint32, limit time.Duration) {
	if limit <= 0 || d.seq.Load() != armed {
		return
	}
	ts := unix.NsecToTimespec(int64(limit))
	futex(d.seq, futexWait, armed, &ts)
}

// futex calls the futex system call in its form shared between processes. On an error the caller looks again,
// as after a wake.
func futex(word *atomic.Uint32, op int, val uint32, timeout *unix.Timespec) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(op), uintptr(val),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
}
