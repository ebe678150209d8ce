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
type Doorbell struct {
	seq, sleepers *atomic.Uint32
}

// NewDoorbell makes a view of the doorbell in mem.
func NewDoorbell(mem []byte) (*Doorbell, error) {
	if len(mem) < DoorbellSize || uintptr(unsafe.Pointer(&mem[0]))%lineSize != 0 {
		return nil, errors.New("shmring: a doorbell needs 64 aligned bytes")
	}
	return &Doorbell{
		seq:      (*atomic.Uint32)(unsafe.Pointer(&mem[0])),
		sleepers: (*atomic.Uint32)(unsafe.Pointer(&mem[4])),
	}, nil
}

// Ring wakes the waiter; without one it costs two atomic operations and no system call.
func (d *Doorbell) Ring() {
	d.seq.Add(1)
	if d.sleepers.Load() != 0 {
		futex(d.seq, futexWake, 1<<30, nil)
	}
}

// Arm returns what Wait needs to notice every Ring from now on.
func (d *Doorbell) Arm() uint32 { return d.seq.Load() }

// Wait blocks until a Ring since Arm, at most for d. It may return early.
func (d *Doorbell) Wait(armed uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(limit))
	d.sleepers.Add(1)
	futex(d.seq, futexWait, armed, &ts)
	d.sleepers.Add(^uint32(0))
}

// futex is the shared (between processes) form; errors mean "look again", as a wake does.
func futex(word *atomic.Uint32, op int, val uint32, timeout *unix.Timespec) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(op), uintptr(val),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
}
