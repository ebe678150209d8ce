package staged_test

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/flight"
	"lightpath/shim/path/staged"
	"lightpath/shim/recorder"
	"lightpath/shim/shimtest"
)

// beginner is a world on devices that counts how often a rank's worker is woken up.
type beginner struct {
	*shimtest.GPUs
	*shimtest.World
	t     *testing.T
	woken []atomic.Int32
	at    []unsafe.Pointer
}

const beginnerCount = 16

// newBeginner makes each rank's first call, which never runs on the driver's thread.
func newBeginner(t *testing.T, ranks int) *beginner {
	t.Helper()
	b := &beginner{GPUs: shimtest.UseGPUs(t, ranks, 1), World: shimtest.NewWorld(t, ranks), t: t,
		woken: make([]atomic.Int32, ranks)}
	for r := range ranks {
		b.at = append(b.at, b.Memory(r, 4*staged.BriefMost))
	}
	for r := range ranks {
		b.launch(r, beginnerCount)
	}
	for r, c := range b.Comms {
		b.settle(r)
		staged.OnWake(c, func() { b.woken[r].Add(1) })
	}
	return b
}

// launch puts an AllReduce of count numbers on a rank's idle stream. Rank r sends r + 1.
func (b *beginner) launch(rank, count int) {
	b.t.Helper()
	for i := range count {
		b.numbers(rank)[i] = float32(rank + 1)
	}
	b.put(rank, count)
}

func (b *beginner) put(rank, count int) {
	b.t.Helper()
	call := calls.Call{Comm: b.Comms[rank], Kind: calls.AllReduce, Type: datatype.Float32, Count: uint64(count),
		Send: b.at[rank], Recv: b.at[rank], Stream: b.Streams[rank][0]}
	require.NoError(b.t, shim.Run([]calls.Call{call}))
}

func (b *beginner) numbers(rank int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b.Bytes(b.at[rank], 4*staged.BriefMost)))),
		staged.BriefMost)
}

// settle waits until a rank's launches have ended and its worker is idle.
func (b *beginner) settle(rank int) {
	b.t.Helper()
	require.NoError(b.t, b.SynchronizeRank(rank))
	c := b.Comms[rank]
	await.Until(b.t, "the worker rests", func() bool { return !staged.Working(c) })
}

// has checks results.
func (b *beginner) has(rank, count int, want float32) {
	b.t.Helper()
	for i, got := range b.numbers(rank)[:count] {
		if got != want {
			b.t.Fatalf("rank %d: element %d is %v, want %v", rank, i, got, want)
		}
	}
}

// wakeUps checks how often a rank's worker has been woken up since the first call.
func (b *beginner) wakeUps(rank int, want int32) {
	b.t.Helper()
	if got := b.woken[rank].Load(); got != want {
		b.t.Errorf("the worker of rank %d was woken up %d times, want %d", rank, got, want)
	}
}

// TestBeginAlone checks that a rank that waits for no peer makes short calls on its driver's thread. Its worker makes
// long calls and calls of a new shape.
func TestBeginAlone(t *testing.T) {
	b := newBeginner(t, 1)
	for range 10 {
		b.launch(0, beginnerCount)
		b.settle(0)
		b.has(0, beginnerCount, 1)
	}
	b.wakeUps(0, 0)
	for i := range 2 {
		b.launch(0, staged.BriefMost)
		b.settle(0)
		b.has(0, staged.BriefMost, 1)
		b.wakeUps(0, int32(i)+1)
	}
	b.launch(0, beginnerCount+1)
	b.settle(0)
	b.wakeUps(0, 3)
}

// operations returns the operations in a rank's flight recorder.
func (b *beginner) operations(rank int) []flight.Operation {
	b.t.Helper()
	d, err := recorder.Record(b.Comms[rank], nil)
	require.NoError(b.t, err)
	return d.Operations
}

// TestBeginTogether checks that the first rank to arrive leaves its step to its worker, and that the other rank needs
// no worker. Later steps of the first rank wait for its step, and run in order.
func TestBeginTogether(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	b := newBeginner(t, 2)
	for i := range 5 {
		first := i % 2
		b.launch(first, beginnerCount)
		await.Until(b.t, "the step is left to the worker", func() bool { return b.woken[first].Load() == int32(i/2+1) })
		b.launch(1-first, beginnerCount)
		for r := range 2 {
			b.settle(r)
			b.has(r, beginnerCount, 3)
		}
		b.wakeUps(1-first, int32((i+1)/2))
	}
	for i, op := range b.operations(0) {
		if op.Seq != uint64(i+1) || op.Outcome != flight.Completed {
			t.Errorf("operation %d of the flight recorder has number %d and outcome %v", i+1, op.Seq, op.Outcome)
		}
	}
}

// TestBeginBusy checks that the worker makes a step of a communicator in use.
func TestBeginBusy(t *testing.T) {
	b := newBeginner(t, 1)
	b.Comms[0].Turn.Lock()
	b.launch(0, beginnerCount)
	await.Until(b.t, "the worker has the step", func() bool { return b.woken[0].Load() == 1 })
	b.Comms[0].Turn.Unlock()
	b.settle(0)
	b.has(0, beginnerCount, 1)
}

// TestBegunAborted checks that a step that has begun, and later steps, end with their communicator.
func TestBegunAborted(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	b := newBeginner(t, 2)
	for range 3 {
		b.put(0, beginnerCount)
	}
	await.Until(b.t, "the step is left to the worker", func() bool { return b.woken[0].Load() == 1 })
	require.NoError(t, b.Comms[0].Abort())
	b.settle(0)
	if op := b.operations(0)[1]; op.Outcome != flight.Failed {
		t.Errorf("the step has outcome %v", op.Outcome)
	}
}

// TestBeginReplayed checks that steps of a graph begin on the driver's thread, too.
func TestBeginReplayed(t *testing.T) {
	b := newBeginner(t, 1)
	b.Capture(b.Streams[0][0])
	b.launch(0, beginnerCount)
	graph := b.End(b.Streams[0][0])
	for range 3 {
		b.Replay(graph, b.Streams[0][0])
		b.settle(0)
		b.has(0, beginnerCount, 1)
	}
	b.wakeUps(0, 0)
	b.Discard(graph)
}

// TestBeginAllocatesNothing checks that a call that ends on the driver's thread allocates nothing.
func TestBeginAllocatesNothing(t *testing.T) {
	b := newBeginner(t, 1)
	calls := []calls.Call{{Comm: b.Comms[0], Kind: calls.AllReduce, Type: datatype.Float32, Count: beginnerCount,
		Send: b.at[0], Recv: b.at[0], Stream: b.Streams[0][0]}}
	b.AllocatesNothing(t, calls)
}
