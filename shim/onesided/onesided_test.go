package onesided_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/flight"
	"lightpath/shim/onesided"
	"lightpath/shim/recorder"
	"lightpath/shim/shimtest"
	"lightpath/shim/status"
)

func newSideWorld(t testing.TB, n, size int, shared func(rank int) bool) *shimtest.WindowWorld {
	w := &shimtest.WindowWorld{Mem: make([][]byte, n), Handles: make([]uint64, n)}
	for r := range n {
		w.Mem[r] = shimtest.WindowMemory(t, size, shared(r))
	}
	w.World = shimtest.NewWorld(t, n) // which ends before its memory does
	for r, c := range w.Comms {
		w.Handles[r] = w.Register(c)
	}
	return w
}

// TestOneSidedAllToAll: every rank writes to every rank, its own window included, at once and again. It does so over
// shared memory, over connections and over both. A barrier of signals is between the rounds.
func TestOneSidedAllToAll(t *testing.T) {
	all, none := func(int) bool { return true }, func(int) bool { return false }
	for _, k := range []struct {
		transport string
		shared    func(rank int) bool
		mapped    bool
	}{
		{"shm", all, true}, {"inproc", all, true}, {"shm", none, false}, {"tcp", all, false}, {"tcp", none, false},
		{"shm", func(r int) bool { return r%2 == 0 }, false},
	} {
		for _, block := range []int{0, 1, 5000, 70_000} {
			t.Run(fmt.Sprintf("%s/%v/%d", k.transport, k.shared(1), block), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", k.transport)
				const n = 4
				w := newSideWorld(t, n, max(4096, n*block), k.shared)
				for round := range 3 {
					w.Must(func(c *shim.Comm) error { return exchangeByPuts(w, c, round, block) })
				}
				for _, l := range onesided.Of(w.Comms[0]).Links[1:] {
					if far := l.Windows[0]; far != nil && k.mapped && far.Mem == nil {
						t.Error("a window that can be mapped is written by messages")
					}
				}
			})
		}
	}
}

func exchangeByPuts(w *shimtest.WindowWorld, c *shim.Comm, round, block int) error {
	n, me := c.Ranks, c.Rank
	rng := func(from, to int) *rand.Rand { return rand.New(rand.NewPCG(uint64(round), uint64(from*n+to))) }
	var puts, waits []calls.Call
	for peer := range n {
		data := make([]byte, block)
		fillFrom(rng(me, peer), data)
		puts = append(puts, w.Put(c, peer, uint64(me*block), data))
		waits = append(waits, shimtest.SignalsFrom(c, peer, 1))
	}
	if err := shim.Run(append(puts, waits...)); err != nil {
		return err
	}
	for peer := range n {
		want := make([]byte, block)
		fillFrom(rng(peer, me), want)
		if !bytes.Equal(w.Mem[me][peer*block:][:block], want) {
			return fmt.Errorf("round %d: what rank %d has put is not there", round, peer)
		}
	}
	var barrier []calls.Call
	for peer := range n {
		barrier = append(barrier, shimtest.SignalTo(c, peer))
	}
	return shim.Run(append(barrier, waits...))
}

func fillFrom(rng *rand.Rand, b []byte) {
	base := rng.Uint64()
	for i := range b {
		b[i] = byte((base + uint64(i)) * 0x9e3779b97f4a7c15 >> 56)
	}
}

// TestOneSidedOrder checks that a rank that has seen n signals of a peer sees all data sent before them, on every path.
func TestOneSidedOrder(t *testing.T) {
	shimtest.OnTransports(t, []string{"shm", "tcp"}, func(t *testing.T) {
		const rounds, slots = 400, 64
		w := newSideWorld(t, 2, 1<<16, func(r int) bool { return true })
		// A second window, which can only be written by messages.
		second := shimtest.WindowMemory(t, 1<<16, false)
		var handles [2]uint64
		for r, c := range w.Comms {
			mem := [][]byte{shimtest.WindowMemory(t, 1<<16, false), second}[r]
			var err error
			if handles[r], err = shim.Register(c, unsafe.Pointer(unsafe.SliceData(mem)), 1<<16, true, 0); err != nil {
				t.Fatal(err)
			}
		}
		w.Must(func(c *shim.Comm) error {
			for i := range rounds {
				if c.Rank == 0 {
					data := []byte{byte(i), byte(i >> 8)}
					p := w.Put(c, 1, uint64(i%slots*1000), data)
					if i%3 == 1 {
						p.Window = handles[0]
					}
					if err := shim.Run([]calls.Call{p}); err != nil {
						return err
					}
					if i%slots == slots-1 {
						if err := shim.Run([]calls.Call{shimtest.SignalsFrom(c, 1, 1)}); err != nil {
							return err
						}
					}
					continue
				}
				if err := shim.Run([]calls.Call{shimtest.SignalsFrom(c, 0, 1)}); err != nil {
					return err
				}
				from := w.Mem[1]
				if i%3 == 1 {
					from = second
				}
				if got := int(from[i%slots*1000]) | int(from[i%slots*1000+1])<<8; got != i {
					return fmt.Errorf("signal %d came with %d", i, got)
				}
				if i%slots == slots-1 {
					if err := shim.Run([]calls.Call{shimtest.SignalTo(c, 0)}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

// TestOneSidedFromOneThread: a thread that drives all ranks groups their calls, waits before the
// signals that they wait for; collectives of the group come after.
func TestOneSidedFromOneThread(t *testing.T) {
	shimtest.OnTransports(t, []string{"shm", "tcp"}, func(t *testing.T) {
		const n = 3
		w := newSideWorld(t, n, 4096, func(int) bool { return true })
		var group, own, puts []calls.Call
		out := make([][]byte, n)
		for r, c := range w.Comms {
			out[r] = make([]byte, 1)
			own = append(own, shimtest.SignalTo(c, r), shimtest.SignalTo(c, r))
			puts = append(puts, w.Put(c, (r+n-1)%n, 0, []byte{byte(10 + r)}))
			group = append(group, calls.Call{
				Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: 1,
				Send: unsafe.Pointer(unsafe.SliceData(w.Mem[r])), Recv: unsafe.Pointer(unsafe.SliceData(out[r])),
			}, shimtest.SignalsFrom(c, (r+1)%n, 1), shimtest.SignalsFrom(c, r, 2))
		}
		// In the order of a rank's calls: its signals before it waits for them. The last rank puts when
		// it has waited, for which the others must have gone on.
		require.NoError(t, shim.Run(own))
		require.NoError(t, shim.Run(append(append(puts[:n-1:n-1], group...), puts[n-1])))
		for r := range out {
			if out[r][0] != 10+11+12 {
				t.Errorf("rank %d: %d", r, out[r][0])
			}
		}
	})
}

// TestOneSidedRefused checks that a bad call is refused before it has an effect.
func TestOneSidedRefused(t *testing.T) {
	w := newSideWorld(t, 2, 4096, func(int) bool { return true })
	c, data := w.Comms[0], make([]byte, 4096)
	huge, err := shim.Register(c, unsafe.Pointer(&data[0]), 1<<62, true, 0)
	require.NoError(t, err)
	for _, k := range []struct {
		call calls.Call
		says string
	}{
		{w.Put(c, 2, 0, data), "peer 2"},
		{w.Put(c, 1, 1, data), "end beyond the window"},
		{w.Put(c, 1, 1<<63, data), "end beyond the window"},
		{calls.Call{Comm: c, Kind: calls.PutSignal, Count: 1 << 62, Type: datatype.Float64, Window: w.Handles[0],
			Send: unsafe.Pointer(&data[0])}, "end beyond the window"},
		{calls.Call{Comm: c, Kind: calls.PutSignal, Count: 1<<61 + 1, Type: datatype.Float64, Window: huge,
			Send: unsafe.Pointer(&data[0])}, "end beyond the window"}, // 8 bytes, in 64 bits
		{calls.Call{Comm: c, Kind: calls.PutSignal, Count: 1, Type: datatype.NumTypes, Window: w.Handles[0],
			Send: unsafe.Pointer(&data[0])}, "datatype"},
		{calls.Call{Comm: c, Kind: calls.PutSignal, Count: 1, Window: w.Handles[0]}, "localbuff is NULL"},
		{calls.Call{Comm: c, Kind: calls.PutSignal, Count: 1, Window: w.Handles[1], Send: unsafe.Pointer(&data[0])},
			"another communicator"},
		{calls.Call{Comm: c, Kind: calls.PutSignal, Count: 1, Send: unsafe.Pointer(&data[0])},
			"window 0x0 is not registered"},
		{shimtest.SignalTo(c, -1), "peer -1"},
		{shimtest.SignalsFrom(c, 1, 0), "opCnt 0"},
		{shimtest.SignalsFrom(c, 1, -1), "opCnt -1"},
		{calls.Call{Comm: c, Kind: calls.EndOfKinds}, "no such call"},
		{calls.Call{Comm: c, Kind: calls.Signal, Options: calls.Options{Planes: 1}}, "no options"},
	} {
		shimtest.WantError(t, shim.Run([]calls.Call{k.call}), errdefs.ErrInvalidArgument, k.says)
	}
	three := slices.Repeat([]calls.Call{shimtest.SignalTo(w.Comms[1], 0)}, 3)
	require.NoError(t, shim.Run(append(three, shimtest.SignalsFrom(c, 1, 2))))
	w.SetTimeout(200 * time.Millisecond)
	shimtest.WantError(t, shim.Run([]calls.Call{shimtest.SignalsFrom(c, 1, 3)}), errdefs.ErrTimeout,
		"rank 0: 1 of 3 signals of rank 1")
	shimtest.WantError(t, c.AsyncError(), errdefs.ErrTimeout)
}

// TestOneSidedBadBuffer: a put from memory that is not mapped names it, whether it copies or sends messages.
func TestOneSidedBadBuffer(t *testing.T) {
	for _, shared := range []bool{true, false} {
		w := newSideWorld(t, 2, 4096, func(int) bool { return shared })
		put := w.Put(w.Comms[0], 1, 0, make([]byte, 4096))
		put.Send = shimtest.FakeAddress(0xdead << 48)
		shimtest.WantError(t, shim.Run([]calls.Call{put}), errdefs.ErrInvalidArgument, "rank 0: PutSignal(",
			"the send buffer is not mapped at 0xdead000000000000")
	}
}

// TestOneSidedWindowsComeLateAndGo: a put waits for the registration of its window; one that is gone
// is refused; memory that is written to is not given back before.
func TestOneSidedWindowsComeLateAndGo(t *testing.T) {
	shimtest.OnTransports(t, []string{"shm", "tcp"}, func(t *testing.T) {
		const size = 1 << 20
		w := &shimtest.WindowWorld{Mem: [][]byte{shimtest.WindowMemory(t, size, true), shimtest.WindowMemory(t, size, true)},
			Handles: make([]uint64, 2)}
		w.World = shimtest.NewWorld(t, 2)
		w.Handles[0] = w.Register(w.Comms[0])
		data := bytes.Repeat([]byte{7}, size)
		put := make(chan error, 1)
		go func() { put <- shim.Run([]calls.Call{w.Put(w.Comms[0], 1, 0, data)}) }()
		select {
		case err := <-put:
			t.Fatalf("put to a window that is not there: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		w.Handles[1] = w.Register(w.Comms[1])
		require.NoError(t, shim.Run([]calls.Call{shimtest.SignalsFrom(w.Comms[1], 0, 1)}))
		if err := <-put; err != nil || !bytes.Equal(w.Mem[1], data) {
			t.Fatalf("put: %v", err)
		}
		// The next window is gone when it is first written to.
		w.Handles = []uint64{w.Register(w.Comms[0]), w.Register(w.Comms[1])}
		if _, err := shim.Registered(w.Comms[1], w.Handles[1], true, true); err != nil {
			t.Fatal(err)
		}
		shimtest.WantError(t, shim.Run([]calls.Call{w.Put(w.Comms[0], 1, 0, data)}), errdefs.ErrInvalidUsage,
			"rank 1 has deregistered its window number 1")
	})
}

// TestOneSidedForgetsWindows: a rank that has deregistered a window keeps no mapping of the peers' memory for it.
func TestOneSidedForgetsWindows(t *testing.T) {
	shimtest.OnTransports(t, []string{"shm", "tcp"}, func(t *testing.T) {
		const size = 4096
		w := newSideWorld(t, 2, size, func(int) bool { return true })
		for range 4 {
			require.NoError(t, shim.Run([]calls.Call{w.Put(w.Comms[0], 1, 0, make([]byte, size))}))
			require.NoError(t, shim.Run([]calls.Call{shimtest.SignalsFrom(w.Comms[1], 0, 1)}))
			for r, c := range w.Comms {
				if _, err := shim.Registered(c, w.Handles[r], true, true); err != nil {
					t.Fatal(err)
				}
				w.Handles[r] = w.Register(c)
			}
		}
		require.NoError(t, shim.Run([]calls.Call{shimtest.SignalTo(w.Comms[0], 1)}))
		if n := len(onesided.Of(w.Comms[0]).Links[1].Windows); n != 0 {
			t.Errorf("it still has %d windows of rank 1", n)
		}
	})
}

// TestOneSidedAbort checks that a wait for signals, or for a window, ends with the communicator.
func TestOneSidedAbort(t *testing.T) {
	shimtest.OnTransports(t, []string{"shm", "tcp"}, func(t *testing.T) {
		w := newSideWorld(t, 3, 4096, func(int) bool { return true })
		w.Handles[0] = w.Register(w.Comms[0]) // which the others have not
		waiting := make(chan error, 2)
		var begun sync.WaitGroup
		for _, call := range []calls.Call{w.Put(w.Comms[0], 1, 0, make([]byte, 8)), shimtest.SignalsFrom(w.Comms[1], 0, 1)} {
			begun.Add(1)
			go func() {
				begun.Done()
				waiting <- shim.Run([]calls.Call{call})
			}()
		}
		begun.Wait()
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, w.Comms[2].Abort())
		for range 2 {
			shimtest.WantError(t, <-waiting, errdefs.ErrAborted, "rank 2")
		}
	})
}

// TestOneSidedIsSeen checks that the status and the flight recorder show waits for signals, with their ranks, and puts.
func TestOneSidedIsSeen(t *testing.T) {
	dir := shimtest.UseStatusDir(t)
	w := newSideWorld(t, 3, 4096, func(int) bool { return true })
	sender, waiter := w.Comms[0], w.Comms[2]
	require.NoError(t, shim.Run([]calls.Call{w.Put(sender, 2, 8, make([]byte, 40))}))
	done := make(chan error, 1)
	go func() {
		done <- shim.Run([]calls.Call{shimtest.SignalsFrom(waiter, 0, 1), shimtest.SignalsFrom(waiter, 0, 2)})
	}()
	c := shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool { return c.State == status.Waiting })
	assert.Contains(t, c.Diagnosis, "rank 2 waits for rank 0 (", "it is in WaitSignal for ")
	op := c.Ranks[2].Op
	if op == nil || op.Wait == nil || op.Wait.For != status.ForSignal || op.Wait.Peer != 0 ||
		op.Wait.Text != "signals of rank 0 (0 of 2)" {
		t.Errorf("rank 2 in %+v", op)
	}
	d, err := recorder.Record(waiter, nil)
	require.NoError(t, err)
	if n := len(d.Operations); n != 2 || d.Operations[0].Outcome != flight.Completed ||
		d.Operations[1].Outcome != flight.UnderWay ||
		d.Operations[1].Detail != "WaitSignal(2 signals, peer 0)" || d.Operations[1].Wait != "signals of rank 0 (0 of 2)" {
		t.Errorf("waits: %+v", d.Operations)
	}
	require.NoError(t, shim.Run([]calls.Call{shimtest.SignalTo(sender, 2), shimtest.SignalTo(sender, 2)}))
	require.NoError(t, <-done)
	if d, err = recorder.Record(sender, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(d.Operations); n != 3 || d.Operations[0].Detail != "PutSignal(count 40, type uint8, peer 2)" ||
		d.Operations[0].Bytes != 40 ||
		d.Operations[1].Detail != "Signal(peer 2)" || d.Operations[0].Outcome != flight.Completed ||
		d.Operations[0].Arrived == 0 || d.Operations[0].Ended == 0 {
		t.Errorf("puts and signals: %+v", d.Operations)
	}
	c = shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool { return c.State == status.Healthy })
	for name, counts := range map[string][3]uint64{"PutSignal": {1, 0, 0}, "Signal": {2, 0, 0}, "WaitSignal": {0, 0, 2}} {
		for r, want := range counts {
			if got := c.Ranks[r].Counts[name]; got != want || c.Ranks[r].Collectives != 0 {
				t.Errorf("rank %d: %d calls of %s, %d collectives", r, got, name, c.Ranks[r].Collectives)
			}
		}
	}
}

// TestOneSidedFailureIsSeen: signals that do not come leave a failed call in the recorder, and calls behind it
// none.
func TestOneSidedFailureIsSeen(t *testing.T) {
	w := newSideWorld(t, 2, 4096, func(int) bool { return true })
	w.SetTimeout(300 * time.Millisecond)
	err := shim.Run([]calls.Call{shimtest.SignalsFrom(w.Comms[0], 1, 3), shimtest.SignalsFrom(w.Comms[0], 1, 1)})
	shimtest.WantError(t, err, errdefs.ErrTimeout, "0 of 3 signals of rank 1")
	d, err := recorder.Record(w.Comms[0], err)
	require.NoError(t, err)
	if len(d.Operations) != 1 || d.Operations[0].Outcome != flight.Failed ||
		d.Operations[0].Wait != "signals of rank 1 (0 of 3)" {
		t.Errorf("%+v", d.Operations)
	}
}

// TestOneSidedAllocatesNothing: puts to windows that are mapped, signals and waits for what has come.
func TestOneSidedAllocatesNothing(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := newSideWorld(t, 2, 4096, func(int) bool { return true })
	data := make([]byte, 64)
	w.AllocatesNothing(t, []calls.Call{w.Put(w.Comms[0], 1, 0, data), shimtest.SignalTo(w.Comms[0], 1),
		shimtest.SignalsFrom(w.Comms[1], 0, 2)})
}
