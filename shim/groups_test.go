package shim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// TestGroupedSendRecv is the all-to-all that frameworks write with grouped sends and receives. Each pair has another
// size, self included, and some are empty. A collective is in the same group.
func TestGroupedSendRecv(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "shm", "tcp"}, func(t *testing.T) {
		t.Setenv("LIGHTPATH_PLANES", "2")
		const n = 4
		w := shimtest.NewWorld(t, n)
		size := func(src, dst int) int { return (src*7 + dst*1001) % 40009 * ((src + dst) % 3) }
		for range 3 {
			w.Must(func(c *shim.Comm) error {
				me := c.Rank
				var group []calls.Call
				var in [n][]int32
				sum := shimtest.Ramp(1, 50)
				for peer := range n {
					in[peer] = make([]int32, size(peer, me))
					group = append(group, shimtest.MessageInt32(calls.Send, c, peer, shimtest.Ramp(me*n+peer, size(me, peer))),
						shimtest.MessageInt32(calls.Recv, c, peer, in[peer]))
					if peer == 1 {
						group = append(group, calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Int32, Count: 50,
							Send: unsafe.Pointer(&sum[0]), Recv: unsafe.Pointer(&sum[0])})
					}
				}
				if err := shim.Run(group); err != nil {
					return err
				}
				for peer := range n {
					if err := shimtest.CompareInt32(in[peer], shimtest.Ramp(peer*n+me, size(peer, me))); err != nil {
						return fmt.Errorf("from rank %d: %w", peer, err)
					}
				}
				for i, v := range shimtest.Ramp(1, 50) {
					if sum[i] != n*v {
						return fmt.Errorf("sum[%d] is %d, want %d", i, sum[i], n*v)
					}
				}
				return nil
			})
		}
	})
}

// TestSendRecvUngrouped: a ring of single calls; messages of a pair keep their order however
// the two sides group them.
func TestSendRecvUngrouped(t *testing.T) {
	w := shimtest.NewWorld(t, 2)
	w.Must(func(c *shim.Comm) error {
		if c.Rank == 0 {
			for i := range 5 {
				if err := shim.Run([]calls.Call{shimtest.MessageInt32(calls.Send, c, 1, shimtest.Ramp(i, 10+i))}); err != nil {
					return err
				}
			}
			return nil
		}
		var group []calls.Call
		var in [5][]int32
		for i := range in {
			in[i] = make([]int32, 10+i)
			group = append(group, shimtest.MessageInt32(calls.Recv, c, 0, in[i]))
		}
		if err := shim.Run(group); err != nil {
			return err
		}
		for i := range in {
			if err := shimtest.CompareInt32(in[i], shimtest.Ramp(i, 10+i)); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		return nil
	})
}

func TestUnmatchedSelfSend(t *testing.T) {
	w := shimtest.NewWorld(t, 1)
	c := w.Comms[0]
	shimtest.WantError(t, shim.Run([]calls.Call{shimtest.MessageInt32(calls.Send, c, 0, shimtest.Ramp(1, 3))}),
		errdefs.ErrInvalidUsage, "Send")
	in := make([]int32, 3)
	require.NoError(t, shim.Run([]calls.Call{shimtest.MessageInt32(calls.Recv, c, 0, in),
		shimtest.MessageInt32(calls.Send, c, 0, shimtest.Ramp(1, 3))}))
	assert.NoError(t, shimtest.CompareInt32(in, shimtest.Ramp(1, 3)))
}

// TestOneThreadManyRanks: all ranks of a communicator in one group on one thread, as
// programs do that own several devices; and two communicators in one group.
func TestOneThreadManyRanks(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "shm", "tcp"}, func(t *testing.T) {
		a, b := shimtest.NewWorld(t, 4), shimtest.NewWorld(t, 3)
		mem := map[*shim.Comm][]float32{}
		var calls []calls.Call
		for _, w := range []*shimtest.World{a, b} {
			for _, c := range w.Comms {
				mem[c] = make([]float32, 5000)
				for i := range mem[c] {
					mem[c][i] = float32(i % 7)
				}
				calls = append(calls, shimtest.AllReduce(c, mem[c]), shimtest.AllReduce(c, mem[c]))
			}
		}
		errs := shimtest.Concurrently(t, 1, func(int) error { return shim.Run(calls) })
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		for c, m := range mem {
			n := float32(c.Ranks)
			for i := range m {
				if want := n * n * float32(i%7); m[i] != want {
					t.Fatalf("rank %d of %d: [%d] is %v, want %v", c.Rank, c.Ranks, i, m[i], want)
				}
			}
		}
	})
}

// TestTwoThreadsOneComm: calls of two threads on one communicator are taken one at a
// time; with equal calls their order does not show.
func TestTwoThreadsOneComm(t *testing.T) {
	w := shimtest.NewWorld(t, 2)
	errs := shimtest.Concurrently(t, 4, func(i int) error {
		c := w.Comms[i%2]
		for range 50 {
			buf := []float32{1, 2, 3}
			if err := shim.Run([]calls.Call{shimtest.AllReduce(c, buf)}); err != nil {
				return err
			}
			if buf[2] != 6 {
				return errors.New("wrong sum")
			}
		}
		return nil
	})
	for _, err := range errs {
		assert.NoError(t, err)
	}
}

// TestSteadyStateAllocatesNothing: groups of shapes seen before, all ranks on one thread.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "shm", "tcp"}, func(t *testing.T) {
		w := shimtest.NewWorld(t, 2)
		var group []calls.Call
		var sent, got [2][]int32
		for r, c := range w.Comms {
			sent[r], got[r] = shimtest.Ramp(r, 3000), make([]int32, 3000)
			group = append(group, shimtest.AllReduce(c, make([]float32, 3000)), shimtest.AllReduce(c, make([]float32, 3)),
				shimtest.MessageInt32(calls.Send, c, 1-r, sent[r]), shimtest.MessageInt32(calls.Recv, c, 1-r, got[r]))
		}
		w.AllocatesNothing(t, group)
	})
}

// TestGroupsInOppositeOrder: two threads of a rank group the same two communicators, each
// naming them in its own order.
func TestGroupsInOppositeOrder(t *testing.T) {
	a, b := shimtest.NewWorld(t, 2), shimtest.NewWorld(t, 2)
	errs := shimtest.Concurrently(t, 4, func(i int) error {
		pair := []*shim.Comm{a.Comms[i%2], b.Comms[i%2]}
		if i >= 2 {
			pair[0], pair[1] = pair[1], pair[0]
		}
		for range 100 {
			x, y := []float32{1}, []float32{1}
			if err := shim.Run([]calls.Call{shimtest.AllReduce(pair[0], x), shimtest.AllReduce(pair[1], y)}); err != nil {
				return err
			}
			if x[0] != 2 || y[0] != 2 {
				return fmt.Errorf("sums %v and %v", x, y)
			}
		}
		return nil
	})
	for _, err := range errs {
		assert.NoError(t, err)
	}
}

// TestLockOrder: a group that must wait for one of its communicators holds none that
// comes later in the common order, however the group names them.
func TestLockOrder(t *testing.T) {
	a, b := shimtest.NewWorld(t, 1).Comms[0], shimtest.NewWorld(t, 1).Comms[0]
	a.Turn.Lock()
	done := make(chan error, 1)
	go func() {
		done <- shim.Run([]calls.Call{shimtest.AllReduce(b, []float32{1}), shimtest.AllReduce(a, []float32{1})})
	}()
	for range 50 { // as long as it likes to get there; a wrong order is caught in passing
		time.Sleep(time.Millisecond)
		if !b.Turn.TryLock() {
			t.Error("holds the second communicator while it waits for the first")
			break
		}
		b.Turn.Unlock()
	}
	a.Turn.Unlock()
	assert.NoError(t, <-done)
}

// TestMessagesFollowCollectives: in a group a communicator's sends carry what its collectives have left
// in their buffers, wherever in the group they stand, and whichever way the collectives go.
func TestMessagesFollowCollectives(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		for _, count := range []int{3, 300_000} {
			t.Run(fmt.Sprintf("%s/%d", transport, count), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				const n = 3
				w := shimtest.NewWorld(t, n)
				want := make([]int32, count)
				for i := range want {
					want[i] = n * int32(1000003+i)
				}
				w.Must(func(c *shim.Comm) error {
					sum, twice, got := shimtest.Ramp(1, count), make([]int32, count), make([]int32, count)
					send := shimtest.MessageInt32(calls.Send, c, (c.Rank+1)%n, twice)
					recv := shimtest.MessageInt32(calls.Recv, c, (c.Rank+n-1)%n, got)
					in := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Int32, Count: uint64(count),
						Send: unsafe.Pointer(&sum[0]), Recv: unsafe.Pointer(&sum[0])}
					out := calls.Call{Comm: c, Kind: calls.Broadcast, Type: datatype.Int32, Count: uint64(count),
						Send: unsafe.Pointer(&sum[0]), Recv: unsafe.Pointer(&twice[0])}
					if err := shim.Run([]calls.Call{send, in, recv, out}); err != nil {
						return err
					}
					return shimtest.CompareInt32(got, want)
				})
			})
		}
	}
}
