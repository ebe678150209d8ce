package shmring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// aligned returns n zero bytes that begin on a cache line.
func aligned(n int) []byte {
	b := make([]byte, n+lineSize)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (lineSize - 1)
	return b[skip:][:n:n]
}

// ends returns the producer's and the consumer's view of one ring.
func ends(t testing.TB, count, payload int) (tx, rx *Ring) {
	t.Helper()
	mem := aligned(Size(count, payload))
	tx, err := New(mem, count, payload)
	if err != nil {
		t.Fatal(err)
	}
	if rx, err = New(mem, count, payload); err != nil {
		t.Fatal(err)
	}
	return tx, rx
}

func TestNewRefusesBadMemory(t *testing.T) {
	mem := aligned(Size(4, 100) + 1)
	for name, f := range map[string]func() error{
		"no slots":   func() error { _, err := New(mem, 0, 100); return err },
		"no payload": func() error { _, err := New(mem, 4, 0); return err },
		"short":      func() error { _, err := New(mem[:Size(4, 100)-1], 4, 100); return err },
		"unaligned":  func() error { _, err := New(mem[1:], 4, 100); return err },
		"bell short": func() error { _, err := NewDoorbell(mem[:DoorbellSize-1]); return err },
		"bell line":  func() error { _, err := NewDoorbell(mem[1:]); return err },
	} {
		if f() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestMatchesQueue compares random operations on both ends of a ring with a slice used as a queue.
func TestMatchesQueue(t *testing.T) {
	for _, count := range []int{1, 2, 3, 4, 7, 8} {
		rng := rand.New(rand.NewPCG(1, uint64(count)))
		tx, rx := ends(t, count, 40)
		type slot struct {
			data []byte
			tag  uint32
		}
		var queue []slot
		for range 20000 {
			if rng.IntN(2) == 0 {
				dst := tx.Reserve()
				if (dst == nil) != (len(queue) == count) {
					t.Fatalf("count %d: Reserve full=%v with %d queued", count, dst == nil, len(queue))
				}
				if dst != nil {
					s := slot{make([]byte, rng.IntN(tx.Payload()+1)), rng.Uint32()}
					for i := range s.data {
						s.data[i] = byte(rng.Uint32())
					}
					copy(dst, s.data)
					tx.Commit(len(s.data), s.tag)
					queue = append(queue, s)
				}
			} else {
				got, tag, err := rx.Peek()
				if err != nil || (got == nil) != (len(queue) == 0) {
					t.Fatalf("count %d: Peek of %d: %v %v", count, len(queue), got, err)
				}
				if got != nil && (!bytes.Equal(got, queue[0].data) || tag != queue[0].tag) {
					t.Fatalf("count %d: the oldest of %d slots differs", count, len(queue))
				}
				if len(queue) > 0 {
					rx.Release()
					queue = queue[1:]
				}
			}
			if tx.Free() != count-len(queue) || rx.Pending() != len(queue) || tx.Empty() != (len(queue) == 0) {
				t.Fatalf("count %d: counters disagree with %d queued", count, len(queue))
			}
		}
	}
}

func TestCorruptCountersAndLengths(t *testing.T) {
	tx, rx := ends(t, 4, 64)
	tx.Reserve()
	tx.Commit(64, 0)
	binary.LittleEndian.PutUint32(tx.slots, 1<<20)
	if _, _, err := rx.Peek(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("impossible length: %v", err)
	}
	tx, rx = ends(t, 4, 64)
	tx.produced.Store(9)
	if _, _, err := rx.Peek(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("impossible counter: %v", err)
	}
	if rx.Free() != 0 {
		t.Error("Free is not 0 with impossible counters")
	}
}

func TestWantIsReportedOnce(t *testing.T) {
	tx, rx := ends(t, 2, 8)
	if rx.Wanted() {
		t.Fatal("wanted before Want")
	}
	tx.Want()
	tx.Want()
	if !rx.Wanted() || rx.Wanted() {
		t.Fatal("Want must be reported exactly once")
	}
}

// TestNoWakeUpIsLost streams between two goroutines over the smallest ring. Both sleep whenever they can, so a lost
// wake-up makes the test hang.
func TestNoWakeUpIsLost(t *testing.T) {
	const total = 20000
	tx, rx := ends(t, 2, 8)
	txBell, err := NewDoorbell(aligned(DoorbellSize))
	if err != nil {
		t.Fatal(err)
	}
	rxBell, err := NewDoorbell(aligned(DoorbellSize))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); i < total; {
			dst := tx.Reserve()
			if dst == nil {
				armed := txBell.Arm()
				tx.Want()
				if tx.Free() == 0 {
					txBell.Wait(armed, time.Hour)
				}
				continue
			}
			binary.LittleEndian.PutUint64(dst, i)
			tx.Commit(8, uint32(i))
			rxBell.Ring()
			i++
		}
	})
	for i := uint64(0); i < total; {
		got, tag, err := rx.Peek()
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			armed := rxBell.Arm()
			if rx.Empty() {
				rxBell.Wait(armed, time.Hour)
			}
			continue
		}
		if binary.LittleEndian.Uint64(got) != i || tag != uint32(i) {
			t.Fatalf("slot %d holds %d", i, binary.LittleEndian.Uint64(got))
		}
		rx.Release()
		if rx.Wanted() {
			txBell.Ring()
		}
		i++
	}
	wg.Wait()
	if !tx.Empty() {
		t.Error("not empty at the end")
	}
}

func TestDoorbell(t *testing.T) {
	bell, err := NewDoorbell(aligned(DoorbellSize))
	if err != nil {
		t.Fatal(err)
	}
	bell.Ring()
	armed := bell.Arm()
	bell.Wait(armed, time.Millisecond) // without a ring, Wait returns after its limit
	armed = bell.Arm()
	bell.Ring()
	bell.Wait(armed, time.Hour) // after a ring, Wait returns at once

	armed = bell.Arm()
	done := make(chan struct{})
	go func() { bell.Wait(armed, time.Hour); close(done) }()
	runtime.Gosched()
	bell.Ring()
	<-done
}

func TestRingAndDoorbellDoNotAllocate(t *testing.T) {
	tx, rx := ends(t, 4, 64)
	bell, err := NewDoorbell(aligned(DoorbellSize))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		copy(tx.Reserve(), "x")
		tx.Commit(1, 0)
		armed := bell.Arm()
		bell.Ring()
		bell.Wait(armed, time.Second)
		_, _, _ = rx.Peek()
		rx.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzRing runs arbitrary operations, also with corrupt counters and lengths. Every payload must lie inside the
// ring's memory.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 1}, uint64(0), uint32(0))
	f.Add([]byte{0, 1, 3, 1}, uint64(1)<<63, uint32(1)<<31)
	f.Fuzz(func(t *testing.T, ops []byte, counter uint64, length uint32) {
		tx, rx := ends(t, 3, 16)
		for _, op := range ops {
			switch op % 5 {
			case 0:
				if dst := tx.Reserve(); dst != nil {
					tx.Commit(int(op)%(tx.Payload()+1), uint32(op))
				}
			case 1:
				if b, _, err := rx.Peek(); err == nil && len(b) > rx.Payload() {
					t.Fatalf("view of %d bytes", len(b))
				}
			case 2:
				rx.Release()
			case 3:
				tx.produced.Store(counter)
			case 4:
				binary.LittleEndian.PutUint32(tx.slots[int(tx.stride):], length)
			}
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	tx1, rx1 := ends(b, 8, 1024)
	tx2, rx2 := ends(b, 8, 1024)
	go func() {
		for range b.N {
			pop(rx1)
			push(tx2)
		}
	}()
	b.ReportAllocs()
	for range b.N { // not b.Loop, which changes b.N while the other goroutine counts to it
		push(tx1)
		pop(rx2)
	}
}

func push(r *Ring) {
	for r.Reserve() == nil {
		runtime.Gosched()
	}
	r.Commit(8, 0)
}

func pop(r *Ring) {
	for spins := 0; ; spins++ {
		if b, _, _ := r.Peek(); b != nil {
			r.Release()
			return
		}
		if spins%64 == 63 {
			runtime.Gosched()
		}
	}
}
